/// Converts bodies in other charsets to UTF-8, which all other code here requires.
package enum HubText {
    /// Converts a body to UTF-8. A body that is valid UTF-8 stays unchanged, whatever its label says: some
    /// clients label UTF-8 as ISO-8859-1.
    ///
    /// - Parameters:
    ///   - body: The body as sent.
    ///   - contentType: The content type, which names the charset. Otherwise the XML declaration
    ///     does.
    /// - Returns: The body in UTF-8, with an XML declaration that says so; the unchanged `body` if
    ///   its charset is not supported.
    package static func utf8(_ body: [UInt8], contentType: String?) -> [UInt8] {
        guard String(validating: body, as: UTF8.self) == nil else { return body }
        let declared = xmlEncoding(body)
        let charset =
            contentType.flatMap { parameter("charset", of: $0) }
            ?? declared.map { String(decoding: body[$0], as: UTF8.self) }
        guard let charset, latin1.contains(charset.lowercased()) else { return body }
        var bytes = body
        if let declared { bytes.replaceSubrange(declared, with: Array("utf-8".utf8)) }
        // The characters of Latin-1 are the first 256 of Unicode.
        return bytes.flatMap { $0 < 0x80 ? [$0] : [0xC0 | $0 >> 6, 0x80 | $0 & 0x3F] }
    }

    private static let latin1: Set<String> = [
        "iso-8859-1", "iso8859-1", "iso_8859-1", "latin1", "l1",
    ]

    /// Returns the range of the `encoding` in an XML declaration.
    private static func xmlEncoding(_ body: [UInt8]) -> Range<Int>? {
        let start = Array("<?xml".utf8)
        guard body.starts(with: start),
            let end = body.prefix(200).firstIndex(of: UInt8(ascii: ">"))
        else { return nil }
        let name = Array("encoding".utf8)
        guard
            let found = (start.count..<max(start.count, end - name.count)).first(where: {
                body[$0..<($0 + name.count)].elementsEqual(name)
            }),
            let open = body[(found + name.count)..<end].firstIndex(where: isQuote),
            let close = body[(open + 1)..<end].firstIndex(of: body[open])
        else { return nil }
        return (open + 1)..<close
    }

    private static func isQuote(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "'")
    }

    /// Returns a parameter of a header's value, with or without quotation marks.
    package static func parameter(_ name: String, of value: String) -> String? {
        var isQuoted = false
        let parts = value.split { character in
            if character == "\"" { isQuoted.toggle() }
            return character == ";" && !isQuoted
        }
        for part in parts.dropFirst() {
            let pair = part.split(separator: "=", maxSplits: 1)
            guard pair.count == 2, trimmed(pair[0]).lowercased() == name else { continue }
            var text = trimmed(pair[1])
            if text.count >= 2, text.first == "\"", text.last == "\"" {
                text = text.dropFirst().dropLast()
            }
            return text.isEmpty ? nil : String(text)
        }
        return nil
    }

    private static func trimmed(_ text: Substring) -> Substring {
        var text = text.drop { $0 == " " || $0 == "\t" }
        while text.last == " " || text.last == "\t" { text.removeLast() }
        return text
    }
}
