/// Reads the bytes of one client, in pieces of any size. Pure: no clock, no I/O.
///
/// wslay parses the frames. It allocates for each frame of a message, and validates the reason of a
/// close frame piece by piece; so this reader limits the frames of a message, and passes each
/// control frame to wslay whole.
struct WebSocketReader {
    /// The limit of the frames of a message; beyond it the socket is closed with 1008.
    static let maximumFramesPerMessage = 256
    /// The size of the frames that a client may make of a large message.
    private static let leastFrameBytes = 4 << 10

    private let maximumMessageBytes: Int
    private let hold: ((Int) -> Bool)?
    private var scanner: WebSocketFrameScanner
    /// Exists only between the first and the last byte of a message.
    private var codec: WebSocketCodec?
    private var hasEnded = false

    /// Makes a reader; the parameters are those of `WebSocketCodec`.
    init(maximumMessageBytes: Int, hold: ((Int) -> Bool)? = nil) {
        self.maximumMessageBytes = maximumMessageBytes
        self.hold = hold
        scanner = WebSocketFrameScanner(
            maximumFrames: max(
                Self.maximumFramesPerMessage,
                maximumMessageBytes / Self.leastFrameBytes
            )
        )
    }

    /// Whether no message has begun.
    var isIdle: Bool { codec == nil }

    /// Reads the next bytes.
    ///
    /// - Parameter bytes: Any number of bytes; those that must be kept are copied.
    /// - Returns: The messages that end in these bytes; nothing after the end.
    mutating func receive(_ bytes: UnsafeRawBufferPointer) -> WebSocketCodec.Output {
        var output = WebSocketCodec.Output()
        var rest = unsafe bytes
        while !hasEnded, let piece = unsafe scanner.next(&rest) {
            switch unsafe piece {
            case .data(let bytes): unsafe parse(bytes, &output)
            case .control(let frame): unsafe frame.withUnsafeBytes { unsafe parse($0, &output) }
            case .violation(let code): end(with: code, &output)
            }
        }
        if scanner.isAtBoundary || hasEnded { codec = nil }
        return output
    }

    private mutating func parse(
        _ bytes: UnsafeRawBufferPointer,
        _ output: inout WebSocketCodec.Output
    ) {
        if codec == nil {
            codec = WebSocketCodec(maximumMessageBytes: maximumMessageBytes, hold: hold)
        }
        guard let codec else { return end(with: 1011, &output) }
        let part = unsafe codec.receive(bytes)
        output.messages += part.messages
        output.pings += part.pings
        output.bytes += part.bytes
        output.closeCode = part.closeCode
        hasEnded = part.closeCode != nil
    }

    private mutating func end(with code: UInt16, _ output: inout WebSocketCodec.Output) {
        output.bytes += WebSocketFrame.close(code).bytes
        output.closeCode = Int(code)
        hasEnded = true
    }
}

/// Splits a client's bytes into data and control frames, which must be masked. Pure.
struct WebSocketFrameScanner {
    @unsafe enum Piece {
        /// Bytes of data frames.
        case data(UnsafeRawBufferPointer)
        /// One control frame.
        case control([UInt8])
        /// A violation of the protocol, with the code for the close frame.
        case violation(UInt16)
    }

    private let maximumFrames: Int
    /// The beginning of a data frame's header, or of a control frame, until it is complete.
    private var begun: [UInt8] = []
    /// The payload bytes of a data frame that have not arrived.
    private var remaining: UInt64 = 0
    private var isWithinMessage = false
    private var frameCount = 0
    private var violation: UInt16?

    init(maximumFrames: Int = WebSocketReader.maximumFramesPerMessage) {
        self.maximumFrames = maximumFrames
    }

    /// Whether no frame has begun, and no message waits for its next frame.
    var isAtBoundary: Bool { begun.isEmpty && remaining == 0 && !isWithinMessage }

    /// Takes bytes from the front, up to the next change between data and control frames.
    ///
    /// - Parameter bytes: The unread bytes; those taken are removed.
    /// - Returns: `nil` when they do not complete anything.
    mutating func next(_ bytes: inout UnsafeRawBufferPointer) -> Piece? {
        if let violation { return unsafe .violation(violation) }
        guard let first = unsafe bytes.first else { return nil }
        if remaining == 0, (begun.first ?? first) & 0x08 != 0 { return unsafe control(&bytes) }
        let run = unsafe bytes
        var index = 0
        var headerStart = 0
        while index < run.count, violation == nil {
            if remaining > 0 {
                let step = Int(min(remaining, UInt64(run.count - index)))
                remaining -= UInt64(step)
                index += step
            } else {
                let byte = unsafe run[index]
                if begun.isEmpty {
                    if byte & 0x08 != 0 { break }
                    headerStart = index
                }
                begun.append(byte)
                index += 1
                readHeader()
            }
        }
        unsafe bytes = UnsafeRawBufferPointer(rebasing: run[index...])
        if let violation {
            if headerStart == 0 { return unsafe .violation(violation) }
            index = headerStart
        }
        return unsafe .data(UnsafeRawBufferPointer(rebasing: run[..<index]))
    }

    /// Reads the header of a data frame, once it is complete.
    private mutating func readHeader() {
        guard begun.count >= 2 else { return }
        guard begun[1] & 0x80 != 0 else { return violation = 1002 }
        let length = begun[1] & 0x7f
        let extra = length == 126 ? 2 : length == 127 ? 8 : 0
        guard begun.count == 2 + extra + 4 else { return }
        remaining =
            extra == 0
            ? UInt64(length) : begun[2..<(2 + extra)].reduce(0) { $0 << 8 | UInt64($1) }
        frameCount = isWithinMessage ? frameCount + 1 : 1
        isWithinMessage = begun[0] & 0x80 == 0
        begun = []
        if frameCount > maximumFrames { violation = 1008 }
    }

    private mutating func control(_ bytes: inout UnsafeRawBufferPointer) -> Piece? {
        while let byte = unsafe bytes.first {
            unsafe bytes = UnsafeRawBufferPointer(rebasing: bytes.dropFirst())
            begun.append(byte)
            guard begun.count >= 2 else { continue }
            let length = begun[1] & 0x7f
            guard begun[1] & 0x80 != 0, length < 126 else {
                violation = 1002
                return unsafe .violation(1002)
            }
            guard begun.count == 2 + 4 + Int(length) else { continue }
            defer { begun = [] }
            return unsafe .control(begun)
        }
        return nil
    }
}
