package import EventLoop
package import Observability

/// Listens, speaks HTTP/1.1 and HTTP/2, and answers by routes.
///
/// Authority: the sockets of one plain and one TLS port, on one or several loops (each with its own
/// listener on the same port and its own router, so no request changes threads). The server
/// validates a peer's framing, limits and deadlines; the router handles the rest.
///
/// States: made, started (listening), stopped. Shutdown: listeners close first, every response in
/// flight is sent, keep-alive connections get `Connection: close` or GOAWAY, and after `stopGrace`
/// the rest is cut off.
package final class HTTPServer: @unchecked Sendable {
    package let name = "http"

    private let configuration: HTTPServerConfiguration
    private let log: Log
    private let serverLoops: [ServerLoop]
    private let tls: TLSContextSource?
    private let lock = Lock()
    private var addresses: [BoundAddress] = []
    private var isStopped = false

    /// - Parameters:
    ///   - configuration: The addresses to listen on, and the limits.
    ///   - loops: At least one.
    ///   - log: Gets `listening`, one line an address, and each request as `accessLog` says.
    ///   - metrics: Counts and times requests.
    ///   - makeRouter: Called once for each loop.
    /// - Throws: `HTTPServerError` if the certificate is invalid.
    package init(
        _ configuration: HTTPServerConfiguration,
        loops: [EventLoop],
        log: Log = .disabled,
        metrics: Metrics = Metrics(),
        makeRouter: (EventLoop) -> Router
    ) throws {
        self.configuration = configuration
        self.log = log
        tls = try configuration.tls.map { try TLSContextSource($0, log: log) }
        let limits = ConnectionLimits(configuration)
        let instruments = ServerMetrics(metrics)
        serverLoops = loops.map { loop in
            var router = makeRouter(loop)
            router.log = log
            return ServerLoop(
                loop: loop,
                configuration: configuration,
                router: router,
                limits: limits,
                instruments: instruments,
                log: log
            )
        }
    }

    /// Listens, and logs each address. A repeated call returns the same addresses.
    ///
    /// - Throws: `EventLoopError` if a port cannot be bound; then no port stays bound.
    @discardableResult
    package func start() async throws -> [BoundAddress] {
        let known = lock.withLock { addresses }
        guard known.isEmpty else { return known }
        var bound: [BoundAddress] = []
        do {
            if let port = configuration.port {
                bound.append(try await listen(scheme: "http", port: port, tls: nil))
            }
            if let tls, let port = configuration.tls?.port {
                bound.append(try await listen(scheme: "https", port: port, tls: tls))
                if let first = serverLoops.first {
                    first.loop.execute { first.watchCertificate(tls) }
                }
            }
        } catch {
            for server in serverLoops { server.loop.execute { server.closeListeners() } }
            throw error
        }
        lock.withLock { addresses = bound }
        for address in bound {
            var data: LogData = [
                .scheme: .string(address.scheme), .port: .integer(address.port),
            ]
            if let surface = configuration.surface { data[.surface] = .string(surface) }
            log.info("listening", data)
        }
        return bound
    }

    private func listen(
        scheme: String,
        port: Int,
        tls: TLSContextSource?
    ) async throws -> BoundAddress {
        let shares = serverLoops.count > 1
        if shares, port != 0 { try checkPortIsFree(host: configuration.host, port: port) }
        var port = port
        for server in serverLoops {
            let wanted = port
            port = try await server.loop.perform {
                try server.listen(port: wanted, sharesPort: shares, tls: tls)
            }
        }
        return BoundAddress(scheme: scheme, host: configuration.host, port: port)
    }

    /// Serves until its task is cancelled, then stops gracefully.
    package func run() async throws {
        try await start()
        let (forever, continuation) = AsyncStream.makeStream(of: Never.self)
        for await _ in forever {}
        continuation.finish()
        // The parts that stop after the server need time, too.
        let clock = serverLoops.first?.loop.stopClock
        await stop(
            within: clock?.limit(configuration.stopGrace, share: 0.7) ?? configuration.stopGrace
        )
    }

    /// Returns when every connection is closed, at the latest after `grace`.
    package func stop(within grace: Duration) async {
        let first = lock.withLock {
            defer { isStopped = true }
            return !isStopped
        }
        guard first else { return }
        let stops = serverLoops.map { server in
            Task(executorPreference: server.loop) {
                await withCheckedContinuation { continuation in
                    server.loop.execute {
                        server.stop(within: grace) { continuation.resume() }
                    }
                }
            }
        }
        for stop in stops { await stop.value }
    }

    /// Returns nil while it listens.
    package func notReadyReason() -> String? {
        lock.withLock {
            if isStopped { return "stopping" }
            return addresses.isEmpty ? "not listening yet" : nil
        }
    }

    // MARK: Messages to connections

    /// Sets how many streams may be open on each present and future HTTP/2 connection.
    package func setMaxConcurrentStreams(_ count: Int) {
        for server in serverLoops {
            server.loop.execute { server.setMaxConcurrentStreams(count) }
        }
    }

    /// Sets how many streams may be open on one HTTP/2 connection.
    package func setMaxConcurrentStreams(_ count: Int, connection: Int) {
        for server in serverLoops {
            server.loop.execute { server.setMaxConcurrentStreams(count, connection: connection) }
        }
    }

    /// Sends GOAWAY: streams beyond `lastStreamID` are dropped, the others answered, then the
    /// connection is closed. If `connection` is nil, on every connection; if `lastStreamID` is nil,
    /// the newest stream so far is the last.
    package func goaway(
        connection: Int?,
        lastStreamID: Int? = nil,
        code: UInt32 = 0,
        data: [UInt8] = []
    ) {
        for server in serverLoops {
            server.loop.execute {
                server.sendGoAway(
                    connection: connection,
                    lastStreamID: lastStreamID,
                    code: code,
                    data: data
                )
            }
        }
    }
}

extension EventLoop {
    /// Runs `body` on the loop and returns its result.
    fileprivate func perform<Value: Sendable>(
        _ body: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            execute { continuation.resume(with: Result(catching: body)) }
        }
    }
}
