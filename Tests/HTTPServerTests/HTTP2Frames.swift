import Support

/// One HTTP/2 frame, written and parsed by hand: libnghttp2 talking to itself proves little.
struct Frame: Equatable, CustomStringConvertible {
    enum Kind: UInt8 {
        case data = 0
        case headers = 1
        case reset = 3
        case settings = 4
        case ping = 6
        case goaway = 7
        case windowUpdate = 8
        case continuation = 9
    }

    static let endStream: UInt8 = 1
    static let endHeaders: UInt8 = 4

    let kind: UInt8
    let flags: UInt8
    let stream: Int
    let payload: [UInt8]

    init(_ kind: Kind, flags: UInt8 = 0, stream: Int = 0, _ payload: [UInt8] = []) {
        self.init(kind: kind.rawValue, flags: flags, stream: stream, payload)
    }

    init(kind: UInt8, flags: UInt8 = 0, stream: Int = 0, _ payload: [UInt8]) {
        self.kind = kind
        self.flags = flags
        self.stream = stream
        self.payload = payload
    }

    var description: String { "\(kind)/\(flags) on \(stream): \(payload.count) bytes" }

    func isA(_ kind: Kind) -> Bool { self.kind == kind.rawValue }

    var endsStream: Bool { flags & Self.endStream != 0 }

    /// Returns a number of four bytes in the payload.
    func number(at offset: Int) -> Int {
        payload[offset..<offset + 4].reduce(0) { $0 << 8 | Int($1) }
    }

    var bytes: [UInt8] {
        [UInt8](bigEndianBytes(payload.count).dropFirst()) + [kind, flags]
            + bigEndianBytes(stream) + payload
    }

    /// Removes the complete frames at the start of `bytes`.
    static func take(from bytes: inout [UInt8]) -> [Frame] {
        var frames: [Frame] = []
        while bytes.count >= 9 {
            let length = bytes[0..<3].reduce(0) { $0 << 8 | Int($1) }
            guard bytes.count >= 9 + length else { break }
            let stream = bytes[5..<9].reduce(0) { $0 << 8 | Int($1) } & 0x7FFF_FFFF
            frames.append(
                Frame(
                    kind: bytes[3],
                    flags: bytes[4],
                    stream: stream,
                    Array(bytes[9..<9 + length])
                )
            )
            bytes.removeFirst(9 + length)
        }
        return frames
    }
}

func bigEndianBytes(_ number: Int) -> [UInt8] {
    [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: number >> $0) }
}

/// Encodes a header block of literals: no Huffman code, no table.
func headerBlock(_ fields: [(String, String)]) -> [UInt8] {
    fields.flatMap { name, value in
        [0] + text(name) + text(value)
    }
}

private func text(_ text: String) -> [UInt8] {
    let bytes = Array(text.utf8)
    guard bytes.count >= 127 else { return [UInt8(bytes.count)] + bytes }
    // RFC 7541 section 5.1: a number beyond seven bits continues in groups of seven.
    var rest = bytes.count - 127
    var length: [UInt8] = [127]
    while rest >= 128 {
        length.append(UInt8(rest & 127) | 128)
        rest >>= 7
    }
    return length + [UInt8(rest)] + bytes
}

let clientPreface = Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8) + Frame(.settings).bytes

func requestHead(
    _ stream: Int,
    _ method: String,
    _ path: String,
    ends: Bool = true,
    _ more: [(String, String)] = []
) -> Frame {
    let fields = [
        (":method", method), (":scheme", "http"), (":authority", "a"), (":path", path),
    ]
    return Frame(
        .headers,
        flags: Frame.endHeaders | (ends ? Frame.endStream : 0),
        stream: stream,
        headerBlock(fields + more)
    )
}

/// An HTTP/2 client of frames over a plain socket.
final class FrameWire {
    private let wire: Wire
    private var buffer: [UInt8] = []
    private var frames: [Frame] = []

    /// Connects with prior knowledge.
    init(port: Int) async throws {
        wire = try Wire(port: port)
        try await wire.send(clientPreface)
    }

    func send(_ frames: Frame...) async throws { try await send(frames) }

    func send(_ frames: [Frame]) async throws { try await wire.send(frames.flatMap(\.bytes)) }

    func endOutput() { wire.endOutput() }

    /// Returns the first matching frame among those not taken yet.
    func next(_ kind: Frame.Kind, stream: Int? = nil) async throws -> Frame {
        while true {
            if let index = frames.firstIndex(where: {
                $0.isA(kind) && (stream == nil || $0.stream == stream)
            }) {
                return frames.remove(at: index)
            }
            let part = try await wire.receive()
            guard !part.isEmpty else {
                throw TestFailure("ended without a \(kind); left: \(frames)")
            }
            buffer += part
            frames += Frame.take(from: &buffer)
        }
    }

    /// Returns the complete body of a response.
    func body(of stream: Int) async throws -> String {
        var body: [UInt8] = []
        while true {
            let frame = try await next(.data, stream: stream)
            body += frame.payload
            if frame.endsStream { return String(decoding: body, as: UTF8.self) }
        }
    }

    /// Returns the remaining frames until the server ends its side.
    func rest() async throws -> [Frame] {
        buffer += try await wire.receiveAll()
        defer { frames = [] }
        return frames + Frame.take(from: &buffer)
    }

    func close() { wire.close() }
}
