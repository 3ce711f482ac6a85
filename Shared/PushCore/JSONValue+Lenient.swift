package import JSON

/// Reads values that clients write in more than one form, and shows values in errors.
extension JSONValue {
    /// A whole number as clients write it: `3`, `3.0`, `3e0`, or its digits as a string.
    ///
    /// Java's JSON writers send a `double` as `3.0`, and query parameters that are merged into a body
    /// arrive as strings.
    package var wholeNumber: Int? { integer ?? decimalText.flatMap { Int($0) } }

    /// A number, or the number in a string: `3600.5`, `"3600"`.
    package var realNumber: Double? { double ?? decimalText.flatMap { Double($0) } }

    /// A flag as clients write it: `true`, `1`, `1.0`, `"1"`, `"true"`.
    package var flag: Bool? {
        if let bool { return bool }
        switch string {
        case "true"?: return true
        case "false"?: return false
        default: break
        }
        return switch wholeNumber {
        case 0?: false
        case 1?: true
        default: nil
        }
    }

    /// The string, if it is a plain decimal number.
    private var decimalText: String? {
        guard let string, (1...20).contains(string.utf8.count) else { return nil }
        let digits = string.utf8.first == UInt8(ascii: "-") ? string.dropFirst() : string[...]
        guard let first = digits.utf8.first, (48...57).contains(first) else { return nil }
        let isDecimal = digits.utf8.allSatisfy { (48...57).contains($0) || $0 == 0x2E }
        return isDecimal && digits.utf8.last != 0x2E ? string : nil
    }

    private static let maximumShownBytes = 60

    /// The value as an error shows it: one bounded line. Of lists and objects it shows only the
    /// kind.
    ///
    /// Only for fields that hold a choice, a number, a time or a name. Never for content, tokens and keys.
    package var shown: String {
        switch self {
        case .null: return "null"
        case .bool, .integer, .double, .number: return Self.line(text)
        case .string(let string): return "\"\(Self.line(string))\""
        case .array: return "an array"
        case .object: return "an object"
        }
    }

    private static func line(_ text: String) -> String {
        var line = ""
        for scalar in text.unicodeScalars {
            let isPlain = scalar.value >= 0x20 && scalar.value != 0x7F && scalar != "\""
            line.unicodeScalars.append(isPlain ? scalar : "?")
            if line.utf8.count >= maximumShownBytes { return line + "…" }
        }
        return line
    }
}
