import HTTPServer
import JSON

/// The reason why a control request is invalid; names the field.
struct ControlError: Error, Equatable, CustomStringConvertible {
    let field: String
    let problem: String

    init(_ field: String, _ problem: String) {
        self.field = field
        self.problem = problem
    }

    var description: String { "\(field) \(problem)" }
}

/// An exact string, or a regular expression between slashes that must match somewhere.
struct TextPattern {
    private let text: String
    private let expression: Regex<AnyRegexOutput>?

    init(_ text: String, field: String) throws(ControlError) {
        self.text = text
        guard text.utf8.count >= 2, text.hasPrefix("/"), text.hasSuffix("/") else {
            expression = nil
            return
        }
        do {
            expression = try Regex(String(text.dropFirst().dropLast()))
        } catch {
            throw ControlError(field, "must be a regular expression")
        }
    }

    func matches(_ candidate: String?) -> Bool {
        guard let candidate else { return false }
        guard let expression else { return candidate == text }
        return (try? expression.firstMatch(in: candidate)) != nil
    }
}

/// One scripted answer. It applies only to requests that the provider would have accepted.
struct Rule {
    enum Ending: String, Sendable {
        /// The answer is sent.
        case answer
        /// No answer is ever sent.
        case hang
        /// The stream is reset.
        case reset
        /// GOAWAY. If the rule has a status, it follows the answer. Otherwise it declares the
        /// request unprocessed.
        case goaway
    }

    /// The rule as given, for `GET /rules`.
    let source: JSONObject
    var provider: Provider?
    var token: TextPattern?
    /// An extension of the contract. Without a path, a rule applies to pushes only. With a path, it
    /// applies to any request with that path, including those to token endpoints.
    var path: TextPattern?
    var percent = 100.0
    var status: Int?
    var reason: String?
    var headers = HTTPHeaders()
    var body: [UInt8]?
    var timestamp: Int64?
    var delayMilliseconds: ClosedRange<Int> = 0...0
    var ending = Ending.answer
    var remaining = Int.max

    private static let fields: Set<String> = [
        "provider", "token", "path", "percent", "status", "reason", "headers", "body", "timestamp",
        "delayMs", "then", "times",
    ]

    init(_ value: JSONValue, at place: String) throws(ControlError) {
        guard let object = value.object else { throw ControlError(place, "is not an object") }
        source = object
        for key in object.keys where !Self.fields.contains(key) {
            throw ControlError("\(place).\(key)", "is not known")
        }
        let reader = FieldReader(object, at: place)
        if let name = try reader.text("provider") {
            guard let provider = Provider(rawValue: name) else {
                throw ControlError("\(place).provider", "is not apns, fcm, wns or mpns")
            }
            self.provider = provider
        }
        if let text = try reader.text("token") {
            token = try TextPattern(text, field: "\(place).token")
        }
        if let text = try reader.text("path") {
            path = try TextPattern(text, field: "\(place).path")
        }
        percent = try reader.number("percent", in: 0...100) ?? 100
        status = try reader.integer("status", in: 200...599)
        reason = try reader.text("reason")
        timestamp = try reader.integer("timestamp", in: 0...Int.max).map(Int64.init)
        remaining = try reader.integer("times", in: 1...Int.max) ?? .max
        headers = try Self.headers(object["headers"], "\(place).headers")
        switch object["body"] {
        case nil, .null?: break
        case .string(let text)?: body = Array(text.utf8)
        case let value?: body = value.bytes
        }
        delayMilliseconds = try Self.delay(object["delayMs"], "\(place).delayMs")
        if let name = try reader.text("then") {
            guard let ending = Ending(rawValue: name) else {
                throw ControlError("\(place).then", "is not answer, hang, reset or goaway")
            }
            self.ending = ending
        }
    }

    private static func headers(
        _ value: JSONValue?,
        _ field: String
    ) throws(ControlError) -> HTTPHeaders {
        var headers = HTTPHeaders()
        guard let value, !value.isNull else { return headers }
        guard let object = value.object else { throw ControlError(field, "is not an object") }
        for (name, value) in object {
            guard name.consists(of: "-_", length: 1...100), let text = value.string,
                text.unicodeScalars.allSatisfy({ (0x20...0x7E).contains($0.value) })
            else { throw ControlError("\(field).\(name)", "is not a header with a plain text") }
            headers.add(name, text)
        }
        return headers
    }

    private static func delay(
        _ value: JSONValue?,
        _ field: String
    ) throws(ControlError) -> ClosedRange<Int> {
        guard let value, !value.isNull else { return 0...0 }
        let bounds = value.integer.map { [$0, $0] } ?? value.array?.compactMap(\.integer) ?? []
        guard bounds.count == 2, 0...600_000 ~= bounds[0], bounds[0]...600_000 ~= bounds[1] else {
            throw ControlError(field, "is neither milliseconds nor [from, to]")
        }
        return bounds[0]...bounds[1]
    }
}

/// Typed access to a control request's object.
struct FieldReader {
    private let object: JSONObject
    private let place: String

    init(_ object: JSONObject, at place: String) {
        self.object = object
        self.place = place
    }

    private func value(_ name: String) -> JSONValue? {
        guard let value = object[name], !value.isNull else { return nil }
        return value
    }

    private func name(_ field: String) -> String { place.isEmpty ? field : "\(place).\(field)" }

    func text(_ field: String) throws(ControlError) -> String? {
        guard let value = value(field) else { return nil }
        guard let text = value.string else { throw ControlError(name(field), "is not a string") }
        return text
    }

    func required(_ field: String) throws(ControlError) -> String {
        guard let text = try text(field), !text.isEmpty else {
            throw ControlError(name(field), "is missing")
        }
        return text
    }

    func integer(_ field: String, in range: ClosedRange<Int>) throws(ControlError) -> Int? {
        guard let value = value(field) else { return nil }
        guard let number = value.integer, range.contains(number) else {
            throw ControlError(name(field), "is not a whole number from \(range.lowerBound) up")
        }
        return number
    }

    func number(_ field: String, in range: ClosedRange<Double>) throws(ControlError) -> Double? {
        guard let value = value(field) else { return nil }
        guard let number = value.double, range.contains(number) else {
            throw ControlError(name(field), "is not a number in \(range)")
        }
        return number
    }
}

/// The current rules; the first that matches wins.
struct RuleSet {
    private static let limit = 10_000

    private var rules: [Rule] = []

    /// Replaces all rules. If one of them is invalid, the old rules stay.
    mutating func replace(with value: JSONValue) throws(ControlError) {
        guard let list = value.array else { throw ControlError("rules", "are not a list") }
        guard list.count <= Self.limit else {
            throw ControlError("rules", "are more than \(Self.limit)")
        }
        var replacement: [Rule] = []
        for (index, value) in list.enumerated() {
            replacement.append(try Rule(value, at: "rules[\(index)]"))
        }
        rules = replacement
    }

    var listing: JSONValue {
        .array(
            rules.map { rule in
                var object = rule.source
                if object["times"] != nil { object["remaining"] = JSONValue(rule.remaining) }
                return .object(object)
            }
        )
    }

    /// Returns the first rule that matches a request, and counts its use.
    ///
    /// `isPush` is false for the token endpoints, to which only rules with a path apply; `roll` returns a
    /// random number in 0..<100, called for each rule that has a percentage.
    mutating func take(
        _ provider: Provider,
        token: String?,
        path: String,
        isPush: Bool,
        roll: () -> Double
    ) -> Rule? {
        for index in rules.indices {
            let rule = rules[index]
            guard rule.remaining > 0, rule.provider == nil || rule.provider == provider,
                rule.token?.matches(token) ?? true,
                rule.path?.matches(path) ?? isPush,
                rule.percent >= 100 || roll() < rule.percent
            else { continue }
            if rule.remaining != .max { rules[index].remaining -= 1 }
            return rule
        }
        return nil
    }
}
