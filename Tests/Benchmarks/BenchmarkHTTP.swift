internal import EventLoop
internal import Glibc
internal import HTTPServer

/// Serves a constant response on a free port of this machine until SIGTERM; its only line is the
/// port. `deploy/bench` sends the load, and reads this process' CPU time and memory.
///
/// `/` answers at once, to GET and POST; `/suspends` waits for the loop first.
///
/// - Parameter bytes: The length of the response; `nil` for the minimum.
/// - Throws: The errors of the server's start.
func serveHTTP(bytes: Int? = nil) async throws {
    let loop = try EventLoop(name: "bench")
    var configuration = HTTPServerConfiguration(host: "127.0.0.1", port: 0)
    configuration.idleTimeout = .seconds(600)
    let server = try HTTPServer(configuration, loops: [loop]) { loop in
        let answer = HTTPServerResponse(
            status: 200,
            headers: ["Content-Type": "application/json"],
            body: bytes.map { [UInt8](repeating: UInt8(ascii: "x"), count: $0) }
                ?? Array(#"{"status":"ok"}"#.utf8)
        )
        var router = Router()
        router.on(.get, "/") { _ in answer }
        router.on(.post, "/") { _ in answer }
        router.on(.get, "/suspends") { _ in
            await unsafe withUnsafeContinuation { continuation in
                loop.execute { unsafe continuation.resume() }
            }
            return answer
        }
        return router
    }
    let port = try await server.start().first?.port ?? 0
    await announce(String(port), untilTerminated: loop)
    await server.stop(within: .seconds(1))
    await loop.stop()
}

/// Prints one line, and returns at SIGTERM.
func announce(_ line: String, untilTerminated loop: EventLoop) async {
    await withCheckedContinuation { (stopped: CheckedContinuation<Void, Never>) in
        loop.execute {
            var isStopped = false
            _ = loop.onSignal(SIGTERM) {
                if !isStopped { stopped.resume() }
                isStopped = true
            }
            print(line)
            fflush(nil)
        }
    }
}
