import Observability
import Support
import Testing

@testable import HTTPServer

/// Sockets that end by TCP alone, for clients that a close code may harm, and the memory of large
/// messages.
@Suite(.timeLimit(.minutes(1)))
struct WebSocketEndTests {
    private func limits(messageBytes: Int = 1000) -> WebSocketLimits {
        var limits = WebSocketLimits()
        limits.messageBytes = messageBytes
        limits.endsWithoutClose = true
        return limits
    }

    /// Nothing follows the answers to what was valid: no close frame, and no reset.
    @Test func noEndHasACloseFrame() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes(limits())) { server in
            let large = SocketFrame(SocketFrame.binary, [UInt8](repeating: 0, count: 1001))
            let parts =
                SocketFrame(SocketFrame.binary, [UInt8](repeating: 0, count: 900), isFinal: false)
                .bytes() + SocketFrame(0, [UInt8](repeating: 0, count: 101)).bytes()
            for bytes in [
                SocketFrame.text("x").bytes(mask: nil),
                SocketFrame(3).bytes(),
                SocketFrame(SocketFrame.text, [0xff]).bytes(),
                large.bytes(),
                parts,
                SocketFrame.close(1005).bytes(),
                SocketFrame.close(1000).bytes(),
                SocketFrame.close(4002).bytes(),
                SocketFrame.text("close 1009 too large").bytes(),
            ] {
                let socket = try await SocketWire(port: server.port)
                defer { socket.close() }
                try await socket.send(SocketFrame.text("ok").bytes() + bytes)
                #expect(try await socket.rest() == [.text("ok")])
                #expect(await handler.end() == 1006)
            }
        }
    }

    @Test func aStopSendsNoCloseFrame() async throws {
        let handler = EchoHandler()
        try await withServer(routes: handler.routes(limits())) { server in
            let socket = try await SocketWire(port: server.port)
            defer { socket.close() }
            try await socket.send(.text("hello"))
            #expect(try await socket.next() == .text("hello"))
            async let stop: Void = server.server.stop(within: .seconds(30))
            #expect(try await socket.rest() == [])
            socket.wire.endOutput()
            await stop
        }
    }

    /// A large message is counted while it arrives, and no longer once its handler has it.
    @Test func theMemoryOfALargeMessageIsAskedFor() async throws {
        let handler = EchoHandler()
        let asked = Asked(limit: 1 << 20)
        var limits = limits(messageBytes: 4 << 20)
        limits.queuedBytes = 8 << 20
        limits.hold = { asked.hold($0) }
        try await withServer(routes: handler.routes(limits)) { server in
            let fits = try await SocketWire(port: server.port)
            defer { fits.close() }
            let text = String(repeating: "x", count: 1 << 20)
            try await fits.send(.text(text))
            #expect(try await fits.next() == .text(text))
            #expect(asked.most > 900_000 && asked.now == 0)
            let tooMuch = try await SocketWire(port: server.port)
            defer { tooMuch.close() }
            try? await tooMuch.send(.text(text + text))
            #expect(try await tooMuch.rest() == [])
            #expect(asked.now == 0)
        }
    }
}

/// The memory that sockets ask for.
private final class Asked: Sendable {
    private let limit: Int
    private let lock = Lock()
    nonisolated(unsafe) private var held = 0
    nonisolated(unsafe) private var highest = 0

    init(limit: Int) { self.limit = limit }

    var now: Int { lock.withLock { unsafe held } }
    var most: Int { lock.withLock { unsafe highest } }

    func hold(_ count: Int) -> Bool {
        lock.withLock {
            guard count <= limit else { return false }
            unsafe held = count
            unsafe highest = max(unsafe highest, count)
            return true
        }
    }
}
