internal import HTTPTransport
internal import Observability

/// The current HTTP client. If its connections fail, a new client replaces it, and requests on the
/// old one end there. Confined to one loop.
final class ConnectionSlot {
    private let configuration: HTTPTransportConfiguration
    private let loop: HTTPClient.Loop
    private let log: Log
    private var replacedAt: ContinuousClock.Instant?
    private(set) var client: HTTPClient
    /// The number of the client. So many failures of one client replace it only once.
    private(set) var generation = 0

    /// The minimum time between replacements: providers treat rapid reconnects as an attack.
    private static let minimumInterval = Duration.seconds(1)

    init(
        _ configuration: HTTPTransportConfiguration,
        on loop: HTTPClient.Loop,
        log: Log
    ) throws(HTTPTransportError) {
        self.configuration = configuration
        self.loop = loop
        self.log = log
        client = try HTTPClient(configuration, on: loop, log: log)
    }

    /// Replaces the client of this generation, unless it was replaced already or another was
    /// replaced just before.
    ///
    /// - Parameters:
    ///   - generation: The generation of the client that failed.
    ///   - reason: The reason, for the log.
    func replace(_ generation: Int, because reason: String) {
        guard generation == self.generation else { return }
        let now = ContinuousClock.now
        if let replacedAt, now - replacedAt < Self.minimumInterval { return }
        guard let fresh = try? HTTPClient(configuration, on: loop, log: log) else { return }
        client.closeAfterLastCall()
        client = fresh
        self.generation += 1
        replacedAt = now
        log.info("provider connections replaced", [.reason: .string(reason)])
    }

    func close() { client.close() }
}
