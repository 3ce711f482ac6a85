/// A strict HTTP/1.1 request parser: a value without a socket, bytes in, events out.
///
/// States: a request line, header lines, then a body of known length or of chunks, then trailer
/// lines, then the next request. It refuses everything that RFC 9112 lets a lenient recipient
/// accept: request smuggling needs two recipients that disagree about the end of a request. A
/// failure is final: no byte after it is parsed.
struct HTTP1Parser {
    /// The most memory that an empty buffer may hold: thousands of connections wait.
    static let keptBytes = 4 * 1024
    /// The most bytes of a target that are reported: enough to find the surface by its path.
    private static let shownTargetBytes = 1024

    enum Event {
        case head(HTTP1Head)
        /// The request is complete; its trailers are dropped.
        case end(body: [UInt8])
        case failure(HTTPProblem)
    }

    private enum State {
        case requestLine
        case headerLines
        case body(remaining: Int)
        case chunkSize
        case chunkData(remaining: Int)
        case chunkEnd
        case trailers
        case ended
        case failed
    }

    let limits: HTTP1Limits
    /// The limit of the body whose head was just returned; set it before asking for the next event.
    var maximumBodyBytes = Int.max

    private var state = State.requestLine
    private var buffer: [UInt8] = []
    /// The start of the unread part of `buffer`, and the index up to which that part was searched
    /// for a line end.
    private var position = 0
    private var scanned = 0
    private var headBytes = 0
    private var skippedEmptyLine = false
    private var partial = PartialHead()
    private var body: [UInt8] = []
    /// The bytes of the current body that were taken before its end.
    private var takenBytes = 0
    /// The start of the current request line.
    private var requestStart = 0
    /// The known beginning of the target of a request whose head could not be read.
    private(set) var failedTarget: String?

    init(limits: HTTP1Limits) { self.limits = limits }

    /// Whether a part of a request has arrived, but not its end.
    var isInsideRequest: Bool {
        switch state {
        case .requestLine: position < buffer.count
        case .ended, .failed: false
        case .headerLines, .body, .chunkSize, .chunkData, .chunkEnd, .trailers: true
        }
    }

    /// Whether a head is being read, not a body.
    var isInsideHead: Bool {
        switch state {
        case .requestLine, .headerLines: true
        case .body, .chunkSize, .chunkData, .chunkEnd, .trailers, .ended, .failed: false
        }
    }

    /// The bytes received and not parsed yet.
    var bufferedBytes: Int { buffer.count - position }

    /// The received bytes of the current body.
    var bodyBytes: Int { takenBytes + body.count }

    /// Takes the received part of the current body; `Event.end` then has only the rest.
    mutating func takeBody() -> [UInt8] {
        let part = body
        takenBytes += part.count
        body = []
        return part
    }

    /// The unused capacity of the buffer.
    var spareBytes: Int { buffer.capacity - bufferedBytes }

    mutating func append(_ bytes: some Sequence<UInt8>) {
        if case .failed = state { return }
        if position == buffer.count {
            buffer.removeAll(keepingCapacity: true)
            scanned -= position
            position = 0
        } else if position > 64 * 1024 {
            buffer.removeFirst(position)
            scanned -= position
            position = 0
        }
        buffer.append(contentsOf: bytes)
    }

    /// Returns the next event, or nil until more bytes arrive.
    mutating func next() -> Event? {
        do throws(HTTPProblem) {
            let event = try step()
            if position == buffer.count, buffer.capacity > Self.keptBytes { releaseBuffer() }
            return event
        } catch {
            failedTarget = beginningOfTarget()
            state = .failed
            buffer = []
            body = []
            position = 0
            scanned = 0
            return .failure(error)
        }
    }

    private mutating func releaseBuffer() {
        buffer = []
        scanned = 0
        position = 0
    }

    /// Takes the bytes behind the last request, and reads no more.
    mutating func takeRest() -> [UInt8] {
        let rest = Array(buffer[position...])
        discard()
        return rest
    }

    /// Stops parsing, and frees the received bytes before the connection closes.
    mutating func discard() {
        state = .failed
        body = []
        releaseBuffer()
    }

    private mutating func step() throws(HTTPProblem) -> Event? {
        while true {
            switch state {
            case .requestLine:
                requestStart = position
                guard let line = try takeLine() else { return nil }
                if line.isEmpty, !skippedEmptyLine {
                    skippedEmptyLine = true
                    continue
                }
                partial = try PartialHead(requestLine: line, limits: limits)
                state = .headerLines
            case .headerLines:
                guard let line = try takeLine() else { return nil }
                guard line.isEmpty else {
                    try partial.add(headerLine: line, limits: limits)
                    continue
                }
                return .head(try finishHead())
            case .body(let remaining):
                guard remaining <= maximumBodyBytes - bodyBytes else { throw tooLarge }
                let count = min(remaining, buffer.count - position)
                body.append(contentsOf: buffer[position..<position + count])
                position += count
                state = remaining == count ? .ended : .body(remaining: remaining - count)
                if remaining > count { return nil }
            case .chunkSize:
                guard let line = try takeLine() else { return nil }
                headBytes = 0
                let size = try chunkSize(line)
                guard size <= maximumBodyBytes - bodyBytes else { throw tooLarge }
                state = size == 0 ? .trailers : .chunkData(remaining: size)
            case .chunkData(let remaining):
                let count = min(remaining, buffer.count - position)
                body.append(contentsOf: buffer[position..<position + count])
                position += count
                state = remaining == count ? .chunkEnd : .chunkData(remaining: remaining - count)
                if remaining > count { return nil }
            case .chunkEnd:
                guard let line = try takeLine() else { return nil }
                headBytes = 0
                guard line.isEmpty else { throw bad("a chunk is longer than its size says") }
                state = .chunkSize
            case .trailers:
                guard let line = try takeLine() else { return nil }
                if line.isEmpty { state = .ended } else { try checkTrailer(line) }
            case .ended:
                let whole = body
                body = []
                takenBytes = 0
                headBytes = 0
                skippedEmptyLine = false
                maximumBodyBytes = .max
                state = .requestLine
                return .end(body: whole)
            case .failed:
                return nil
            }
        }
    }

    // MARK: Lines

    /// Takes one line without its CRLF, or nil until it is complete. It rejects control characters
    /// except tab, and a CR or LF alone. It never looks beyond the head's limit, so the result does
    /// not depend on how the network split the bytes.
    private mutating func takeLine() throws(HTTPProblem) -> ArraySlice<UInt8>? {
        let end = min(buffer.count, position + lineBound - headBytes)
        var index = max(scanned, position)
        while index < end {
            let byte = buffer[index]
            if byte == UInt8(ascii: "\r") {
                guard index + 1 < end else { break }
                guard buffer[index + 1] == UInt8(ascii: "\n") else {
                    throw bad("a carriage return without a line feed")
                }
                let line = buffer[position..<index]
                headBytes += line.count + 2
                position = index + 2
                scanned = position
                return line
            }
            guard byte >= 0x20 || byte == UInt8(ascii: "\t"), byte != 0x7F else {
                throw bad(
                    byte == UInt8(ascii: "\n")
                        ? "a line feed without a carriage return" : "a control character"
                )
            }
            index += 1
        }
        scanned = index
        guard end == buffer.count else { throw lineTooLong }
        return nil
    }

    /// The most bytes that a head may have at the end of the current line, including its CRLF.
    private var lineBound: Int {
        // The method and the version of a request line are far shorter than these 64 bytes.
        if case .requestLine = state { return min(limits.targetBytes + 64, limits.headBytes) }
        return limits.headBytes
    }

    private var lineTooLong: HTTPProblem {
        if case .requestLine = state, limits.targetBytes + 64 <= limits.headBytes {
            return HTTPProblem(status: 414, detail: "the target is too long")
        }
        return HTTPProblem(status: 431, detail: "the head is too large")
    }

    /// Returns the beginning of the target while a head is being read.
    private func beginningOfTarget() -> String? {
        switch state {
        case .headerLines: return partial.target
        case .requestLine:
            let line = buffer[requestStart...].prefix(Self.shownTargetBytes)
            guard let blank = line.firstIndex(of: UInt8(ascii: " ")) else { return nil }
            let target = line[(blank + 1)...].prefix { $0 > 0x20 && $0 < 0x7F }
            return String(decoding: target, as: UTF8.self)
        case .body, .chunkSize, .chunkData, .chunkEnd, .trailers, .ended, .failed: return nil
        }
    }

    // MARK: Heads and bodies

    private mutating func finishHead() throws(HTTPProblem) -> HTTP1Head {
        let framing = try partial.framing()
        let head = try partial.finish(framing)
        partial = PartialHead()
        headBytes = 0
        switch framing {
        case .none:
            state = .ended
        case .length(let length):
            state = .body(remaining: length)
        case .chunked:
            state = .chunkSize
        }
        return head
    }

    /// Parses `1*HEX`, then an extension, which is ignored, or the end of the line.
    private func chunkSize(_ line: ArraySlice<UInt8>) throws(HTTPProblem) -> Int {
        var size = 0
        var digits = 0
        for byte in line {
            guard let value = hexValue(byte) else { break }
            digits += 1
            guard digits <= 15 else { throw bad("a chunk size is too long") }
            size = size << 4 | Int(value)
        }
        guard digits > 0 else { throw bad("a chunk has no size") }
        guard line.count <= 256 else { throw bad("a chunk's extension is too long") }
        let rest = line.dropFirst(digits)
        guard rest.isEmpty || rest.first == UInt8(ascii: ";") else {
            throw bad("a chunk size is followed by something else")
        }
        return size
    }

    private func checkTrailer(_ line: ArraySlice<UInt8>) throws(HTTPProblem) {
        var dropped = PartialHead()
        try dropped.add(headerLine: line, limits: limits)
    }

    private var tooLarge: HTTPProblem {
        HTTPProblem(status: 413, detail: "the body is larger than \(maximumBodyBytes) bytes")
    }
}
