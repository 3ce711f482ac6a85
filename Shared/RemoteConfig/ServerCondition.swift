internal import JSON

/// The validation of a server template's condition. It is only evaluated by the Admin SDKs.
enum ServerCondition {
    /// The maximum depth of nested conditions, with the outermost and the innermost.
    static let maximumDepth = 10
    static let maximumTargets = 100
    static let maximumKeyLength = 250
    static let maximumTargetLength = 500

    /// - Throws: `ServerConditionError` with the problem.
    static func check(
        _ value: JSONValue,
        _ context: inout ExpressionContext,
        depth: Int = 1
    ) throws(ServerConditionError) {
        guard depth <= maximumDepth else {
            throw ServerConditionError("conditions are nested more than \(maximumDepth) deep")
        }
        guard let object = value.object else {
            throw ServerConditionError("condition is \(value.kindShown), not an object")
        }
        guard object.count == 1, let (name, rule) = object.first(where: { _ in true }) else {
            throw ServerConditionError("a condition is one thing, not \(object.count)")
        }
        guard let members = rule.object else {
            throw ServerConditionError("\(name.shown) is \(rule.kindShown), not an object")
        }
        switch name {
        case "orCondition", "andCondition":
            try known(members, ["conditions"], in: name)
            guard let inner = (members["conditions"] ?? []).array else {
                let kind = (members["conditions"] ?? .null).kindShown
                throw ServerConditionError("\(name).conditions is \(kind), not a list")
            }
            for condition in inner { try check(condition, &context, depth: depth + 1) }
        case "true", "false": try known(members, [], in: name)
        case "percent": try percent(members)
        case "customSignal": try customSignal(members, &context)
        default: throw ServerConditionError("unknown condition \(name.shown)")
        }
    }

    /// Returns a condition in the only form that the Admin SDKs read: names in camel case, whole
    /// numbers as numbers, and no nulls. Unknown members stay, and `check` rejects them.
    static func canonical(_ value: JSONValue) throws(ServerConditionError) -> JSONValue {
        if let list = value.array {
            var result: [JSONValue] = []
            for element in list { result.append(try canonical(element)) }
            return .array(result)
        }
        guard let members = value.object else { return value }
        let fields: JSONObject
        do throws(RepeatedField) {
            fields = try FieldNames.camelCase(members)
        } catch {
            throw ServerConditionError("\(error.name) comes twice, in both spellings")
        }
        var result = JSONObject()
        for (name, value) in fields where !value.isNull {
            if name.hasPrefix("microPercent"), let number = Self.wholeNumber(value) {
                result[name] = JSONValue(number)
            } else {
                result[name] = try canonical(value)
            }
        }
        return .object(result)
    }

    /// Returns a 32-bit number of proto3's JSON, which may also be a string, or have a fraction of
    /// zero.
    private static func wholeNumber(_ value: JSONValue) -> Int? {
        if let number = value.integer { return number }
        guard let text = value.string, let number = ConfigNumber(text) else { return nil }
        return JSONValue.double(number.value).integer
    }

    private static func percent(_ members: JSONObject) throws(ServerConditionError) {
        try known(
            members,
            ["percentOperator", "microPercent", "microPercentRange", "seed"],
            in: "percent"
        )
        if let seed = members["seed"] {
            guard let text = seed.string, PercentSeed.isSeed(text) else {
                throw ServerConditionError(
                    "a seed is at most 32 characters of -_.0-9a-zA-Z, not \(seed.shown)"
                )
            }
        }
        switch members["percentOperator"]?.string ?? "" {
        case "LESS_OR_EQUAL", "GREATER_THAN":
            _ = try microPercent(members["microPercent"], "microPercent")
        case "BETWEEN":
            guard let range = members["microPercentRange"]?.object else {
                throw ServerConditionError("percent has no microPercentRange")
            }
            let names = ["microPercentLowerBound", "microPercentUpperBound"]
            try known(range, names, in: "microPercentRange")
            let lower = try microPercent(range[names[0]], names[0])
            let upper = try microPercent(range[names[1]], names[1])
            guard lower <= upper else { throw ServerConditionError("the bounds are reversed") }
        case let other: throw ServerConditionError("unknown percentOperator \(other.shown)")
        }
    }

    /// Returns a number; an absent one is 0.
    private static func microPercent(
        _ value: JSONValue?,
        _ name: String
    ) throws(ServerConditionError) -> Int {
        guard let value else { return 0 }
        guard let number = value.integer, (0...ConfigExpression.PercentRule.whole).contains(number)
        else {
            throw ServerConditionError(
                "\(name) is 0 to \(ConfigExpression.PercentRule.whole), not \(value.shown)"
            )
        }
        return number
    }

    private static func customSignal(
        _ members: JSONObject,
        _ context: inout ExpressionContext
    ) throws(ServerConditionError) {
        try known(
            members,
            ["customSignalOperator", "customSignalKey", "targetCustomSignalValues"],
            in: "customSignal"
        )
        guard let key = members["customSignalKey"]?.string, !key.isEmpty,
            key.scalarCount <= maximumKeyLength, !key.utf8.contains(0)
        else {
            let given = (members["customSignalKey"] ?? .null).shown
            throw ServerConditionError(
                "customSignalKey is 1 to \(maximumKeyLength) characters, not \(given)"
            )
        }
        guard let targets = members["targetCustomSignalValues"]?.array,
            (1...maximumTargets).contains(targets.count)
        else {
            throw ServerConditionError(
                "targetCustomSignalValues are not 1 to \(maximumTargets) texts"
            )
        }
        var texts: [String] = []
        for target in targets {
            guard let text = target.string, text.scalarCount <= maximumTargetLength,
                !text.utf8.contains(0)
            else {
                throw ServerConditionError(
                    "a target is a text of at most \(maximumTargetLength) characters, not \(target.shown)"
                )
            }
            texts.append(text)
        }
        let name = members["customSignalOperator"]?.string ?? ""
        let given = texts.prefix(3).map { "\"\($0.shown)\"" }.joined(separator: ", ")
        switch name {
        case "STRING_CONTAINS", "STRING_DOES_NOT_CONTAIN", "STRING_EXACTLY_MATCHES": break
        case "STRING_CONTAINS_REGEX":
            for text in texts {
                do throws(PatternError) {
                    _ = try context.serverPattern(text)
                } catch {
                    throw ServerConditionError(error.description)
                }
            }
        case _ where comparisons.contains { name == "NUMERIC_\($0)" }:
            guard texts.count == 1, ConfigNumber(texts[0]) != nil else {
                throw ServerConditionError("\(name) needs one number, not \(given)")
            }
        case _ where comparisons.contains { name == "SEMANTIC_VERSION_\($0)" }:
            guard texts.count == 1, VersionNumbers(texts[0]) != nil else {
                throw ServerConditionError("\(name) needs one version, not \(given)")
            }
        default: throw ServerConditionError("unknown customSignalOperator \(name.shown)")
        }
    }

    private static let comparisons = [
        "LESS_THAN", "LESS_EQUAL", "EQUAL", "NOT_EQUAL", "GREATER_THAN", "GREATER_EQUAL",
    ]

    private static func known(
        _ members: JSONObject,
        _ names: [String],
        in place: String
    ) throws(ServerConditionError) {
        for (name, _) in members where !names.holds(name) {
            throw ServerConditionError("\(place).\(name.shown) is not known")
        }
    }
}

/// The problem of a server template's condition.
struct ServerConditionError: Error, Equatable, Sendable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
