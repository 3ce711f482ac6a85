import EventLoop
import Observability
import Support

@testable import HTTPServer

/// One loop's share of a server whose time advances only by the ticks of a test: work that depends
/// on a tick does not continue here.
struct StillServer: Sendable {
    let loop: EventLoop
    let server: ServerLoop
    let metrics: Metrics
    let port: Int

    var openConnections: Int { metrics.gauge(.httpConnections).value }

    var heldAnswerBytes: Int { metrics.gauge(.httpHeldAnswers).value }

    /// A WebSocket is checked at one of ten ticks.
    func tick(after duration: Duration, times: Int = 1) async {
        await withCheckedContinuation { continuation in
            loop.execute {
                for _ in 0..<times { server.tick(.now + duration) }
                continuation.resume()
            }
        }
    }
}

func withStillServer(
    answerBytes: Int,
    configure: (inout HTTPServerConfiguration) -> Void = { _ in },
    routes: (inout Router) -> Void = { _ in },
    _ body: (StillServer) async throws -> Void
) async throws {
    let loop = try EventLoop(name: "still")
    var router = Router()
    let answer = [UInt8](repeating: UInt8(ascii: "x"), count: answerBytes)
    router.on(.get, "/") { _ in HTTPServerResponse(status: 200, body: answer) }
    routes(&router)
    let metrics = Metrics()
    var configuration = HTTPServerConfiguration(host: "127.0.0.1", port: 0)
    configure(&configuration)
    let server = ServerLoop(
        loop: loop,
        configuration: configuration,
        router: router,
        limits: ConnectionLimits(configuration),
        instruments: ServerMetrics(metrics),
        log: .disabled
    )
    let port = try await withCheckedThrowingContinuation {
        (continuation: CheckedContinuation<Int, any Error>) in
        loop.execute {
            continuation.resume(
                with: Result {
                    let port = try server.listen(port: 0, sharesPort: false, tls: nil)
                    server.stopClock()
                    return port
                }
            )
        }
    }
    let result: Result<Void, any Error>
    do {
        try await body(StillServer(loop: loop, server: server, metrics: metrics, port: port))
        result = .success(())
    } catch {
        result = .failure(error)
    }
    await withCheckedContinuation { continuation in
        loop.execute { server.stop(within: .milliseconds(200)) { continuation.resume() } }
    }
    await loop.stop()
    try result.get()
}
