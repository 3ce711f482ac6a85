/// Escapes text for output. A character that a terminal interprets, or that changes how other
/// characters are shown, is escaped as in JSON (`\u001b`). Inside a JSON string the escape means
/// the same character, so printed JSON stays valid and unchanged. Pure.
enum PrintableText {
    /// Whether a character may be printed. Controls (C0 except for line feed and tab, DEL, C1), marks of
    /// direction, line separators, tags and other invisible formats may not; joiners, which emoji and scripts
    /// need, may.
    static func isPrintable(_ scalar: Unicode.Scalar) -> Bool {
        switch scalar.value {
        case 0x0A, 0x09, 0x20...0x7E: true
        case 0x00...0x1F, 0x7F...0x9F: false
        // ARABIC LETTER MARK, direction marks, embeddings, overrides, isolates, separators.
        case 0x061C, 0x200E...0x200F, 0x2028...0x202E, 0x2066...0x2069: false
        // Joiners.
        case 0x200C...0x200D: true
        case _ where scalar.value < 0xAD: true
        default: scalar.properties.generalCategory != .format
        }
    }

    static func bytes(of text: String) -> [UInt8] { Array(escaped(text, isLine: false).utf8) }

    /// Returns one line: line feeds and tabs are escaped, too.
    static func line(_ text: String) -> String { escaped(text, isLine: true) }

    private static func escaped(_ text: String, isLine: Bool) -> String {
        func stays(_ scalar: Unicode.Scalar) -> Bool {
            isPrintable(scalar) && !(isLine && (scalar == "\n" || scalar == "\t"))
        }
        guard !text.unicodeScalars.allSatisfy(stays) else { return text }
        var result = String.UnicodeScalarView()
        for scalar in text.unicodeScalars {
            if stays(scalar) {
                result.append(scalar)
            } else {
                for unit in String(scalar).utf16 { result.append(contentsOf: escape(unit)) }
            }
        }
        return String(result)
    }

    private static func escape(_ unit: UInt16) -> String.UnicodeScalarView {
        let digits = String(unit, radix: 16)
        return ("\\u" + String(repeating: "0", count: 4 - digits.count) + digits).unicodeScalars
    }
}
