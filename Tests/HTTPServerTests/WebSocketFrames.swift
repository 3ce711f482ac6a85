import EventLoop
import Support

@testable import HTTPServer

/// One WebSocket frame, written as a client does and read as it comes from a server.
struct SocketFrame: Equatable, Sendable {
    static let continuation: UInt8 = 0
    static let text: UInt8 = 1
    static let binary: UInt8 = 2
    static let close: UInt8 = 8
    static let ping: UInt8 = 9
    static let pong: UInt8 = 10

    var opcode: UInt8
    var payload: [UInt8]
    var isFinal = true
    var reservedBits: UInt8 = 0

    init(_ opcode: UInt8, _ payload: [UInt8] = [], isFinal: Bool = true, reservedBits: UInt8 = 0) {
        self.opcode = opcode
        self.payload = payload
        self.isFinal = isFinal
        self.reservedBits = reservedBits
    }

    static func text(_ text: String, isFinal: Bool = true) -> SocketFrame {
        SocketFrame(Self.text, Array(text.utf8), isFinal: isFinal)
    }

    static func rest(_ text: String, isFinal: Bool = true) -> SocketFrame {
        SocketFrame(Self.continuation, Array(text.utf8), isFinal: isFinal)
    }

    static func close(_ code: Int, _ reason: [UInt8] = []) -> SocketFrame {
        SocketFrame(
            Self.close,
            [UInt8(truncatingIfNeeded: code >> 8), UInt8(truncatingIfNeeded: code)] + reason
        )
    }

    /// The frame as a client writes it, with the shortest length that holds its size or a longer one.
    func bytes(mask: [UInt8]? = [0x37, 0xfa, 0x21, 0x3d], lengthBytes: Int? = nil) -> [UInt8] {
        let size = payload.count
        let extra = lengthBytes ?? (size < 126 ? 0 : size < 65_536 ? 2 : 8)
        let short = extra == 0 ? UInt8(size) : extra == 2 ? 126 : 127
        var bytes = [(isFinal ? 0x80 : 0) | reservedBits << 4 | opcode]
        bytes.append((mask == nil ? 0 : 0x80) | short)
        bytes += (0..<extra).reversed().map { UInt8(truncatingIfNeeded: size >> (8 * $0)) }
        guard let mask else { return bytes + payload }
        bytes += mask
        return bytes + payload.enumerated().map { $1 ^ mask[$0 % 4] }
    }

    /// The code of a close frame; 1005 if it has none.
    var closeCode: Int? {
        guard opcode == Self.close else { return nil }
        return payload.count >= 2 ? Int(payload[0]) << 8 | Int(payload[1]) : 1005
    }

    /// Takes one frame of a server from the front; `nil` until it is whole.
    ///
    /// - Throws: For a mask, and for a length that is longer than it needs to be.
    static func take(from bytes: inout [UInt8]) throws -> SocketFrame? {
        guard bytes.count >= 2 else { return nil }
        guard bytes[1] & 0x80 == 0 else { throw TestFailure("a server's frame is masked") }
        let short = Int(bytes[1])
        let extra = short == 126 ? 2 : short == 127 ? 8 : 0
        guard bytes.count >= 2 + extra else { return nil }
        let size = extra == 0 ? short : bytes[2..<2 + extra].reduce(0) { $0 << 8 | Int($1) }
        guard extra == 0 || size >= (extra == 2 ? 126 : 65_536) else {
            throw TestFailure("a length of \(size) in \(extra) bytes")
        }
        guard bytes.count >= 2 + extra + size else { return nil }
        defer { bytes.removeFirst(2 + extra + size) }
        return SocketFrame(
            bytes[0] & 0x0f,
            Array(bytes[(2 + extra)..<(2 + extra + size)]),
            isFinal: bytes[0] & 0x80 != 0,
            reservedBits: bytes[0] >> 4 & 7
        )
    }

    static func all(in bytes: [UInt8]) throws -> [SocketFrame] {
        var rest = bytes
        var frames: [SocketFrame] = []
        while let frame = try take(from: &rest) { frames.append(frame) }
        guard rest.isEmpty else { throw TestFailure("half a frame: \(rest)") }
        return frames
    }
}

/// A client's WebSocket to a port of this machine, driven frame by frame.
final class SocketWire {
    let wire: Wire
    private(set) var head = ""
    private var pending: [UInt8] = []

    static func request(_ path: String = "/socket", _ fields: [String] = []) -> String {
        (["GET \(path) HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: websocket"]
            + ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="]
            + fields + ["", ""])
            .joined(separator: "\r\n")
    }

    /// Sends the handshake, with `early` in the same packet, and waits for 101.
    init(
        port: Int,
        _ path: String = "/socket",
        fields: [String] = [],
        early: [UInt8] = [],
        receiveBufferBytes: Int32? = nil
    ) async throws {
        wire = try Wire(port: port, receiveBufferBytes: receiveBufferBytes)
        try await wire.send(Array(Self.request(path, fields).utf8) + early)
        var bytes: [UInt8] = []
        while true {
            if let end = bytes.firstRange(of: Array("\r\n\r\n".utf8)) {
                head = String(decoding: bytes[..<end.upperBound], as: UTF8.self)
                pending = Array(bytes[end.upperBound...])
                break
            }
            let part = try await wire.receive()
            if part.isEmpty {
                throw TestFailure("no head: \(String(decoding: bytes, as: UTF8.self))")
            }
            bytes += part
        }
        guard head.hasPrefix("HTTP/1.1 101 ") else { throw TestFailure("refused: \(head)") }
    }

    func send(_ frames: SocketFrame...) async throws {
        try await wire.send(frames.flatMap { $0.bytes() })
    }

    func send(_ bytes: [UInt8]) async throws { try await wire.send(bytes) }

    /// - Returns: The next frame; `nil` once the server has ended its side.
    func next() async throws -> SocketFrame? {
        while true {
            if let frame = try SocketFrame.take(from: &pending) { return frame }
            let part = try await wire.receive()
            if part.isEmpty {
                guard pending.isEmpty else { throw TestFailure("half a frame: \(pending)") }
                return nil
            }
            pending += part
        }
    }

    /// All frames until the server ends its side.
    func rest() async throws -> [SocketFrame] {
        var frames: [SocketFrame] = []
        while let frame = try await next() { frames.append(frame) }
        return frames
    }

    /// The bytes until the server ends its side.
    func restBytes() async throws -> [UInt8] { try await pending + wire.receiveAll() }

    func close() { wire.close() }
}

/// Echoes messages and records the events. A text may be a command:
///
/// `close CODE REASON`, `abort`, `illegal` (C1 00, then the end), `ping`, `flood COUNT` (as many
/// messages of 16 KiB), `shared` (one encoded frame, twice), `silent …` (no answer).
final class EchoHandler: WebSocketHandler, @unchecked Sendable {
    enum Event: Equatable, Sendable {
        case opened(String?)
        case received(WebSocketMessage)
        case pinged(Int)
        case closed(Int)
    }

    private let channel = AsyncStream.makeStream(of: Event.self)
    private var sockets: [ObjectIdentifier: WebSocket] = [:]

    func opened(_ socket: WebSocket) {
        sockets[ObjectIdentifier(socket)] = socket
        channel.continuation.yield(.opened(socket.subprotocol))
    }

    func pinged(_ socket: WebSocket, count: Int) { channel.continuation.yield(.pinged(count)) }

    func closed(_ socket: WebSocket, code: Int) {
        sockets[ObjectIdentifier(socket)] = nil
        channel.continuation.yield(.closed(code))
    }

    func received(_ message: WebSocketMessage, on socket: WebSocket) {
        channel.continuation.yield(.received(message))
        switch message {
        case .binary(let bytes): socket.send(.binary(bytes))
        case .text(let bytes):
            let text = String(decoding: bytes, as: UTF8.self)
            let words = text.split(separator: " ", maxSplits: 2).map(String.init)
            switch words.first {
            case "close":
                let code = words.count > 1 ? UInt16(words[1]) ?? 1000 : 1000
                socket.close(code, words.count > 2 ? words[2] : "")
                // Not sent: nothing follows a close frame.
                socket.send(.text(Array("late".utf8)))
            case "abort": socket.abort()
            case "illegal": socket.end(sending: [0xc1, 0x00])
            case "ping": socket.ping()
            case "flood":
                let frame = WebSocketFrame.binary([UInt8](repeating: 120, count: 16 << 10))
                for _ in 0..<(Int(words[1]) ?? 0) { socket.send(frame) }
            case "shared":
                let frame = WebSocketFrame.text(bytes)
                socket.send(frame)
                socket.send(frame)
            case "silent": break
            default: socket.send(.text(bytes))
            }
        }
    }

    /// Closes every open socket; on the loop.
    func closeAll(_ code: UInt16) { for socket in sockets.values { socket.close(code) } }

    func next() async -> Event? {
        for await event in channel.stream { return event }
        return nil
    }

    /// The code of the next `closed`; other events before it are skipped.
    func end() async -> Int? {
        for await event in channel.stream {
            if case .closed(let code) = event { return code }
        }
        return nil
    }

    /// `/socket`; `/later`, which upgrades 50 ms late; `/own`, whose handler nothing else holds; and
    /// `/plain`, which is an ordinary route.
    func routes(
        _ limits: WebSocketLimits = WebSocketLimits(),
        subprotocols: [String] = ["b", "a"]
    ) -> @Sendable (inout Router, EventLoop) -> Void {
        { [self] router, loop in
            router.on(.get, "/socket") { request in
                let handshake = try WebSocketHandshake(request)
                return .upgrade(
                    handshake,
                    subprotocol: handshake.subprotocols.first { subprotocols.contains($0) },
                    limits: limits,
                    to: self
                )
            }
            router.on(.get, "/later") { request in
                let handshake = try WebSocketHandshake(request)
                try await loop.sleep(for: .milliseconds(50))
                return .upgrade(handshake, subprotocol: nil, limits: limits, to: self)
            }
            router.on(.get, "/own") { request in
                let handshake = try WebSocketHandshake(request)
                return .upgrade(handshake, subprotocol: nil, limits: limits, to: OwnHandler(self))
            }
            router.on(.get, "/plain") { _ in .text("plain") }
        }
    }
}

/// The handler of one socket; nothing but the socket holds it.
private final class OwnHandler: WebSocketHandler {
    private let echo: EchoHandler

    init(_ echo: EchoHandler) { self.echo = echo }

    func opened(_ socket: WebSocket) { echo.opened(socket) }
    func received(_ message: WebSocketMessage, on socket: WebSocket) {
        echo.received(message, on: socket)
    }
    func pinged(_ socket: WebSocket, count: Int) { echo.pinged(socket, count: count) }
    func closed(_ socket: WebSocket, code: Int) { echo.closed(socket, code: code) }
}
