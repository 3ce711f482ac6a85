import EventLoop
import HTTPServer
import Observability
import Support

/// A server on a free port of this machine, on loops of its own, while a test runs.
struct TestServer: Sendable {
    let server: HTTPServer
    let loops: [EventLoop]
    let metrics: Metrics
    let addresses: [BoundAddress]

    var port: Int { addresses.first { $0.scheme == "http" }?.port ?? 0 }
    var tlsPort: Int { addresses.first { $0.scheme == "https" }?.port ?? 0 }

    /// Sends raw bytes, ends the client's side, and returns the entire response.
    func exchange(_ raw: [UInt8]) async throws -> [UInt8] {
        let wire = try Wire(port: port)
        defer { wire.close() }
        try await wire.send(raw)
        wire.endOutput()
        return try await wire.receiveAll()
    }

    func exchange(_ raw: String) async throws -> [Reply] {
        try replies(try await exchange(Array(raw.utf8)))
    }
}

func withServer(
    loops count: Int = 1,
    log: Log = .disabled,
    configure: (inout HTTPServerConfiguration) -> Void = { _ in },
    routes: @escaping @Sendable (inout Router, EventLoop) -> Void = addTestRoutes,
    _ body: (TestServer) async throws -> Void
) async throws {
    var configuration = HTTPServerConfiguration(host: "127.0.0.1", port: 0)
    configure(&configuration)
    let loops = try (0..<count).map { try EventLoop(name: "test-\($0)") }
    let metrics = Metrics()
    let server = try HTTPServer(
        configuration,
        loops: loops,
        log: log,
        metrics: metrics
    ) { loop in
        var router = Router()
        routes(&router, loop)
        return router
    }
    let result: Result<Void, any Error>
    do {
        let addresses = try await server.start()
        let test = TestServer(
            server: server,
            loops: loops,
            metrics: metrics,
            addresses: addresses
        )
        try await body(test)
        result = .success(())
    } catch {
        result = .failure(error)
    }
    await server.stop(within: .milliseconds(200))
    for loop in loops { await loop.stop() }
    try result.get()
}

/// Makes the routes: `GET /` and `/slow` (100 ms late), `POST /echo`, `GET /hello/:name`, `GET
/// /failing`.
@Sendable
func addTestRoutes(_ router: inout Router, _ loop: EventLoop) {
    router.on(.get, "/") { .text("\($0.method.rawValue) \($0.rawTarget)") }
    router.on(.get, "/slow") { _ in
        try await loop.sleep(for: .milliseconds(100))
        return .text("slow")
    }
    router.on(.post, "/echo") { HTTPServerResponse(status: 200, body: $0.body) }
    router.on(.get, "/hello/:name") { .text("hello \($0.pathParameters["name"] ?? "")") }
    router.on(.get, "/who") { request in
        .text(
            "\(request.scheme) \(request.protocolVersion.rawValue) "
                + "\(request.clientCertificateSubject ?? "nobody")"
        )
    }
    router.on(.get, "/failing") { _ in throw TestFailure("secret of the handler") }
    router.on(.get, "/big") { _ in
        HTTPServerResponse(status: 200, body: Array(repeating: UInt8(ascii: "x"), count: 8 << 20))
    }
}
