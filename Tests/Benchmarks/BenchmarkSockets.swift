internal import EventLoop
internal import HTTPServer

/// Serves echoing WebSockets at `/` until SIGTERM; its only line is the port.
/// `idle_sockets.py` opens them, and reads this process' memory.
///
/// - Throws: What the server throws at its start.
func serveSockets() async throws {
    let loop = try EventLoop(name: "bench")
    var configuration = HTTPServerConfiguration(host: "127.0.0.1", port: 0)
    configuration.maximumConnections = 100_000
    let handler = Echo()
    let server = try HTTPServer(configuration, loops: [loop]) { _ in
        var router = Router()
        router.on(.get, "/") { request in
            .upgrade(try WebSocketHandshake(request), subprotocol: nil, to: handler)
        }
        return router
    }
    let port = try await server.start().first?.port ?? 0
    await announce(String(port), untilTerminated: loop)
    await server.stop(within: .seconds(1))
    await loop.stop()
}

private final class Echo: WebSocketHandler {
    func opened(_ socket: WebSocket) {}
    func pinged(_ socket: WebSocket, count: Int) {}
    func closed(_ socket: WebSocket, code: Int) {}

    func received(_ message: WebSocketMessage, on socket: WebSocket) {
        switch message {
        case .text(let bytes): socket.send(.text(bytes))
        case .binary(let bytes): socket.send(.binary(bytes))
        }
    }
}
