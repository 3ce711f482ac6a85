import AzureHub

/// A `multipart/mixed` or `multipart/form-data` body of Azure's clients, parsed more leniently than RFC 2046
/// where they deviate: blanks around the boundary's `=`, no line end after the last boundary.
enum MultipartBody {
    struct Part: Equatable, Sendable {
        /// The name in `Content-Disposition: inline; name=…`.
        var name: String
        var contentType: String?
        var body: [UInt8]
    }

    private static let maximumParts = 10

    /// - Throws: `AzureError` 400 if there is no boundary, or the body is not divided by it.
    static func parse(_ body: [UInt8], contentType: String) throws(AzureError) -> [Part] {
        guard let boundary = HubText.parameter("boundary", of: contentType),
            (1...200).contains(boundary.utf8.count)
        else { throw AzureError("Content-Type names no boundary") }
        let mark = Array("--\(boundary)".utf8)
        var marks = ranges(of: mark, in: body)
        marks.removeAll { range in
            range.lowerBound > 0 && body[range.lowerBound - 1] != UInt8(ascii: "\n")
        }
        guard marks.count >= 2, marks.count <= maximumParts + 1 else {
            throw AzureError("the body is not divided by its boundary")
        }
        var parts: [Part] = []
        for (start, end) in zip(marks, marks.dropFirst()) {
            parts.append(try part(body[start.upperBound..<end.lowerBound]))
        }
        let last = body[(marks.last?.upperBound ?? body.endIndex)...]
        guard last.starts(with: Array("--".utf8)) else {
            throw AzureError("the body's last boundary is missing")
        }
        return parts
    }

    private static func part(_ bytes: ArraySlice<UInt8>) throws(AzureError) -> Part {
        var rest = bytes
        // The rest of a boundary's line is padding.
        _ = line(&rest)
        var part = Part(name: "", body: [])
        while let text = line(&rest) {
            guard !text.isEmpty else {
                part.body = Array(rest)
                if part.body.last == UInt8(ascii: "\n") { part.body.removeLast() }
                if part.body.last == UInt8(ascii: "\r") { part.body.removeLast() }
                return part
            }
            guard let colon = text.firstIndex(of: ":") else {
                throw AzureError("a part of the body has a header without a colon")
            }
            let value = text[text.index(after: colon)...].drop { $0 == " " }
            switch text[..<colon].lowercased() {
            case "content-disposition":
                part.name = HubText.parameter("name", of: String(value)) ?? ""
            case "content-type": part.contentType = String(value)
            default: break
            }
        }
        throw AzureError("a part of the body has no end of its headers")
    }

    private static func line(_ rest: inout ArraySlice<UInt8>) -> String? {
        guard let end = rest.firstIndex(of: UInt8(ascii: "\n")) else { return nil }
        var line = rest[..<end]
        if line.last == UInt8(ascii: "\r") { line.removeLast() }
        rest = rest[(end + 1)...]
        return String(decoding: line, as: UTF8.self)
    }

    private static func ranges(of mark: [UInt8], in body: [UInt8]) -> [Range<Int>] {
        var found: [Range<Int>] = []
        var index = 0
        while index + mark.count <= body.count, found.count < 1000 {
            if body[index] == mark[0], body[index..<(index + mark.count)].elementsEqual(mark) {
                found.append(index..<(index + mark.count))
                index += mark.count
            } else {
                index += 1
            }
        }
        return found
    }
}
