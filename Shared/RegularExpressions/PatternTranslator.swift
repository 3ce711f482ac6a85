/// A pattern in PCRE2's syntax, and its cost.
struct TranslatedPattern {
    /// The pattern as UTF-8.
    let bytes: [UInt8]
    let foldedCharacters: Int
    let stepsPerByte: Int
    let itemCosts: [UInt8]
}

/// Parses RE2's syntax and writes PCRE2's.
///
/// Only parsed constructs are written, each explicitly: a literal that is not a letter or digit is
/// escaped, so no part of the pattern can become a construct that it was not parsed as.
///
/// Linear in the pattern, without recursion.
struct PatternTranslator {
    /// The most groups that may be open at once.
    static let maximumDepth = 100
    /// RE2's limit of a counted repetition, also for the product of nested ones.
    static let maximumRepeat = 1000

    /// The state of a group while its content is parsed.
    private struct Group {
        /// The greatest product of counts within.
        var repeats = 1
        /// The same for the last item, which a count after it multiplies.
        var lastRepeats = 1
        /// Whether there is an item that may be repeated.
        var hasItem = false
    }

    var scalars: [Unicode.Scalar]
    var place = 0
    private(set) var output: [UInt8] = []
    private var groups = [Group()]
    /// Whether case may be ignored here, by some earlier flag.
    private(set) var mayIgnoreCase = false
    var cost = PatternCost()
    /// The start of the last item in the output; `nil` for a group.
    private var itemStart: Int?
    /// The number of members of the last item that are compared one by one.
    var comparedMembers = 0

    init(_ pattern: String) {
        scalars = Array(pattern.unicodeScalars)
        output.reserveCapacity(pattern.utf8.count * 2)
    }

    static func translate(_ pattern: String) throws(RegularExpressionError) -> TranslatedPattern {
        var translator = PatternTranslator(pattern)
        try translator.run()
        let (output, cost) = (translator.output, translator.cost)
        return TranslatedPattern(
            bytes: output,
            foldedCharacters: cost.foldedCharacters,
            stepsPerByte: cost.stepsPerByte,
            itemCosts: cost.itemCosts
        )
    }

    private mutating func run() throws(RegularExpressionError) {
        while let scalar = take() {
            switch scalar {
            case "(": try openGroup()
            case ")": try closeGroup()
            case "|":
                write("|")
                endItem()
                group.hasItem = false
            case "*", "+", "?": try repetition(scalar)
            case "{":
                if let count = try counted() { try repetition(count) } else { literal(scalar) }
            case "[":
                startItem()
                try characterClass()
            case "\\":
                try escape()
            case ".", "^", "$":
                startItem()
                write(String(scalar))
            default: literal(scalar)
            }
        }
        guard groups.count == 1 else { throw error("a group is not closed") }
    }

    // MARK: Items

    private var group: Group {
        get { groups[groups.count - 1] }
        set { groups[groups.count - 1] = newValue }
    }

    private mutating func endItem() {
        group.repeats = max(group.repeats, group.lastRepeats)
        group.lastRepeats = 1
    }

    mutating func startItem() {
        endItem()
        group.hasItem = true
        itemStart = output.count
        comparedMembers = 0
    }

    private mutating func literal(_ scalar: Unicode.Scalar) {
        startItem()
        writeLiteral(scalar)
    }

    private mutating func openGroup() throws(RegularExpressionError) {
        guard groups.count <= Self.maximumDepth else { throw error("nested too deeply") }
        guard take("?") else {
            startItem()
            write("(")
            groups.append(Group())
            return
        }
        if take("P") {
            guard take("<") else { throw error("a reference back or recursion is not RE2's") }
            return try openNamed()
        }
        if peek() == "<", let after = peek(1), after != "=", after != "!" {
            _ = take()
            return try openNamed()
        }
        try openWithFlags()
    }

    private mutating func openNamed() throws(RegularExpressionError) {
        var name = ""
        while let scalar = take(), scalar != ">" {
            guard scalar.isASCII, scalar.isWord else { throw error("a group's name is not a word") }
            name.unicodeScalars.append(scalar)
        }
        // PCRE2 limits a name to 32 and requires a letter first: names are never read, so the group
        // needs none.
        guard !name.isEmpty, scalars[place - 1] == ">" else {
            throw error("a group's name is not closed")
        }
        guard names.insert(name).inserted else { throw error("a group's name comes twice") }
        startItem()
        write("(?:")
        groups.append(Group())
    }

    private var names: Set<String> = []

    /// Translates `(?flags)` and `(?flags:…)`, with the flags i, m, s and U.
    private mutating func openWithFlags() throws(RegularExpressionError) {
        var flags = ""
        var isNegated = false
        var hasFlag = false
        while let scalar = take() {
            switch scalar {
            case "i", "m", "s", "U":
                hasFlag = true
                flags.unicodeScalars.append(scalar)
            case "-":
                guard !isNegated else { throw error("flags are negated twice") }
                isNegated = true
                hasFlag = false
                flags += "-"
            case ":", ")":
                guard hasFlag || (!isNegated && scalar == ":") else {
                    throw error("flags are missing")
                }
                if flags.prefix(while: { $0 != "-" }).contains("i") { mayIgnoreCase = true }
                guard scalar == ":" else {
                    // The rest belongs to the same group.
                    endItem()
                    group.hasItem = false
                    return write("(?\(flags))")
                }
                startItem()
                write("(?\(flags):")
                groups.append(Group())
                return
            default:
                throw error(
                    "a group begins with (?\(scalar.isASCII ? String(scalar) : "…"), not RE2's"
                )
            }
        }
        throw error("a group is not closed")
    }

    private mutating func closeGroup() throws(RegularExpressionError) {
        guard groups.count > 1 else { throw error("a group is closed that was not opened") }
        endItem()
        let inner = groups.removeLast()
        write(")")
        itemStart = nil
        group.lastRepeats = inner.repeats
        group.hasItem = true
    }

    // MARK: Repetition

    private enum Count { case mark(Unicode.Scalar), between(Int, Int?) }

    private mutating func repetition(_ mark: Unicode.Scalar) throws(RegularExpressionError) {
        try repetition(.mark(mark))
    }

    private mutating func repetition(_ count: Count) throws(RegularExpressionError) {
        guard group.hasItem else { throw error("nothing to repeat") }
        switch count {
        case .mark(let mark): write(String(mark))
        case .between(let least, let most):
            guard least <= Self.maximumRepeat, most ?? 0 <= Self.maximumRepeat,
                least <= most ?? least
            else {
                throw error("a count is over \(Self.maximumRepeat), or its bounds are reversed")
            }
            group.lastRepeats *= max(most ?? least, 1)
            guard group.lastRepeats <= Self.maximumRepeat else {
                throw error("counts within counts come to more than \(Self.maximumRepeat)")
            }
            if let itemStart {
                cost.count(itemAt: itemStart, members: comparedMembers, repeats: least)
            }
            if let most, most != least {
                write("{\(least),\(most)}")
            } else {
                write(most == nil ? "{\(least),}" : "{\(least)}")
            }
        }
        if take("?") { write("?") }
        switch peek() {
        case "*", "+", "?": throw error("a repetition of a repetition is not RE2's")
        case "{":
            let start = place
            _ = take()
            guard try counted() == nil else {
                throw error("a repetition of a repetition is not RE2's")
            }
            place = start
        default: break
        }
    }

    /// Parses a count after `{`; `nil` if it is not one, and the brace is a literal.
    private mutating func counted() throws(RegularExpressionError) -> Count? {
        let start = place
        guard let least = number() else {
            place = start
            return nil
        }
        var most: Int? = least
        if take(",") { most = peek() == "}" ? nil : number() ?? -1 }
        guard most != -1, take("}") else {
            place = start
            return nil
        }
        return .between(least, most)
    }

    /// Parses digits; a number that is too large for any count saturates.
    private mutating func number() -> Int? {
        var value: Int?
        while let digit = peek(), ("0"..."9").contains(digit) {
            place += 1
            value = min((value ?? 0) * 10 + Int(digit.value - 48), 1_000_000)
        }
        return value
    }

    // MARK: Reading and writing

    func peek(_ ahead: Int = 0) -> Unicode.Scalar? {
        place + ahead < scalars.count ? scalars[place + ahead] : nil
    }

    mutating func take() -> Unicode.Scalar? {
        guard place < scalars.count else { return nil }
        place += 1
        return scalars[place - 1]
    }

    mutating func take(_ wanted: Unicode.Scalar) -> Bool {
        guard peek() == wanted else { return false }
        place += 1
        return true
    }

    mutating func write(_ text: String) { output.append(contentsOf: text.utf8) }

    /// Writes a scalar so that it only matches itself, within a class and outside.
    mutating func writeLiteral(_ scalar: Unicode.Scalar) {
        if !scalar.isASCII {
            output.append(contentsOf: UTF8.encode(scalar).map(Array.init) ?? [])
        } else if scalar.isLetterOrDigit {
            output.append(UInt8(scalar.value))
        } else {
            write("\\x{\(String(scalar.value, radix: 16))}")
        }
    }

    func error(_ problem: String) -> RegularExpressionError {
        RegularExpressionError("\(problem), at \(place)")
    }
}

extension Unicode.Scalar {
    var isLetterOrDigit: Bool {
        ("0"..."9").contains(self) || ("a"..."z").contains(self) || ("A"..."Z").contains(self)
    }

    var isWord: Bool { isLetterOrDigit || self == "_" }
}
