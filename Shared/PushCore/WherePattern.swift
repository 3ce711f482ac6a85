/// A regular expression of a `where`: the common subset of PCRE and JavaScript, as a tree. Pure.
///
/// A pattern only says whether a string matches, so groups capture nothing and laziness is ignored.
/// Some constructs are refused by name: those that a matcher cannot handle in bounded time (back
/// references, atomic groups), and those that engines interpret differently. `.` does not match a
/// line feed. `$` matches only at the very end. Classes like `\w` are those of ASCII. Case is
/// folded one character at a time.
package struct WherePattern: Sendable, Equatable {
    package let source: String
    package let options: String
    package let root: Node
    /// Whether `^` and `$` also match at the start and end of each line.
    package let isMultiline: Bool

    package indirect enum Node: Sendable, Equatable {
        case literal(Unicode.Scalar)
        case any(includingLineFeed: Bool)
        case set(ScalarSet)
        case lineStart, lineEnd, textStart, textEnd, wordBoundary, noWordBoundary
        case sequence([Node])
        case choice([Node])
        /// `maximum` is `nil` if there is no limit.
        case repetition(Node, minimum: Int, maximum: Int?)
        case lookahead(Node, isNegative: Bool)
    }

    /// Characters by their code points, in order, without overlap.
    package struct ScalarSet: Sendable, Equatable {
        package private(set) var ranges: [ClosedRange<UInt32>]
    }

    /// The highest number in a quantifier.
    package static let maximumRepeats = 255
    /// The largest size of a pattern with all quantifiers expanded, and the largest optional part
    /// of it. Both cost a matcher memory, and the optional part quadratically.
    package static let maximumSize = 2000
    package static let maximumOptionalSize = 250
    package static let maximumGroupDepth = 40
    package static let maximumLookaheads = 8

    /// - Throws: `WhereError` 102 for a refused construct, 107 for an invalid pattern.
    package init(
        _ source: String,
        options: String,
        field: String = ""
    ) throws(WhereError) {
        guard source.utf8.count <= Where.maximumPatternBytes else {
            throw WhereError(
                code: 102,
                field: field,
                "$regex has more than \(Where.maximumPatternBytes) bytes"
            )
        }
        guard !source.utf8.contains(0) else { throw .malformed(field, "a NUL character in $regex") }
        var reader = PatternReader(source, field: field)
        for letter in options.unicodeScalars {
            guard reader.set(letter) else {
                let shown = letter.isASCII ? "\(letter)" : "?"
                throw .unsupported(field, "the letter \(shown) in $options")
            }
        }
        root = try reader.pattern()
        isMultiline = reader.isMultiline
        self.source = source
        self.options = options
        let weight = root.weight
        guard weight.size <= Self.maximumSize, weight.optional <= Self.maximumOptionalSize else {
            throw WhereError(code: 102, field: field, "$regex repeats too much")
        }
    }

    /// The one string that matches, if the pattern is literal: `^\Qtext\E$`.
    package var exactText: String? {
        guard !isMultiline, case .sequence(let nodes) = root, nodes.count >= 2,
            nodes.first == .lineStart || nodes.first == .textStart,
            nodes.last == .lineEnd || nodes.last == .textEnd
        else { return nil }
        var text = String.UnicodeScalarView()
        for node in nodes.dropFirst().dropLast() {
            guard case .literal(let scalar) = node else { return nil }
            text.append(scalar)
        }
        return String(text)
    }
}

extension WherePattern.ScalarSet {
    private static let last: UInt32 = 0x10FFFF

    init(_ ranges: [ClosedRange<UInt32>]) {
        var merged: [ClosedRange<UInt32>] = []
        for range in ranges.sorted(by: { $0.lowerBound < $1.lowerBound }) {
            if let previous = merged.last, range.lowerBound <= previous.upperBound + 1 {
                let upper = max(previous.upperBound, range.upperBound)
                merged[merged.count - 1] = previous.lowerBound...upper
            } else {
                merged.append(range)
            }
        }
        self.ranges = merged
    }

    /// All other characters, except NUL, which no string contains.
    var inverted: Self {
        var rest: [ClosedRange<UInt32>] = []
        var next: UInt32 = 1
        for range in ranges {
            if range.lowerBound > next { rest.append(next...range.lowerBound - 1) }
            next = max(next, range.upperBound + 1)
        }
        if next <= Self.last { rest.append(next...Self.last) }
        return Self(rest)
    }

    func union(_ other: Self) -> Self { Self(ranges + other.ranges) }

    static let digits = Self([48...57])
    static let words = Self([48...57, 65...90, 95...95, 97...122])
    static let spaces = Self([9...13, 32...32])

    /// The characters that have another case, sorted, each with that case. They are read from
    /// Unicode's tables once, as each lookup takes a while.
    private static let cased: [(code: UInt32, other: UInt32)] = {
        let blocks: [ClosedRange<UInt32>] = [
            0x41...0x2FFF, 0xA640...0xABFF, 0xFF21...0xFF5A, 0x10400...0x104FF,
        ]
        var pairs: [(code: UInt32, other: UInt32)] = []
        for code in blocks.joined() {
            guard let scalar = Unicode.Scalar(code) else { continue }
            pairs += scalar.otherCases.map { (code, $0.value) }
        }
        return pairs
    }()

    /// Every character with its other case.
    var foldingCase: Self {
        var folded = ranges
        for range in ranges {
            var (low, high) = (0, Self.cased.count)
            while low < high {
                let middle = (low + high) / 2
                if Self.cased[middle].code < range.lowerBound {
                    low = middle + 1
                } else {
                    high = middle
                }
            }
            for pair in Self.cased[low...] {
                guard pair.code <= range.upperBound else { break }
                if !range.contains(pair.other) { folded.append(pair.other...pair.other) }
            }
        }
        return Self(folded)
    }
}

extension Unicode.Scalar {
    fileprivate var otherCases: [Unicode.Scalar] {
        [properties.lowercaseMapping, properties.uppercaseMapping].compactMap { mapped in
            let scalars = mapped.unicodeScalars
            guard scalars.count == 1, let first = scalars.first, first != self else { return nil }
            return first
        }
    }
}

extension WherePattern.Node {
    /// The cost of the node for a matcher, with saturation; see `WherePattern.maximumSize`.
    fileprivate var weight: (size: Int, optional: Int) {
        switch self {
        case .literal, .any, .set, .lineStart, .lineEnd, .textStart, .textEnd, .wordBoundary,
            .noWordBoundary:
            return (1, 0)
        case .sequence(let nodes), .choice(let nodes):
            var (size, optional) = (0, 0)
            for node in nodes {
                let weight = node.weight
                size += weight.size
                optional += weight.optional
            }
            if case .choice = self {
                size += nodes.count
                if nodes.contains(where: \.canBeEmpty) { optional += size }
            }
            return (min(size, 1_000_000), min(optional, 1_000_000))
        case .repetition(let node, let minimum, let maximum):
            let weight = node.weight
            let times = max(maximum ?? minimum, 1)
            let spare = (maximum ?? minimum + 1) - minimum
            return (
                min(weight.size * times, 1_000_000),
                min(weight.optional * times + weight.size * spare, 1_000_000)
            )
        case .lookahead(let node, _):
            let weight = node.weight
            return (weight.size + 1, weight.optional)
        }
    }

    /// Whether the node may match without consuming a character.
    fileprivate var canBeEmpty: Bool {
        switch self {
        case .literal, .any, .set: false
        case .lineStart, .lineEnd, .textStart, .textEnd, .wordBoundary, .noWordBoundary,
            .lookahead:
            true
        case .sequence(let nodes): nodes.allSatisfy(\.canBeEmpty)
        case .choice(let nodes): nodes.contains(where: \.canBeEmpty)
        case .repetition(let node, let minimum, _): minimum == 0 || node.canBeEmpty
        }
    }
}

/// A parser of a pattern.
private struct PatternReader {
    typealias Node = WherePattern.Node
    typealias ScalarSet = WherePattern.ScalarSet

    private let scalars: [Unicode.Scalar]
    private let field: String
    private var position = 0
    private var depth = 0
    private var lookaheads = 0
    private var ignoresCase = false
    private(set) var isMultiline = false
    private var ignoresSpace = false
    private var dotTakesLineFeed = false

    init(_ source: String, field: String) {
        scalars = Array(source.unicodeScalars)
        self.field = field
    }

    /// - Returns: False for an unknown option.
    mutating func set(_ option: Unicode.Scalar) -> Bool {
        switch option {
        case "i": ignoresCase = true
        case "m": isMultiline = true
        case "x": ignoresSpace = true
        case "s": dotTakesLineFeed = true
        default: return false
        }
        return true
    }

    mutating func pattern() throws(WhereError) -> Node {
        try leadingOptions()
        let node = try choice()
        guard position == scalars.count else { throw malformed("has a ')' too many") }
        return node
    }

    // MARK: Small steps

    private func malformed(_ problem: String) -> WhereError {
        .malformed(field, "$regex \(problem)")
    }

    private func refused(_ what: String) -> WhereError {
        .unsupported(field, "\(what) in $regex")
    }

    private var next: Unicode.Scalar? { position < scalars.count ? scalars[position] : nil }

    private func starts(with text: String) -> Bool {
        scalars[position...].starts(with: text.unicodeScalars)
    }

    private mutating func take(_ text: String) -> Bool {
        guard starts(with: text) else { return false }
        position += text.unicodeScalars.count
        return true
    }

    private mutating func takeNext() throws(WhereError) -> Unicode.Scalar {
        guard let next else { throw malformed("ends too early") }
        position += 1
        return next
    }

    /// Reads options such as `(?i)` at the very beginning.
    private mutating func leadingOptions() throws(WhereError) {
        while starts(with: "(?") {
            let letters = scalars[(position + 2)...].prefix { $0 != ")" }
            guard !letters.isEmpty, position + 2 + letters.count < scalars.count,
                letters.allSatisfy({ "imsx".unicodeScalars.contains($0) })
            else { return }
            for letter in letters { _ = set(letter) }
            position += letters.count + 3
        }
    }

    /// Skips spaces and comments, which the option `x` allows between the parts.
    private mutating func skipSpace() {
        guard ignoresSpace else { return }
        while let next {
            if next.value == 32 || (9...13).contains(next.value) {
                position += 1
            } else if next == "#" {
                while let next = self.next, next != "\n" {
                    _ = next
                    position += 1
                }
            } else {
                return
            }
        }
    }

    // MARK: Structure

    private mutating func choice() throws(WhereError) -> Node {
        depth += 1
        defer { depth -= 1 }
        guard depth <= WherePattern.maximumGroupDepth else {
            throw WhereError(code: 102, field: field, "$regex nests too deeply")
        }
        var branches = [try sequence()]
        while take("|") { branches.append(try sequence()) }
        return branches.count == 1 ? branches[0] : .choice(branches)
    }

    private mutating func sequence() throws(WhereError) -> Node {
        var nodes: [Node] = []
        while true {
            skipSpace()
            guard let next, next != "|", next != ")" else { return .sequence(nodes) }
            if take("\\Q") {
                let (text, last) = quoted()
                nodes += text.map(literal)
                guard let last else { continue }
                nodes.append(try repeated(literal(last)))
            } else if take("\\E") || skipComment() {
                continue
            } else {
                nodes.append(try repeated(try atom()))
            }
        }
    }

    /// Reads the text from `\Q` to `\E` or the end. A quantifier applies to its last character.
    private mutating func quoted() -> (ArraySlice<Unicode.Scalar>, Unicode.Scalar?) {
        let start = position
        var end = scalars.count
        while position < scalars.count {
            if starts(with: "\\E") {
                end = position
                position += 2
                break
            }
            position += 1
        }
        let text = scalars[start..<end]
        return (text.dropLast(), text.last)
    }

    private mutating func skipComment() -> Bool {
        guard take("(?#") else { return false }
        while let next, next != ")" {
            _ = next
            position += 1
        }
        if next != nil { position += 1 }
        return true
    }

    private func literal(_ scalar: Unicode.Scalar) -> Node {
        let others = ignoresCase ? scalar.otherCases : []
        guard !others.isEmpty else { return .literal(scalar) }
        return .set(ScalarSet(([scalar] + others).map { $0.value...$0.value }))
    }

    private mutating func repeated(_ node: Node) throws(WhereError) -> Node {
        skipSpace()
        guard let (minimum, maximum) = try quantifier() else { return node }
        switch node {
        case .lineStart, .lineEnd, .textStart, .textEnd, .wordBoundary, .noWordBoundary, .lookahead:
            throw malformed("repeats what takes no character")
        case .literal, .any, .set, .sequence, .choice, .repetition: break
        }
        guard maximum.map({ $0 >= minimum }) ?? true else {
            throw malformed("counts backwards in {}")
        }
        guard max(minimum, maximum ?? 0) <= WherePattern.maximumRepeats else {
            throw WhereError(
                code: 102,
                field: field,
                "$regex counts beyond \(WherePattern.maximumRepeats)"
            )
        }
        // Laziness changes which part matches, but not whether the pattern matches.
        if !take("?"), next == "+" { throw refused("a possessive count") }
        skipSpace()
        if let next, "*+?".unicodeScalars.contains(next) { throw malformed("counts a count") }
        let mark = position
        if try quantifier() != nil {
            position = mark
            throw malformed("counts a count")
        }
        return .repetition(node, minimum: minimum, maximum: maximum)
    }

    private mutating func quantifier() throws(WhereError) -> (Int, Int?)? {
        if take("*") { return (0, nil) }
        if take("+") { return (1, nil) }
        if take("?") { return (0, 1) }
        let start = position
        guard take("{") else { return nil }
        // Braces without a valid quantifier are literal.
        guard let minimum = number() else {
            position = start
            return nil
        }
        if take("}") { return (minimum, minimum) }
        guard take(",") else {
            position = start
            return nil
        }
        if take("}") { return (minimum, nil) }
        guard let maximum = number(), take("}") else {
            position = start
            return nil
        }
        return (minimum, maximum)
    }

    private mutating func number() -> Int? {
        var value: Int?
        while let digit = next, ("0"..."9").contains(digit) {
            value = min((value ?? 0) * 10 + Int(digit.value - 48), 1_000_000)
            position += 1
        }
        return value
    }

    // MARK: Atoms

    private mutating func atom() throws(WhereError) -> Node {
        let scalar = try takeNext()
        switch scalar {
        case ".": return .any(includingLineFeed: dotTakesLineFeed)
        case "^": return .lineStart
        case "$": return .lineEnd
        case "[": return .set(try characterClass())
        case "(": return try group()
        case "\\": return try escape()
        case "*", "+", "?": throw malformed("counts nothing")
        case "{":
            position -= 1
            if try quantifier() != nil { throw malformed("counts nothing") }
            position += 1
            return .literal("{")
        default: return literal(scalar)
        }
    }

    private mutating func group() throws(WhereError) -> Node {
        var isLookahead = false
        var isNegative = false
        if take("?") {
            if take(":") {
            } else if take("=") {
                isLookahead = true
            } else if take("!") {
                (isLookahead, isNegative) = (true, true)
            } else if take("<=") || take("<!") {
                throw refused("a lookbehind")
            } else if take("<") || take("P<") || take("'") {
                while let next, next != ">", next != "'" {
                    guard next.value == 95 || next.properties.isAlphabetic || next.isDigit else {
                        throw malformed("names a group badly")
                    }
                    position += 1
                }
                _ = try takeNext()
            } else if take(">") {
                throw refused("an atomic group")
            } else {
                throw refused("this kind of group")
            }
        } else if next == "*" {
            throw refused("a verb")
        }
        let inside = try choice()
        guard take(")") else { throw malformed("lacks a ')'") }
        guard isLookahead else {
            if case .sequence = inside { return inside }
            return .sequence([inside])
        }
        lookaheads += 1
        guard lookaheads <= WherePattern.maximumLookaheads else {
            throw WhereError(
                code: 102,
                field: field,
                "$regex has more than \(WherePattern.maximumLookaheads) lookaheads"
            )
        }
        return .lookahead(inside, isNegative: isNegative)
    }

    private mutating func escape() throws(WhereError) -> Node {
        let scalar = try takeNext()
        if let set = shorthand(scalar) { return .set(set) }
        switch scalar {
        case "b": return .wordBoundary
        case "B": return .noWordBoundary
        case "A": return .textStart
        case "z": return .textEnd
        case "1"..."9", "k", "g": throw refused("a back reference")
        default: return literal(try character(escapedBy: scalar))
        }
    }

    private func shorthand(_ letter: Unicode.Scalar) -> ScalarSet? {
        switch letter {
        case "d": .digits
        case "D": ScalarSet.digits.inverted
        case "w": .words
        case "W": ScalarSet.words.inverted
        case "s": .spaces
        case "S": ScalarSet.spaces.inverted
        default: nil
        }
    }

    /// Returns the character of an escape, inside or outside of a class.
    private mutating func character(
        escapedBy letter: Unicode.Scalar
    ) throws(WhereError) -> Unicode.Scalar {
        switch letter {
        case "n": return "\n"
        case "r": return "\r"
        case "t": return "\t"
        case "f": return "\u{0C}"
        case "v": return "\u{0B}"
        case "a": return "\u{07}"
        case "e": return "\u{1B}"
        case "x" where take("{"):
            let code = try hexadecimal(1...6)
            guard take("}") else { throw malformed("has a bad \\x") }
            return try scalar(code)
        case "x": return try scalar(try hexadecimal(2...2))
        case "u": return try scalar(try hexadecimal(4...4))
        default:
            guard !letter.isASCII || !ASCII.isAlphanumeric(UInt8(letter.value)) else {
                throw refused("\\\(letter)")
            }
            return letter
        }
    }

    private mutating func hexadecimal(
        _ lengths: ClosedRange<Int>
    ) throws(WhereError) -> UInt32 {
        var (value, count): (UInt32, Int) = (0, 0)
        while count < lengths.upperBound, let next,
            let digit = Character(next).hexDigitValue, next.isASCII
        {
            value = value << 4 | UInt32(digit)
            count += 1
            position += 1
        }
        guard lengths.contains(count) else { throw malformed("has a bad hexadecimal number") }
        return value
    }

    private func scalar(_ code: UInt32) throws(WhereError) -> Unicode.Scalar {
        guard code != 0, let scalar = Unicode.Scalar(code) else {
            throw malformed("names no character by its number")
        }
        return scalar
    }

    // MARK: Classes

    private static let named: [String: ScalarSet] = [
        "alpha": ScalarSet([65...90, 97...122]), "digit": .digits, "word": .words,
        "alnum": ScalarSet([48...57, 65...90, 97...122]), "upper": ScalarSet([65...90]),
        "lower": ScalarSet([97...122]), "space": .spaces,
        "xdigit": ScalarSet([48...57, 65...70, 97...102]),
        "punct": ScalarSet([33...47, 58...64, 91...96, 123...126]),
    ]

    private mutating func characterClass() throws(WhereError) -> ScalarSet {
        let isInverted = take("^")
        var ranges: [ClosedRange<UInt32>] = []
        var shorthands = ScalarSet([])
        var isFirst = true
        while isFirst || next != "]" {
            guard next != nil else { throw malformed("lacks a ']'") }
            if take("\\Q") {
                let (text, last) = quoted()
                ranges += (text + [last].compactMap { $0 }).map { $0.value...$0.value }
                // Empty quotes are not a member: a `]` after them may still be the first member.
                if last != nil { isFirst = false }
                continue
            }
            if take("\\E") { continue }
            isFirst = false
            switch try member() {
            case .shorthand(let set): shorthands = shorthands.union(set)
            case .named(let set): ranges += set.ranges
            case .one(let lower):
                guard next == "-", position + 1 < scalars.count, scalars[position + 1] != "]" else {
                    ranges.append(lower.value...lower.value)
                    continue
                }
                position += 1
                guard case .one(let upper) = try member(), upper >= lower else {
                    throw malformed("has a bad range in a class")
                }
                ranges.append(lower.value...upper.value)
            }
        }
        position += 1
        let own = ScalarSet(ranges)
        let set = (ignoresCase ? own.foldingCase : own).union(shorthands)
        return isInverted ? set.inverted : set
    }

    private enum Member {
        case one(Unicode.Scalar)
        case named(ScalarSet)
        /// It contains both cases of its characters.
        case shorthand(ScalarSet)
    }

    private mutating func member() throws(WhereError) -> Member {
        let scalar = try takeNext()
        if scalar == "[", let next, next == ":" || next == "." || next == "=" {
            let name = scalars[(position + 1)...].prefix { $0 != ":" && $0 != "]" }
            let end = position + 1 + name.count
            if next == ":", scalars[end...].starts(with: ":]".unicodeScalars) {
                var text = String.UnicodeScalarView()
                text.append(contentsOf: name)
                guard let known = Self.named[String(text)] else {
                    throw refused("this named class")
                }
                position = end + 2
                return .named(known)
            }
            guard next == ":" else { throw refused("a collating element") }
        }
        guard scalar == "\\" else { return .one(scalar) }
        let letter = try takeNext()
        if let shorthand = shorthand(letter) { return .shorthand(shorthand) }
        return .one(letter == "b" ? "\u{08}" : try character(escapedBy: letter))
    }
}

extension Unicode.Scalar {
    fileprivate var isDigit: Bool { ("0"..."9").contains(self) }
}
