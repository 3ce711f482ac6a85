/// Parses a `multipart/form-data` body (RFC 7578) as it arrives: a value without a socket, bytes in,
/// events out. It is as strict as browsers are: no preamble, no padding, no nested parts.
///
/// Bounds: a part's head has at most 4 KiB, a form at most 64 parts. Between two calls it holds no more
/// than the bytes that were appended, and a boundary's length of earlier ones.
package struct MultipartParser: Sendable {
    package enum Event: Equatable, Sendable {
        /// A part begins: a field, or a file if it has a file name.
        case part(name: String, fileName: String?)
        /// The next bytes of the part, at least one.
        case bytes([UInt8])
        /// The part has ended.
        case partEnd
        /// The form has ended; what follows is ignored.
        case end
    }

    private enum State {
        case content
        case delimiter
        case head
        case ended
    }

    private static let headBytes = 4 * 1024
    private static let maximumParts = 64

    /// Line end, two hyphens, and the boundary.
    private let delimiter: [UInt8]
    private var state = State.content
    private var isInPart = false
    private var parts = 0
    /// The line end before the first boundary is not sent.
    private var buffer = Array("\r\n".utf8)
    private var position = 0

    /// Makes a parser; `nil` if the content type is not a form with a boundary of 1 to 70 characters.
    package init?(contentType: String) {
        var fields = contentType.split(separator: ";").map { Self.trimmed($0) }
        guard !fields.isEmpty, fields.removeFirst().lowercased() == "multipart/form-data" else {
            return nil
        }
        let named = fields.filter { $0.lowercased().hasPrefix("boundary=") }
        guard named.count == 1 else { return nil }
        var boundary = named[0].dropFirst("boundary=".count)
        if boundary.count >= 2, boundary.first == "\"", boundary.last == "\"" {
            boundary = boundary.dropFirst().dropLast()
        }
        let allowed = boundary.utf8.allSatisfy { byte in
            isTokenByte(byte) || "()/:=?,@".utf8.contains(byte)
        }
        guard (1...70).contains(boundary.utf8.count), allowed else { return nil }
        delimiter = Array("\r\n--".utf8) + Array(boundary.utf8)
    }

    private static func trimmed(_ text: Substring) -> String {
        var text = text.drop { $0 == " " || $0 == "\t" }
        while text.last == " " || text.last == "\t" { text.removeLast() }
        return String(text)
    }

    package mutating func append(_ bytes: [UInt8]) {
        if case .ended = state { return }
        buffer.removeFirst(position)
        position = 0
        buffer += bytes
    }

    /// Returns the next event, or `nil` until more bytes arrive.
    ///
    /// - Throws: 400 if the body is not such a form.
    package mutating func next() throws(HTTPProblem) -> Event? {
        while true {
            switch state {
            case .ended: return nil
            case .content:
                if let event = try content() { return event }
                guard case .delimiter = state else { return nil }
                if isInPart {
                    isInPart = false
                    return .partEnd
                }
            case .delimiter:
                guard buffer.count - position >= 2 else { return nil }
                let end = buffer[position..<(position + 2)]
                position += 2
                if end.elementsEqual("--".utf8) {
                    state = .ended
                    (buffer, position) = ([], 0)
                    return .end
                }
                guard end.elementsEqual("\r\n".utf8) else { throw Self.broken }
                parts += 1
                guard parts <= Self.maximumParts else { throw Self.broken }
                state = .head
            case .head:
                guard let event = try head() else { return nil }
                return event
            }
        }
    }

    /// Returns the bytes before the next delimiter, and passes the delimiter once it is reached.
    private mutating func content() throws(HTTPProblem) -> Event? {
        let found = delimiterStart()
        let end = found ?? max(position, buffer.count - delimiter.count + 1)
        if end > position {
            guard isInPart else { throw Self.broken }
            let bytes = Array(buffer[position..<end])
            position = end
            return .bytes(bytes)
        }
        if found != nil {
            position += delimiter.count
            state = .delimiter
        }
        return nil
    }

    private func delimiterStart() -> Int? {
        var index = position
        while index + delimiter.count <= buffer.count {
            guard let start = buffer[index...].firstIndex(of: delimiter[0]),
                start + delimiter.count <= buffer.count
            else { return nil }
            if buffer[start..<(start + delimiter.count)].elementsEqual(delimiter) { return start }
            index = start + 1
        }
        return nil
    }

    private mutating func head() throws(HTTPProblem) -> Event? {
        let limit = min(buffer.count, position + Self.headBytes)
        let end = Array("\r\n\r\n".utf8)
        var index = position
        while index + end.count <= limit {
            if buffer[index..<(index + end.count)].elementsEqual(end) {
                let lines = String(decoding: buffer[position..<index], as: UTF8.self)
                position = index + end.count
                return try begin(lines)
            }
            index += 1
        }
        guard limit == buffer.count, limit < position + Self.headBytes else { throw Self.broken }
        return nil
    }

    private mutating func begin(_ lines: String) throws(HTTPProblem) -> Event {
        let name = "content-disposition:"
        let found = lines.split(separator: "\r\n").filter { $0.lowercased().hasPrefix(name) }
        guard found.count == 1 else { throw Self.broken }
        let fields = Self.parameters(found[0].dropFirst(name.utf8.count))
        guard fields["form-data"] != nil, let field = fields["name"] else { throw Self.broken }
        isInPart = true
        state = .content
        return .part(name: field, fileName: fields["filename"])
    }

    /// Parses `form-data; name="a"; filename="b.csv"`. Browsers send quotation marks in names as `%22`, other
    /// clients as `\"`.
    private static func parameters(_ text: Substring) -> [String: String] {
        var fields: [String: String] = [:]
        var rest = text
        while true {
            rest = rest.drop { $0 == " " || $0 == ";" || $0 == "\t" }
            guard !rest.isEmpty else { return fields }
            let name = rest.prefix { $0 != "=" && $0 != ";" }
            rest = rest.dropFirst(name.count)
            var value = ""
            if rest.first == "=" {
                rest = rest.dropFirst()
                if rest.first == "\"" {
                    rest = rest.dropFirst()
                    while let character = rest.popFirst(), character != "\"" {
                        if character == "\\", rest.first == "\"" {
                            value.append(rest.removeFirst())
                        } else {
                            value.append(character)
                        }
                    }
                } else {
                    value = String(rest.prefix { $0 != ";" })
                    rest = rest.dropFirst(value.count)
                }
            }
            let key = trimmed(name).lowercased()
            if fields[key] == nil { fields[key] = value }
        }
    }

    private static let broken = HTTPProblem(status: 400, detail: "the form cannot be read")
}
