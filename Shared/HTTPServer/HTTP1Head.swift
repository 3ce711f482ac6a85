struct HTTP1Limits: Sendable {
    var targetBytes: Int
    /// The limit for the request line and the header lines together; trailers count, too.
    var headBytes: Int
    var headerCount: Int
}

struct HTTP1Head {
    var method: HTTPMethod
    /// The target in origin form; `*` for OPTIONS.
    var target: String
    var version: HTTPVersion
    var headers: HTTPHeaders
    /// Whether the connection may serve another request after this one.
    var keepsAlive: Bool
    var expectsContinue: Bool
    var hasBody: Bool
}

/// The head of a request while its lines arrive, and the checks across its lines.
struct PartialHead {
    enum Framing {
        case none
        case length(Int)
        case chunked
    }

    private var method = HTTPMethod.get
    private(set) var target = ""
    private var authority: String?
    private var version = HTTPVersion.http11
    private var headers = HTTPHeaders()

    private static let methods = HTTPMethod.allCases.map {
        (name: Array($0.rawValue.utf8), method: $0)
    }

    init() {}

    /// Parses `METHOD SP target SP HTTP/1.1`, with exactly these blanks.
    init(requestLine line: ArraySlice<UInt8>, limits: HTTP1Limits) throws(HTTPProblem) {
        let blank = UInt8(ascii: " ")
        guard let first = line.firstIndex(of: blank), first > line.startIndex,
            let second = line[(first + 1)...].firstIndex(of: blank), second > first + 1,
            !line[(second + 1)...].contains(blank)
        else { throw bad("the request line is not a method, a target and a version") }
        let (name, path) = (line[..<first], line[(first + 1)..<second])
        guard name.allSatisfy(isTokenByte) else { throw bad("the method is not a token") }
        version = try Self.version(line[(second + 1)...])
        guard let known = Self.methods.first(where: { $0.name.elementsEqual(name) })?.method else {
            throw HTTPProblem(status: 501, detail: "the method is not known")
        }
        method = known
        guard path.count <= limits.targetBytes else {
            throw HTTPProblem(status: 414, detail: "the target is too long")
        }
        // No fragment, and no character that must be escaped.
        guard path.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: "#") }) else {
            throw bad("the target has a character that cannot be in it")
        }
        try setTarget(String(decoding: path, as: UTF8.self))
        headers.reserveCapacity(8)
    }

    private static func version(_ bytes: ArraySlice<UInt8>) throws(HTTPProblem) -> HTTPVersion {
        let text = String(decoding: bytes, as: UTF8.self)
        if text == "HTTP/1.1" { return .http11 }
        if text == "HTTP/1.0" { return .http10 }
        let digits = bytes.dropFirst(5)
        guard text.hasPrefix("HTTP/"), digits.count == 3,
            digits.enumerated().allSatisfy({ index, byte in
                index == 1
                    ? byte == UInt8(ascii: ".")
                    : (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
            })
        else { throw bad("the version cannot be read") }
        throw HTTPProblem(status: 505, detail: "the version is neither HTTP/1.0 nor HTTP/1.1")
    }

    private mutating func setTarget(_ text: String) throws(HTTPProblem) {
        if text.hasPrefix("/") {
            target = text
        } else if text == "*" {
            guard method == .options else { throw bad("only OPTIONS may ask for *") }
            target = text
        } else {
            let scheme = text.prefix(8).lowercased()
            let start = scheme.hasPrefix("http://") ? 7 : scheme == "https://" ? 8 : 0
            guard start > 0 else { throw bad("the target is neither a path nor an http URL") }
            let rest = text.dropFirst(start)
            let end = rest.firstIndex { $0 == "/" || $0 == "?" } ?? rest.endIndex
            authority = String(rest[..<end])
            guard isHost(rest[..<end].utf8) else { throw bad("invalid host in the target") }
            let path = String(rest[end...])
            target = path.hasPrefix("/") ? path : "/" + path
        }
    }

    /// Adds a `name: value` line. A name is a token up to its colon; a line that begins with a
    /// blank (obsolete line folding) is refused.
    mutating func add(
        headerLine line: ArraySlice<UInt8>,
        limits: HTTP1Limits
    ) throws(HTTPProblem) {
        guard headers.count < limits.headerCount else {
            throw HTTPProblem(status: 431, detail: "there are too many header fields")
        }
        guard let colon = line.firstIndex(of: UInt8(ascii: ":")), colon > line.startIndex,
            line[..<colon].allSatisfy(isTokenByte)
        else { throw bad("a header line is not a name, a colon and a value") }
        var value = line[(colon + 1)...].drop(while: isBlank)
        while let last = value.last, isBlank(last) { value.removeLast() }
        headers.add(
            String(decoding: line[..<colon], as: UTF8.self),
            decodeFieldValue(value)
        )
    }

    func framing() throws(HTTPProblem) -> Framing {
        let lengths = headers.first("content-length")
        let encodings = headers.first("transfer-encoding")
        guard let encoding = encodings.value else {
            guard let length = lengths.value else { return .none }
            guard lengths.count == 1 else { throw bad("there is more than one Content-Length") }
            guard !length.isEmpty,
                length.utf8.allSatisfy({ (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) })
            else { throw bad("the Content-Length is not a number") }
            guard let count = Int(length) else {
                throw HTTPProblem(status: 413, detail: "the body is larger than any limit")
            }
            return count == 0 ? .none : .length(count)
        }
        guard lengths.count == 0 else {
            throw bad("there are both a Transfer-Encoding and a Content-Length")
        }
        guard version == .http11 else { throw bad("HTTP/1.0 has no Transfer-Encoding") }
        guard encodings.count == 1, equalWithoutCase(encoding, "chunked") else {
            throw HTTPProblem(status: 501, detail: "the Transfer-Encoding is not chunked alone")
        }
        return .chunked
    }

    func finish(_ framing: Framing) throws(HTTPProblem) -> HTTP1Head {
        let hosts = headers.first("host")
        guard hosts.count <= 1 else { throw bad("there is more than one Host") }
        if let host = hosts.value {
            guard isHost(host.utf8) else { throw bad("invalid Host header") }
        } else if version == .http11 {
            throw bad("there is no Host")
        }
        var headers = headers
        if let authority { headers["Host"] = authority }

        let expectations = headers.first("expect")
        let expectsContinue =
            expectations.count == 1 && equalWithoutCase(expectations.value ?? "", "100-continue")
        guard expectations.count == 0 || expectsContinue else {
            throw HTTPProblem(status: 417, detail: "nothing but 100-continue can be expected")
        }
        let keepsAlive =
            version == .http11
            ? !headers.hasToken("close", in: "connection")
            : headers.hasToken("keep-alive", in: "connection")
                && !headers.hasToken("close", in: "connection")
        let hasBody = if case .none = framing { false } else { true }
        return HTTP1Head(
            method: method,
            target: target,
            version: version,
            headers: headers,
            keepsAlive: keepsAlive,
            expectsContinue: expectsContinue && hasBody && version == .http11,
            hasBody: hasBody
        )
    }
}

/// Decodes a field value as UTF-8 if it is valid, else as Latin-1: RFC 9110 calls such bytes
/// opaque, and old senders mean Latin-1.
func decodeFieldValue(_ bytes: some Collection<UInt8>) -> String {
    if let text = String(validating: bytes, as: UTF8.self) { return text }
    return String(String.UnicodeScalarView(bytes.map { Unicode.Scalar($0) }))
}

/// Whether a byte is in RFC 9110's `tchar` (section 5.6.2).
func isTokenByte(_ byte: UInt8) -> Bool {
    switch byte {
    case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"):
        true
    case UInt8(ascii: "!"), UInt8(ascii: "#"), UInt8(ascii: "$"), UInt8(ascii: "%"),
        UInt8(ascii: "&"), UInt8(ascii: "'"), UInt8(ascii: "*"), UInt8(ascii: "+"),
        UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "^"), UInt8(ascii: "_"),
        UInt8(ascii: "`"), UInt8(ascii: "|"), UInt8(ascii: "~"):
        true
    default: false
    }
}

/// Whether the bytes are a host with an optional port: a name, an IPv4 address or an IPv6 address
/// in brackets.
func isHost(_ bytes: some BidirectionalCollection<UInt8>) -> Bool {
    var rest = bytes[...]
    if rest.first == UInt8(ascii: "[") {
        guard let end = rest.firstIndex(of: UInt8(ascii: "]")) else { return false }
        let address = rest[..<end].dropFirst()
        guard address.count >= 2,
            address.allSatisfy({
                hexValue($0) != nil || $0 == UInt8(ascii: ":") || $0 == UInt8(ascii: ".")
            })
        else { return false }
        rest = rest[end...].dropFirst()
    } else {
        let end = rest.firstIndex(of: UInt8(ascii: ":")) ?? rest.endIndex
        let name = rest[..<end]
        guard !name.isEmpty,
            name.allSatisfy({ byte in
                // RFC 3986's reg-name: unreserved, escapes and sub-delimiters.
                (isTokenByte(byte) && !"#^`|".utf8.contains(byte)) || "(),;=".utf8.contains(byte)
            })
        else { return false }
        rest = rest[end...]
    }
    guard let colon = rest.first else { return true }
    let port = rest.dropFirst()
    guard colon == UInt8(ascii: ":"), port.count <= 5 else { return false }
    return port.allSatisfy { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
}
