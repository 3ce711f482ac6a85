internal import JSON

/// A request target in origin form, parsed strictly: an invalid escape, an escaped NUL, or invalid
/// UTF-8 after unescaping is refused, not guessed at.
struct HTTPTarget {
    let path: String
    let segments: [String]
    let query: [(name: String, value: String)]

    init(origin target: String) throws(HTTPProblem) {
        // Only OPTIONS may address the whole server.
        if target == "*" {
            path = "*"
            segments = ["*"]
            query = []
            return
        }
        let bytes = Array(target.utf8)
        guard bytes.first == UInt8(ascii: "/") else {
            throw HTTPProblem(status: 400, detail: "the target does not begin with a slash")
        }
        let mark = bytes.firstIndex(of: UInt8(ascii: "?"))
        let pathBytes = bytes[..<(mark ?? bytes.endIndex)]
        if let plain = Self.segments(ofPlain: pathBytes) {
            path = mark == nil ? target : String(decoding: pathBytes, as: UTF8.self)
            segments = plain
            query = try Self.query(bytes, after: mark)
            return
        }
        var segments: [String] = []
        for part in pathBytes.dropFirst().split(
            separator: UInt8(ascii: "/"),
            omittingEmptySubsequences: false
        ) {
            segments.append(try unescape(part, plusIsBlank: false))
        }
        self.segments = segments
        path = try unescape(pathBytes, plusIsBlank: false)
        query = try Self.query(bytes, after: mark)
    }

    private static func query(
        _ target: [UInt8],
        after mark: Int?
    ) throws(HTTPProblem) -> [(name: String, value: String)] {
        guard let mark else { return [] }
        return try parseForm(target[(mark + 1)...])
    }

    /// Returns the segments of a path without escapes; nil for any other path.
    private static func segments(ofPlain bytes: ArraySlice<UInt8>) -> [String]? {
        let slash = UInt8(ascii: "/")
        var count = 0
        for byte in bytes {
            guard byte < 0x80, byte != UInt8(ascii: "%") else { return nil }
            if byte == slash { count += 1 }
        }
        var segments: [String] = []
        segments.reserveCapacity(count)
        var start = bytes.startIndex + 1
        for index in start..<bytes.endIndex where bytes[index] == slash {
            segments.append(String(decoding: bytes[start..<index], as: UTF8.self))
            start = index + 1
        }
        segments.append(String(decoding: bytes[start...], as: UTF8.self))
        return segments
    }
}

/// Parses an `application/x-www-form-urlencoded` string, of a query or of a body.
package func parseForm(
    _ bytes: some Collection<UInt8>
) throws(HTTPProblem) -> [(name: String, value: String)] {
    var items: [(name: String, value: String)] = []
    var start = bytes.startIndex
    while start != bytes.endIndex {
        let end = bytes[start...].firstIndex(of: UInt8(ascii: "&")) ?? bytes.endIndex
        let part = bytes[start..<end]
        start = end == bytes.endIndex ? end : bytes.index(after: end)
        if part.isEmpty { continue }
        let equals = part.firstIndex(of: UInt8(ascii: "="))
        let name = try unescape(part[..<(equals ?? part.endIndex)], plusIsBlank: true)
        var value = ""
        if let equals {
            value = try unescape(part[part.index(after: equals)...], plusIsBlank: true)
        }
        items.append((name, value))
    }
    return items
}

private func unescape(
    _ bytes: some Collection<UInt8>,
    plusIsBlank: Bool
) throws(HTTPProblem) -> String {
    if let plain = plainText(bytes, plusIsBlank: plusIsBlank) { return plain }
    var result: [UInt8] = []
    result.reserveCapacity(bytes.count)
    var index = bytes.startIndex
    while index != bytes.endIndex {
        var byte = bytes[index]
        bytes.formIndex(after: &index)
        if byte == UInt8(ascii: "%") {
            guard index != bytes.endIndex, let high = hexValue(bytes[index]) else {
                throw HTTPProblem(status: 400, detail: "the target has a broken escape")
            }
            bytes.formIndex(after: &index)
            guard index != bytes.endIndex, let low = hexValue(bytes[index]) else {
                throw HTTPProblem(status: 400, detail: "the target has a broken escape")
            }
            bytes.formIndex(after: &index)
            byte = high << 4 | low
            guard byte != 0 else {
                throw HTTPProblem(status: 400, detail: "the target has an escaped NUL")
            }
        } else if byte == UInt8(ascii: "+"), plusIsBlank {
            byte = UInt8(ascii: " ")
        }
        result.append(byte)
    }
    guard let text = String(validating: result, as: UTF8.self) else {
        throw HTTPProblem(status: 400, detail: "the target is not UTF-8")
    }
    guard CombiningMarkRun.isWithin(text) else {
        throw HTTPProblem(status: 400, detail: "the target has too many combining marks in a row")
    }
    return text
}

/// Decodes ASCII without escapes, which most input is; `nil` for other input.
private func plainText(_ bytes: some Collection<UInt8>, plusIsBlank: Bool) -> String? {
    for byte in bytes {
        guard byte < 0x80, byte != UInt8(ascii: "%"), byte != 0,
            !plusIsBlank || byte != UInt8(ascii: "+")
        else { return nil }
    }
    return String(decoding: bytes, as: UTF8.self)
}

func hexValue(_ byte: UInt8) -> UInt8? {
    switch byte {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): byte - UInt8(ascii: "A") + 10
    default: nil
    }
}
