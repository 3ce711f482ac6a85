package import Observability

/// The common settings of the connections of one `HTTP2Pool`.
package struct HTTP2PoolConfiguration: Sendable {
    /// An https URL without a path.
    package var origin: String
    /// Settings of the transport, of which only the hosts, the client certificate, the CA file, the
    /// proxy, the connect timeout and the response size apply.
    package var transport: HTTPTransportConfiguration
    /// 1...100. Default 4.
    package var maximumConnections: Int
    /// The limit on one connection; the peer's own limit applies if it is lower. Default 1000.
    package var maximumStreams: Int
    /// The requests waiting and in flight. Default 100,000.
    package var maximumRequests: Int
    /// Whether one request goes first on each new connection until an answer shows that its token
    /// was accepted, as APNs demands.
    package var provesFirst: Bool
    /// The time after which other requests follow although the first has no answer: an unanswered
    /// request must not block all others, and the peer's stream limit applies anyway.
    package var proofTimeout: Duration
    /// The time after which an idle connection is closed.
    package var idleTimeout: Duration
    /// The age at which a connection takes no more requests, so that another address may get them.
    package var maximumAge: Duration
    /// How long a peer may be silent, with requests in flight, before it gets a PING; it has as
    /// long again to answer.
    package var pingAfter: Duration
    /// The time after which a connection that lets nothing through is replaced: its peer sends no
    /// SETTINGS, allows no stream or opens no window.
    package var stallTimeout: Duration
    /// Records how long urgent requests wait for a stream.
    package var waits: Histogram?
    /// The precision of deadlines, and the interval at which connections are checked.
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

    var limits: ConnectionPolicy.Limits {
        var limits = ConnectionPolicy.Limits()
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
