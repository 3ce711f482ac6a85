internal import PushCore
internal import RegularExpressions

/// The expression of one condition of a client template: elements, all of which must hold.
///
/// A value, made by the reader and evaluated unchanged: constants were parsed, patterns compiled
/// and local times converted to instants when it was read. Its `description` is a string that
/// parses to the same expression.
struct ConfigExpression: Sendable, CustomStringConvertible {
    /// The maximum of ids that `app.firebaseInstallationId in` may name in one condition.
    static let maximumInstallations = 50

    enum Element: Sendable {
        case constant(Bool)
        /// `app.version.>=(['1.2'])`, `version(app.customSignal['k']) >= '1.2'`
        case version(VersionSource, Comparison, VersionNumbers, text: String)
        /// `app.userProperty['k'].contains(['a', 'b'])`
        case text(TextField, TextMethod)
        /// `app.customSignal['k'] >= 3`
        case number(Property, Comparison, ConfigNumber)
        case appID(String)
        case firstOpen(Comparison, LocalTime)
        case dateTime(Comparison, LocalTime)
        /// `app.firebaseInstallationId in [‘…’]`
        case installation([String])
        case country([String])
        case language([String])
        case operatingSystem(String, isWanted: Bool)
        /// The seed is `nil` if it is empty.
        case percent(seed: String?, PercentRule)
    }

    enum VersionField: String, Sendable {
        case build = "app.build"
        case version = "app.version"
    }

    /// The operand of a version comparison.
    enum VersionSource: Sendable, Equatable {
        case build
        case version
        /// A custom signal, by its key.
        case signal(String)
    }

    /// A value under a key that the app sets for its user, or for itself.
    enum Property: Sendable, Equatable {
        case user(String)
        case signal(String)
    }

    enum TextField: Sendable, Equatable {
        case version(VersionField)
        case property(Property)
    }

    enum TextMethod: Sendable {
        case contains([String])
        case notContains([String])
        case exactlyMatches([String])
        case matches([RegularExpression])
    }

    enum Comparison: String, Sendable {
        case equal = "=="
        case notEqual = "!="
        case less = "<"
        case lessOrEqual = "<="
        case greater = ">"
        case greaterOrEqual = ">="

        func holds<Value: Comparable>(_ left: Value, _ right: Value) -> Bool {
            switch self {
            case .equal: left == right
            case .notEqual: left != right
            case .less: left < right
            case .lessOrEqual: left <= right
            case .greater: left > right
            case .greaterOrEqual: left >= right
            }
        }
    }

    /// A local time in some zone.
    struct LocalTime: Sendable, Equatable {
        let text: String
        /// `nil` is GMT.
        let zone: String?
        let instant: Instant
    }

    /// The bounds in hundred millionths, as in the Admin SDKs.
    enum PercentRule: Sendable, Equatable {
        case atMost(Int)
        case over(Int)
        /// More than the first, and at most the second.
        case between(Int, Int)

        static let whole = 100_000_000

        func holds(_ value: Int) -> Bool {
            switch self {
            case .atMost(let bound): value <= bound
            case .over(let bound): value > bound
            case .between(let lower, let upper): value > lower && value <= upper
            }
        }
    }

    let elements: [Element]

    /// - Throws: `ExpressionError` with the problem and its position.
    init(_ text: String, in context: inout ExpressionContext) throws(ExpressionError) {
        var reader = ExpressionReader(text)
        elements = try reader.expression(&context)
    }

    var description: String { elements.map(\.text).joined(separator: " && ") }
}

/// The shared state of reading the expressions of one template: the time zones that were looked up,
/// and the limits of all patterns, elements and lists.
struct ExpressionContext {
    /// The limit of all compiled patterns of a template. Compiling so much takes a tenth of a second.
    static let maximumPatternBytes = 4 << 20
    /// The limit of elements in all conditions of a template: ten for each of the maximum of
    /// conditions. A fetch evaluates each element once, some of them by a hash, while its loop's
    /// other clients wait.
    static let maximumElements = 20_000
    /// The limit of strings in all lists of a template: a hundred for each of the maximum of
    /// conditions. A fetch compares each string once.
    static let maximumListedTexts = 200_000

    /// The limit for all patterns of a template; see `RegularExpression.maximumFoldedCharacters`. A
    /// tenth of a second.
    static let maximumFoldedCharacters = 10 * RegularExpression.maximumFoldedCharacters
    /// The limit of the cost of all patterns of a template. Searching each once in a string of 50
    /// bytes takes the budget of a fetch.
    static let maximumStepsPerByte = EvaluationContext.stepsPerFetch / 50

    var zones = TimeZones()
    private(set) var patternBytes = 0
    private var elements = 0
    private var listedTexts = 0
    private var foldedCharacters = 0
    private var stepsPerByte = 0
    private let isStored: Bool

    /// - Parameter isStored: Whether the template was published before. If so, the cost of its
    ///   patterns is limited only during evaluation.
    init(isStored: Bool = false) { self.isStored = isStored }

    /// Compiles a pattern of a client template.
    ///
    /// - Throws: `PatternError` for a pattern that RE2 would reject, or if the template's patterns
    ///   together exceed a limit.
    mutating func pattern(_ text: String) throws(PatternError) -> RegularExpression {
        let pattern = try serverPattern(text)
        patternBytes += pattern.weightBytes
        guard patternBytes <= Self.maximumPatternBytes else {
            throw PatternError(
                "the template's patterns are together larger than \(Self.maximumPatternBytes) bytes"
                    + " when compiled,"
            )
        }
        stepsPerByte += pattern.stepsPerByte
        guard isStored || stepsPerByte <= Self.maximumStepsPerByte else {
            throw PatternError(
                "the template's patterns, or their classes of characters beyond U+00FF, are too many"
                    + " for one fetch,"
            )
        }
        return pattern
    }

    /// Compiles a pattern of a server template, which is only validated here.
    mutating func serverPattern(_ text: String) throws(PatternError) -> RegularExpression {
        let pattern: RegularExpression
        do throws(RegularExpressionError) {
            pattern = try RegularExpression(text, isStored: isStored)
        } catch {
            throw PatternError("a pattern is not RE2's (\(error.description))")
        }
        foldedCharacters += pattern.foldedCharacters
        guard isStored || foldedCharacters <= Self.maximumFoldedCharacters else {
            throw PatternError(
                "the template's patterns apply (?i) to classes of more than"
                    + " \(Self.maximumFoldedCharacters) characters together,"
            )
        }
        return pattern
    }

    /// - Returns: Whether the limit allows one more.
    mutating func takeElement() -> Bool {
        elements += 1
        return elements <= Self.maximumElements
    }

    /// - Returns: Whether the limit allows one more.
    mutating func takeListedText() -> Bool {
        listedTexts += 1
        return listedTexts <= Self.maximumListedTexts
    }
}

/// The reason why a pattern is invalid.
struct PatternError: Error, Equatable, Sendable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}

/// The reason why an expression is invalid.
struct ExpressionError: Error, Equatable, Sendable, CustomStringConvertible {
    let description: String

    /// Makes the error at the position of a character; the first is 1.
    init(_ problem: String, at place: Int) { description = "\(problem) at \(place)" }
}

extension ConfigExpression.Element {
    var text: String {
        switch self {
        case .constant(let value): value ? "true" : "false"
        case .version(.signal(let key), let comparison, _, let text):
            "version(app.customSignal['\(key)']) \(comparison.rawValue) '\(text)'"
        case .version(.build, let comparison, _, let text):
            "app.build.\(comparison.rawValue)(['\(text)'])"
        case .version(.version, let comparison, _, let text):
            "app.version.\(comparison.rawValue)(['\(text)'])"
        case .text(let field, let method): "\(field.text).\(method.text)"
        case .number(let property, let comparison, let number):
            "\(property.text) \(comparison.rawValue) \(number.text)"
        case .appID(let id): "app.id == '\(id)'"
        case .firstOpen(let comparison, let time):
            "app.firstOpenTimestamp \(comparison.rawValue) \(time.parenthesized)"
        case .dateTime(let comparison, let time):
            "dateTime \(comparison.rawValue) dateTime\(time.parenthesized)"
        case .installation(let ids): "app.firebaseInstallationId in \(list(ids))"
        case .country(let codes): "device.country in \(list(codes))"
        case .language(let tags): "device.language in \(list(tags))"
        case .operatingSystem(let name, let isWanted):
            "device.os \(isWanted ? "==" : "!=") '\(name)'"
        case .percent(let seed, let rule):
            "percent\(seed.map { "('\($0)')" } ?? "") \(rule.text)"
        }
    }
}

extension ConfigExpression.Property {
    fileprivate var text: String {
        switch self {
        case .user(let key): "app.userProperty['\(key)']"
        case .signal(let key): "app.customSignal['\(key)']"
        }
    }
}

extension ConfigExpression.TextField {
    fileprivate var text: String {
        switch self {
        case .version(let field): field.rawValue
        case .property(let property): property.text
        }
    }
}

extension ConfigExpression.TextMethod {
    fileprivate var text: String {
        switch self {
        case .contains(let values): "contains(\(list(values)))"
        case .notContains(let values): "notContains(\(list(values)))"
        case .exactlyMatches(let values): "exactlyMatches(\(list(values)))"
        case .matches(let patterns): "matches(\(list(patterns.map(\.pattern))))"
        }
    }
}

extension ConfigExpression.LocalTime {
    fileprivate var parenthesized: String { "('\(text)'\(zone.map { ", '\($0)'" } ?? ""))" }
}

extension ConfigExpression.PercentRule {
    fileprivate var text: String {
        switch self {
        case .atMost(let bound): "<= \(Self.percent(bound))"
        case .over(let bound): "> \(Self.percent(bound))"
        case .between(let lower, let upper):
            "between \(Self.percent(lower)) and \(Self.percent(upper))"
        }
    }

    private static func percent(_ millionths: Int) -> String {
        let (whole, rest) = millionths.quotientAndRemainder(dividingBy: 1_000_000)
        guard rest > 0 else { return String(whole) }
        var digits = String(rest + 1_000_000).dropFirst()
        while digits.last == "0" { digits.removeLast() }
        return "\(whole).\(digits)"
    }
}

private func list(_ values: [String]) -> String {
    "[\(values.map { "'\($0)'" }.joined(separator: ", "))]"
}
