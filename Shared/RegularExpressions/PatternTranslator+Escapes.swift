extension PatternTranslator {
    /// Translates the escape after a backslash outside of a class.
    mutating func escape() throws(RegularExpressionError) {
        guard let scalar = take() else { throw error("trailing backslash") }
        switch scalar {
        case "Q":
            while let scalar = take() {
                if scalar == "\\", take("E") { return }
                startItem()
                writeLiteral(scalar)
            }
        case "A", "b", "B", "z":
            startItem()
            write("\\\(scalar)")
        default:
            startItem()
            if try writeClassEscape(scalar) { return }
            writeLiteral(try escapedLiteral(scalar))
        }
    }

    /// Writes `\d`, `\pN` and the like outside of a class; returns whether it was one.
    private mutating func writeClassEscape(
        _ scalar: Unicode.Scalar
    ) throws(RegularExpressionError) -> Bool {
        switch scalar {
        case "d", "D", "w", "W": write("\\\(scalar)")
        // RE2's `\s` has no vertical tab.
        case "s": write("[\\t\\n\\f\\r ]")
        case "S": write("[^\\t\\n\\f\\r ]")
        case "p", "P": try property(isNegated: scalar == "P")
        default: return false
        }
        return true
    }

    /// Translates `\pN`, `\p{Greek}`, `\p{^Greek}`.
    private mutating func property(isNegated: Bool) throws(RegularExpressionError) {
        var isNegated = isNegated
        var name = ""
        if take("{") {
            if take("^") { isNegated.toggle() }
            while let scalar = take(), scalar != "}" {
                guard scalar.isASCII, scalar.isWord else { throw error("no class of Unicode") }
                name.unicodeScalars.append(scalar)
            }
            guard scalars[place - 1] == "}" else { throw error("a class of Unicode is not closed") }
        } else if let scalar = take() {
            name = scalar.isASCII ? String(scalar) : ""
        }
        let letter = isNegated ? "P" : "p"
        if name == "Any" || Self.categories.contains(name) {
            write("\\\(letter){\(name)}")
        } else {
            // A script, as in RE2: not PCRE2's script extensions, nor its other properties.
            guard let first = name.unicodeScalars.first, ("A"..."Z").contains(first),
                name.utf8.count > 1
            else { throw error("no class of Unicode") }
            write("\\\(letter){sc:\(name)}")
        }
    }

    private static let categories: Set<String> = [
        "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N",
        "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm",
        "So",
        "Z", "Zl", "Zp", "Zs",
    ]

    /// Returns the one character that an escape stands for.
    private mutating func escapedLiteral(
        _ scalar: Unicode.Scalar
    ) throws(RegularExpressionError) -> Unicode.Scalar {
        switch scalar {
        case "a": return "\u{07}"
        case "f": return "\u{0C}"
        case "n": return "\n"
        case "r": return "\r"
        case "t": return "\t"
        case "v": return "\u{0B}"
        case "x": return try hexadecimal()
        case "1"..."7":
            // A single digit is a backreference.
            guard let next = peek(), ("0"..."7").contains(next) else {
                throw error("a reference back is not RE2's")
            }
            return try octal(scalar)
        case "0": return try octal(scalar)
        default:
            guard scalar.isASCII, !scalar.isWord else { throw error("no escape of RE2's") }
            return scalar
        }
    }

    private mutating func octal(
        _ first: Unicode.Scalar
    ) throws(RegularExpressionError) -> Unicode.Scalar {
        var value = first.value - 48
        var digits = 1
        while digits < 3, let next = peek(), ("0"..."7").contains(next) {
            place += 1
            value = value * 8 + next.value - 48
            digits += 1
        }
        return try scalar(value)
    }

    private mutating func hexadecimal() throws(RegularExpressionError) -> Unicode.Scalar {
        var value: UInt32 = 0
        if take("{") {
            var digits = 0
            while let digit = peek().flatMap(Self.hexadecimalDigit) {
                place += 1
                digits += 1
                value = min(value * 16 + digit, 0x11_0000)
            }
            guard digits > 0, take("}") else { throw error("no hexadecimal number") }
        } else {
            for _ in 0..<2 {
                guard let digit = take().flatMap(Self.hexadecimalDigit) else {
                    throw error("no hexadecimal number")
                }
                value = value * 16 + digit
            }
        }
        return try scalar(value)
    }

    private func scalar(_ value: UInt32) throws(RegularExpressionError) -> Unicode.Scalar {
        guard let scalar = Unicode.Scalar(value) else { throw error("no character of Unicode") }
        return scalar
    }

    private static func hexadecimalDigit(_ scalar: Unicode.Scalar) -> UInt32? {
        switch scalar {
        case "0"..."9": scalar.value - 48
        case "a"..."f": scalar.value - 87
        case "A"..."F": scalar.value - 55
        default: nil
        }
    }

    // MARK: Classes

    /// Translates a class after `[`, to its `]`. Overlapping ranges are merged, so that its
    /// coverage limits the cost of a class.
    mutating func characterClass() throws(RegularExpressionError) {
        let start = output.count
        write(take("^") ? "[^" : "[")
        var isFirst = true
        var ranges: [ClosedRange<Unicode.Scalar>] = []
        while true {
            guard let scalar = take() else { throw error("a class is not closed") }
            if scalar == "]", !isFirst { break }
            isFirst = false
            if scalar == "[", peek() == ":" {
                try namedClass()
                continue
            }
            guard let low = try member(scalar) else {
                comparedMembers += 1
                continue
            }
            guard peek() == "-", let after = peek(1), after != "]" else {
                ranges.append(low...low)
                continue
            }
            place += 1
            guard let last = take(), let high = try member(last), low <= high else {
                throw error("invalid character range")
            }
            ranges.append(low...high)
        }
        write(merging: ranges, ofClassAt: start)
        write("]")
    }

    private mutating func write(
        merging ranges: [ClosedRange<Unicode.Scalar>],
        ofClassAt start: Int
    ) {
        var merged: [ClosedRange<Unicode.Scalar>] = []
        for range in ranges.sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if let last = merged.last,
                range.lowerBound.value <= last.upperBound.value + 1
            {
                let upper = max(last.upperBound, range.upperBound)
                merged[merged.count - 1] = last.lowerBound...upper
            } else {
                merged.append(range)
            }
        }
        var folded = 0
        for range in merged {
            writeLiteral(range.lowerBound)
            if range.lowerBound != range.upperBound {
                write("-")
                writeLiteral(range.upperBound)
            }
            folded += Int(range.upperBound.value - range.lowerBound.value) + 1
            // Beyond it they are not bits of a map. The other case is a member of its own.
            if range.upperBound.value > 0xFF { comparedMembers += mayIgnoreCase ? 2 : 1 }
        }
        cost.count(
            classAt: start,
            members: comparedMembers,
            folded: mayIgnoreCase ? folded : 0
        )
    }

    /// Returns the character that a member of a class is; `nil` if it was a class itself, which is
    /// written.
    private mutating func member(
        _ scalar: Unicode.Scalar
    ) throws(RegularExpressionError) -> Unicode.Scalar? {
        guard scalar == "\\" else { return scalar }
        guard let escaped = take() else { throw error("trailing backslash") }
        switch escaped {
        case "s": write("\\t\\n\\f\\r ")
        case "S": write("\\S\\x{b}")
        case "d", "D", "w", "W": write("\\\(escaped)")
        case "p", "P": try property(isNegated: escaped == "P")
        default: return try escapedLiteral(escaped)
        }
        return nil
    }

    /// Translates a named class after `[` within a class: `:alpha:]`.
    private mutating func namedClass() throws(RegularExpressionError) {
        place += 1
        let isNegated = take("^")
        var name = ""
        while let scalar = take(), scalar != ":" {
            guard scalar.isASCII else { break }
            name.unicodeScalars.append(scalar)
        }
        guard scalars[place - 1] == ":", take("]"), Self.namedClasses.contains(name) else {
            throw error("no named class")
        }
        write(isNegated ? "[:^\(name):]" : "[:\(name):]")
    }

    private static let namedClasses: Set<String> = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct",
        "space", "upper", "word", "xdigit",
    ]
}
