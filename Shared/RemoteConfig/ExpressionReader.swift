internal import PushCore
internal import RegularExpressions

/// Reads an expression byte by byte, without backtracking, in linear time.
///
/// Blanks are allowed between the parts of an element; within a method call, only after a comma. A
/// string is enclosed in single quotes, has no escapes, and so contains no single quote.
struct ExpressionReader {
    typealias Element = ConfigExpression.Element
    typealias Comparison = ConfigExpression.Comparison

    private let bytes: [UInt8]
    private var place = 0
    private var installations = 0

    init(_ text: String) { bytes = Array(text.utf8) }

    mutating func expression(
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> [Element] {
        var elements: [Element] = []
        skipBlanks()
        while true {
            let first = place
            elements.append(try element(&context))
            guard context.takeElement() else {
                throw error(
                    "the template's conditions have together more than"
                        + " \(ExpressionContext.maximumElements) elements,",
                    at: first
                )
            }
            let hasBlank = skipBlanks()
            guard place < bytes.count else { return elements }
            let start = place
            guard take("&&") else { throw error("expected && or the end") }
            guard hasBlank, skipBlanks() else {
                throw error("expected a blank beside &&", at: start)
            }
        }
    }

    // MARK: Elements

    private mutating func element(
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> Element {
        let start = place
        let name = elementName()
        switch name {
        case "true": return .constant(true)
        case "false": return .constant(false)
        case "app.build": return try version(.build, .build, &context)
        case "app.version": return try version(.version, .version, &context)
        case "version": return try signalVersion()
        case "app.userProperty":
            return try property(ConfigExpression.Property.user, &context)
        case "app.customSignal":
            return try property(ConfigExpression.Property.signal, &context)
        case "app.id":
            _ = try comparison(of: name, [.equal])
            return .appID(try quoted())
        // The console also writes this name, and that of the installation's id, without `app.`.
        case "app.firstOpenTimestamp", "firstOpenTimestamp":
            let comparison = try comparison(
                of: name,
                [.less, .lessOrEqual, .greater, .greaterOrEqual]
            )
            if peek != UInt8(ascii: "(") { try dateTimeWord() }
            return .firstOpen(comparison, try time(&context))
        case "dateTime":
            let comparison = try comparison(of: name, [.less, .greaterOrEqual])
            try dateTimeWord()
            return .dateTime(comparison, try time(&context))
        case "app.firebaseInstallationId", "firebaseInstallationId":
            let ids = try inList(of: name, &context)
            installations += ids.count
            guard installations <= ConfigExpression.maximumInstallations else {
                throw error(
                    "more than \(ConfigExpression.maximumInstallations) installation ids",
                    at: start
                )
            }
            return .installation(ids)
        case "device.country": return .country(try inList(of: name, &context))
        case "device.language": return .language(try inList(of: name, &context))
        case "device.os":
            let comparison = try comparison(of: name, [.equal, .notEqual])
            return .operatingSystem(try quoted(), isWanted: comparison == .equal)
        case "percent": return try percent()
        // These elements need data that only Google has.
        case "app.audiences", "app.importedSegments", "app.operatingSystemAndVersion",
            "app.browserAndVersion":
            throw error("\(name) is not supported", at: start)
        case "": throw error("expected an element", at: start)
        default: throw error("unknown element \(name.shown)", at: start)
        }
    }

    /// Parses the rest after `app.version`: `.>=(['1.2'])`, or a method of strings.
    private mutating func version(
        _ source: ConfigExpression.VersionSource,
        _ field: ConfigExpression.VersionField,
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> Element {
        guard peek == UInt8(ascii: ".") else {
            throw error("expected a method of \(field.rawValue)")
        }
        place += 1
        let start = place
        guard let comparison = Comparison(rawValue: operatorMark()) else {
            place = start
            return .text(.version(field), try method(of: field.rawValue, &context))
        }
        try expect("([")
        let (numbers, text) = try versionNumbers()
        guard peek != UInt8(ascii: ",") else { throw error("one version, not several") }
        try expect("])")
        return .version(source, comparison, numbers, text: text)
    }

    /// Parses the rest after `version`: `(app.customSignal['k']) >= '1.2'`.
    private mutating func signalVersion() throws(ExpressionError) -> Element {
        try expect("(app.customSignal[")
        let start = place
        let key = try quoted()
        guard !key.isEmpty else { throw error("a key is empty", at: start) }
        try expect("])")
        let comparison = try comparison(
            of: "a version",
            [.equal, .notEqual, .less, .lessOrEqual, .greater, .greaterOrEqual]
        )
        let (numbers, text) = try versionNumbers()
        return .version(.signal(key), comparison, numbers, text: text)
    }

    private mutating func versionNumbers() throws(ExpressionError) -> (VersionNumbers, String) {
        let start = place
        let text = try quoted()
        guard let numbers = VersionNumbers(text) else {
            throw error("'\(text.shown)' is not a version such as 1.2.3", at: start)
        }
        return (numbers, text)
    }

    /// Parses the rest after `app.userProperty`: `['k'] >= 3`, or `['k']` and a method of strings.
    private mutating func property(
        _ make: (String) -> ConfigExpression.Property,
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> Element {
        try expect("[")
        let start = place
        let key = try quoted()
        guard !key.isEmpty else { throw error("a key is empty", at: start) }
        try expect("]")
        let property = make(key)
        if peek == UInt8(ascii: ".") {
            place += 1
            return .text(.property(property), try method(of: "a property", &context))
        }
        let comparison = try comparison(
            of: "a property",
            [.equal, .notEqual, .less, .lessOrEqual, .greater, .greaterOrEqual]
        )
        let constant = place
        let text = span { byte in
            switch byte {
            case UInt8(ascii: "+"), UInt8(ascii: "-"), UInt8(ascii: "."), 48...57,
                UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"):
                true
            default: false
            }
        }
        guard let number = ConfigNumber(text) else {
            throw error(
                text.isEmpty ? "expected a number" : "\(text.shown) is not a number",
                at: constant
            )
        }
        return .number(property, comparison, number)
    }

    /// Parses the method after the point, such as `contains(['a', 'b'])`.
    private mutating func method(
        of element: String,
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> ConfigExpression.TextMethod {
        let start = place
        let name = word()
        switch name {
        case "contains": return .contains(try arguments(&context))
        case "notContains": return .notContains(try arguments(&context))
        case "exactlyMatches": return .exactlyMatches(try arguments(&context))
        case "matches":
            let constants = place
            var patterns: [RegularExpression] = []
            for text in try arguments(&context) {
                do throws(PatternError) {
                    patterns.append(try context.pattern(text))
                } catch {
                    throw self.error(error.description, at: constants)
                }
            }
            return .matches(patterns)
        default:
            throw error(
                "unknown operator \(name.isEmpty ? operatorMark() : name.shown) of \(element)",
                at: start
            )
        }
    }

    private mutating func arguments(
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> [String] {
        try expect("(")
        let values = try list(&context)
        try expect(")")
        return values
    }

    private mutating func inList(
        of element: String,
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> [String] {
        skipBlanks()
        let start = place
        guard word() == "in" else { throw error("unknown operator of \(element)", at: start) }
        skipBlanks()
        return try list(&context)
    }

    /// Parses `['a', 'b']`: one value or more.
    private mutating func list(
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> [String] {
        try expect("[")
        guard peek != UInt8(ascii: "]") else { throw error("an empty list") }
        var values: [String] = []
        while true {
            let start = place
            values.append(try quoted())
            guard context.takeListedText() else {
                throw error(
                    "the template's lists have together more than"
                        + " \(ExpressionContext.maximumListedTexts) texts,",
                    at: start
                )
            }
            guard peek == UInt8(ascii: ",") else { break }
            place += 1
            skipBlanks()
        }
        try expect("]")
        return values
    }

    private mutating func dateTimeWord() throws(ExpressionError) {
        let start = place
        guard word().lowercased() == "datetime" else {
            throw error("expected dateTime(…)", at: start)
        }
    }

    /// Parses `('2026-01-01T00:00:00', 'Europe/Berlin')`.
    private mutating func time(
        _ context: inout ExpressionContext
    ) throws(ExpressionError) -> ConfigExpression.LocalTime {
        try expect("(")
        let start = place
        let text = try quoted()
        var zone: String?
        let zoneStart: Int
        if peek == UInt8(ascii: ",") {
            place += 1
            skipBlanks()
            zoneStart = place
            zone = try quoted()
        } else {
            zoneStart = place
        }
        try expect(")")
        // Only the common form is accepted, so that other systems can read it.
        guard text.utf8.count == 19, text.utf8.dropFirst(10).first == UInt8(ascii: "T"),
            !text.utf8.suffix(2).elementsEqual("60".utf8), let wall = LocalDateTime(iso8601: text)
        else { throw error("'\(text.shown)' is not a time such as 2026-01-31T23:59:00", at: start) }
        guard let rules = context.zones.zone(zone ?? "GMT") else {
            throw error("unknown time zone '\(zone?.shown ?? "GMT")'", at: zoneStart)
        }
        return ConfigExpression.LocalTime(text: text, zone: zone, instant: rules.instant(of: wall))
    }

    /// Parses the rest after `percent`.
    private mutating func percent() throws(ExpressionError) -> Element {
        var seed: String?
        if peek == UInt8(ascii: "(") {
            place += 1
            let start = place
            let text = try quoted()
            guard PercentSeed.isSeed(text) else {
                throw error(
                    "a seed is at most 32 characters of -_.0-9a-zA-Z, not '\(text.shown)'",
                    at: start
                )
            }
            try expect(")")
            if !text.isEmpty { seed = text }
        }
        skipBlanks()
        let start = place
        if word() == "between" {
            let lower = try percentage()
            skipBlanks()
            let andPlace = place
            guard word() == "and" else { throw error("expected and", at: andPlace) }
            let upperPlace = place
            let upper = try percentage()
            guard lower <= upper else { throw error("the bounds are reversed", at: upperPlace) }
            return .percent(seed: seed, .between(lower, upper))
        }
        place = start
        switch try comparison(of: "percent", [.lessOrEqual, .greater]) {
        case .lessOrEqual: return .percent(seed: seed, .atMost(try percentage()))
        case .greater, .equal, .notEqual, .less, .greaterOrEqual:
            return .percent(seed: seed, .over(try percentage()))
        }
    }

    /// Parses 0 to 100, with at most six digits after the point, in millionths.
    private mutating func percentage() throws(ExpressionError) -> Int {
        skipBlanks()
        let start = place
        let digits = span { (48...57).contains($0) }
        guard !digits.isEmpty else { throw error("expected a percentage") }
        // More digits are always over 100.
        var value = (digits.utf8.count > 9 ? 1000 : Int(digits) ?? 1000) * 1_000_000
        if peek == UInt8(ascii: ".") {
            place += 1
            let fraction = span { (48...57).contains($0) }
            guard (1...6).contains(fraction.utf8.count) else {
                throw error("a percentage has one to six digits after the point", at: start)
            }
            value +=
                (Int(fraction) ?? 0) * [100_000, 10_000, 1000, 100, 10, 1][fraction.utf8.count - 1]
        }
        guard value <= ConfigExpression.PercentRule.whole else {
            throw error("percent over 100", at: start)
        }
        return value
    }

    // MARK: Parts

    private mutating func comparison(
        of element: String,
        _ allowed: [Comparison]
    ) throws(ExpressionError) -> Comparison {
        skipBlanks()
        let start = place
        let mark = operatorMark()
        guard let comparison = Comparison(rawValue: mark), allowed.contains(comparison) else {
            let shown = mark.isEmpty ? word().shown : mark
            throw error("unknown operator \(shown) of \(element)", at: start)
        }
        skipBlanks()
        return comparison
    }

    private mutating func operatorMark() -> String {
        let start = place
        let mark = span { byte in
            switch byte {
            case UInt8(ascii: "="), UInt8(ascii: "!"), UInt8(ascii: "<"), UInt8(ascii: ">"): true
            default: false
            }
        }
        guard mark.utf8.count <= 2 else {
            place = start + 3
            return String(decoding: bytes[start..<place], as: UTF8.self)
        }
        return mark
    }

    /// Reads a word, or two with a point between: in `app.version.contains` the third is its method.
    private mutating func elementName() -> String {
        let first = word()
        guard !first.isEmpty, peek == UInt8(ascii: "."), place + 1 < bytes.count,
            Self.isLetterOrDigit(bytes[place + 1])
        else { return first }
        place += 1
        return "\(first).\(word())"
    }

    private mutating func word() -> String {
        span { Self.isLetterOrDigit($0) || $0 == UInt8(ascii: "_") }
    }

    private static func isLetterOrDigit(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"), 48...57:
            true
        default: false
        }
    }

    /// Reads a string in single quotes.
    private mutating func quoted() throws(ExpressionError) -> String {
        guard peek == UInt8(ascii: "'") else { throw error("expected a text in single quotes") }
        let start = place
        place += 1
        let text = span { $0 != UInt8(ascii: "'") }
        guard place < bytes.count else { throw error("a text is not closed", at: start) }
        place += 1
        return text
    }

    private var peek: UInt8? { place < bytes.count ? bytes[place] : nil }

    private mutating func span(while belongs: (UInt8) -> Bool) -> String {
        let start = place
        while place < bytes.count, belongs(bytes[place]) { place += 1 }
        return String(decoding: bytes[start..<place], as: UTF8.self)
    }

    @discardableResult
    private mutating func skipBlanks() -> Bool {
        let start = place
        while let byte = peek, byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D {
            place += 1
        }
        return place > start
    }

    private mutating func take(_ text: StaticString) -> Bool {
        let count = text.utf8CodeUnitCount
        guard bytes.count - place >= count else { return false }
        for index in 0..<count {
            guard unsafe bytes[place + index] == text.utf8Start[index] else { return false }
        }
        place += count
        return true
    }

    private mutating func expect(_ text: StaticString) throws(ExpressionError) {
        guard take(text) else { throw error("expected \(text)") }
    }

    private func error(_ problem: String, at place: Int? = nil) -> ExpressionError {
        let before = bytes[..<(place ?? self.place)]
        return ExpressionError(problem, at: before.count { $0 & 0xC0 != 0x80 } + 1)
    }
}

/// The seed of a percentage's hash.
enum PercentSeed {
    static func isSeed(_ text: String) -> Bool {
        text.utf8.count <= 32
            && text.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."), 48...57,
                    UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"):
                    true
                default: false
                }
            }
    }
}
