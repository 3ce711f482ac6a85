internal import Observability

/// The server's metrics, looked up once.
final class ServerMetrics: Sendable {
    let connections: Gauge
    let refusedConnections: Counter
    /// Connections without a request that were closed to make room for new ones.
    let silentConnections: Counter
    let acceptPauses: Counter
    let refusedTLS: Counter
    /// HTTP/2 peers that got ENHANCE_YOUR_CALM.
    let floods: Counter
    /// Peers that were cut off because they did not read their responses.
    let slowReaders: Counter
    let heldAnswers: Gauge
    let streams: Gauge
    private let refusedRequests: [Int: Counter]
    private let otherRefusals: Counter
    /// Indexed by method, then by the status' first digit less one.
    private let requests: [HTTPMethod: [Counter]]
    private let duration: Histogram

    init(_ metrics: Metrics) {
        connections = metrics.gauge(.httpConnections)
        refusedConnections = metrics.counter(.httpRefused, ["reason": "connections"])
        silentConnections = metrics.counter(.httpRefused, ["reason": "silent"])
        acceptPauses = metrics.counter(.httpAcceptPauses)
        refusedTLS = metrics.counter(.httpRefused, ["reason": "tls"])
        floods = metrics.counter(.httpRefused, ["reason": "flood"])
        slowReaders = metrics.counter(.httpRefused, ["reason": "slow_reader"])
        heldAnswers = metrics.gauge(.httpHeldAnswers)
        streams = metrics.gauge(.httpStreams)
        var refused: [Int: Counter] = [:]
        for status in [400, 408, 413, 414, 415, 417, 431, 501, 503, 505] {
            refused[status] = metrics.counter(.httpRefused, ["reason": "\(status)"])
        }
        refusedRequests = refused
        otherRefusals = metrics.counter(.httpRefused, ["reason": "other"])
        var requests: [HTTPMethod: [Counter]] = [:]
        for method in HTTPMethod.allCases {
            requests[method] = (1...5).map {
                metrics.counter(
                    .httpRequests,
                    ["method": method.rawValue, "status": "\($0)xx"]
                )
            }
        }
        self.requests = requests
        duration = metrics.histogram(.httpRequestDuration)
    }

    /// Counts a request that the server itself refused with this status.
    func refused(_ status: Int) { (refusedRequests[status] ?? otherRefusals).add(1) }

    func answered(_ method: HTTPMethod, _ status: Int, after time: Duration) {
        requests[method]?[responseStatus(status) / 100 - 1].add(1)
        duration.observe(time)
    }
}
