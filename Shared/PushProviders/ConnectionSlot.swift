internal import HTTPTransport
internal import Observability

/// Holds the HTTP client in use, and takes a new one where its connections have gone bad: what is
/// running on the old one ends there. Confined to one loop.
final class ConnectionSlot {
    private let configuration: HTTPTransportConfiguration
    private let loop: HTTPClient.Loop
    private let log: Log
    private var replacedAt: ContinuousClock.Instant?
    private(set) var client: HTTPClient
    /// Counts the clients, so that many answers of one connection replace it once.
    private(set) var generation = 0

    /// Providers take connections that come and go rapidly for an attack.
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

    /// Replaces the client of this generation, unless somebody has, or only just has.
    ///
    /// - Parameters:
    ///   - generation: That of the client which the bad answer came from.
    ///   - reason: For the log.
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
