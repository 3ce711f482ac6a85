package import Observability

/// What the connections of one `HTTP2Pool` have in common.
package struct HTTP2PoolConfiguration: Sendable {
    /// An https URL without a path.
    package var origin: String
    /// Of these count the hosts, the client certificate, the CA file, the proxy, the time to
    /// connect and the size of an answer.
    package var transport: HTTPTransportConfiguration
    /// 1...100. Default 4.
    package var maximumConnections: Int
    /// On one connection; the peer's own limit counts where it is lower. Default 1000.
    package var maximumStreams: Int
    /// Requests waiting and out. Default 100,000.
    package var maximumRequests: Int
    /// On each new connection one request goes ahead until an answer shows that its token was
    /// taken, as APNs demands.
    package var provesFirst: Bool
    /// After this the others follow although the first has no answer: what is silent must not hold up
    /// all, and the peer's own stream limit counts anyhow.
    package var proofTimeout: Duration
    /// An idle connection is closed after this.
    package var idleTimeout: Duration
    /// A connection takes no more requests at this age, so that another address may get them.
    package var maximumAge: Duration
    /// With requests out and nothing heard for this long, the peer is asked by PING whether it
    /// lives, and given as long again.
    package var pingAfter: Duration
    /// A connection that lets nothing through of what waits for it – its peer says no SETTINGS, allows
    /// no stream, opens no window – is replaced after this.
    package var stallTimeout: Duration
    /// Hears how long urgent requests wait for a stream.
    package var waits: Histogram?
    /// How exact deadlines are, and how often connections are looked at.
    var tick = Duration.milliseconds(50)

    package init(
        origin: String,
        transport: HTTPTransportConfiguration,
        maximumConnections: Int = 4,
        maximumStreams: Int = 1000,
        maximumRequests: Int = 100_000,
        provesFirst: Bool = false,
        proofTimeout: Duration = .seconds(2),
        idleTimeout: Duration = .seconds(600),
        maximumAge: Duration = .seconds(6 * 3600),
        pingAfter: Duration = .seconds(5),
        stallTimeout: Duration = .seconds(4)
    ) {
        self.origin = origin
        self.transport = transport
        self.maximumConnections = maximumConnections
        self.maximumStreams = maximumStreams
        self.maximumRequests = maximumRequests
        self.provesFirst = provesFirst
        self.proofTimeout = proofTimeout
        self.idleTimeout = idleTimeout
        self.maximumAge = maximumAge
        self.pingAfter = pingAfter
        self.stallTimeout = stallTimeout
    }

    var limits: ConnectionRule.Limits {
        var limits = ConnectionRule.Limits()
        limits.provesFirst = provesFirst
        limits.proofMilliseconds = Int64(proofTimeout.milliseconds)
        limits.settingsMilliseconds = Int64(stallTimeout.milliseconds)
        limits.stallMilliseconds = Int64(stallTimeout.milliseconds)
        limits.pingAfterMilliseconds = Int64(pingAfter.milliseconds)
        limits.pingMilliseconds = Int64(pingAfter.milliseconds)
        limits.idleMilliseconds = Int64(idleTimeout.milliseconds)
        limits.ageMilliseconds = Int64(maximumAge.milliseconds)
        return limits
    }
}
