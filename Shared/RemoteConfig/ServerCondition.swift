internal import JSON

/// Checks a condition of a server template. The Admin SDKs evaluate it; nobody here does.
enum ServerCondition {
    /// How many conditions may stand within each other, the outermost and the innermost among them.
    static let maximumDepth = 10
    static let maximumTargets = 100
    static let maximumKeyLength = 250
    static let maximumTargetLength = 500

    /// - Throws: `ServerConditionError` with what is wrong.
    static func check(
        _ value: JSONValue,
        _ context: inout ExpressionContext,
        depth: Int = 1
    ) throws(ServerConditionError) {
        guard depth <= maximumDepth else {
            throw ServerConditionError("conditions are nested more than \(maximumDepth) deep")
        }
        guard let object = value.object else {
            throw ServerConditionError("condition is no object")
        }
        guard object.count == 1, let (name, rule) = object.first(where: { _ in true }) else {
            throw ServerConditionError("a condition is one thing, not \(object.count)")
        }
        guard let members = rule.object else {
            throw ServerConditionError("\(name.shown) is no object")
        }
        switch name {
        case "orCondition", "andCondition":
            try known(members, ["conditions"], in: name)
            guard let inner = (members["conditions"] ?? []).array else {
                throw ServerConditionError("\(name).conditions is no list")
            }
            for condition in inner { try check(condition, &context, depth: depth + 1) }
        case "true", "false": try known(members, [], in: name)
        case "percent": try percent(members)
        case "customSignal": try customSignal(members, &context)
        default: throw ServerConditionError("unknown condition \(name.shown)")
        }
    }

    private static func percent(_ members: JSONObject) throws(ServerConditionError) {
        try known(
            members,
            ["percentOperator", "microPercent", "microPercentRange", "seed"],
            in: "percent"
        )
        if let seed = members["seed"] {
            guard let text = seed.string, PercentSeed.isSeed(text) else {
                throw ServerConditionError("a seed is at most 32 characters of -_.0-9a-zA-Z")
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

    /// A number that is not written is 0.
    private static func microPercent(
        _ value: JSONValue?,
        _ name: String
    ) throws(ServerConditionError) -> Int {
        guard let value else { return 0 }
        guard let number = value.integer, (0...ConfigExpression.PercentRule.whole).contains(number)
        else {
            throw ServerConditionError("\(name) is not 0 to \(ConfigExpression.PercentRule.whole)")
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
            throw ServerConditionError("customSignalKey is not 1 to \(maximumKeyLength) characters")
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
                    "a target is no text of at most \(maximumTargetLength) characters"
                )
            }
            texts.append(text)
        }
        let name = members["customSignalOperator"]?.string ?? ""
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
                throw ServerConditionError("\(name) needs one number")
            }
        case _ where comparisons.contains { name == "SEMANTIC_VERSION_\($0)" }:
            guard texts.count == 1, VersionNumbers(texts[0]) != nil else {
                throw ServerConditionError("\(name) needs one version")
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

/// What is wrong with a condition of a server template.
struct ServerConditionError: Error, Equatable, Sendable, CustomStringConvertible {
    let description: String

    init(_ description: String) { self.description = description }
}
