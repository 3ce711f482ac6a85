internal import JSON
internal import RegularExpressions

/// The conversion of server templates' expressions, as Firebase's console writes them, to the form
/// that the Admin SDKs can evaluate.
extension ServerCondition {
    /// Converts an expression to a condition.
    ///
    /// - Throws: `ServerConditionError` for an element that only client templates have.
    static func condition(
        of expression: ConfigExpression
    ) throws(ServerConditionError) -> JSONValue {
        var all: [JSONValue] = []
        for element in expression.elements { all.append(try condition(of: element)) }
        // The console's own form.
        return ["orCondition": ["conditions": [["andCondition": ["conditions": .array(all)]]]]]
    }

    /// Returns a condition of a stored template in the form that all Admin SDKs read. A condition
    /// that only has an expression gets the equivalent `condition`. Each percentage gets a
    /// `microPercentRange`, without which Java's SDK rejects the template. A condition that cannot
    /// be parsed is unchanged.
    static func served(_ condition: JSONValue) -> JSONValue {
        guard var object = condition.object else { return condition }
        if object["condition"] == nil, let text = object["expression"]?.string {
            var context = ExpressionContext(isStored: true)
            guard let expression = try? ConfigExpression(text, in: &context),
                let rule = try? Self.condition(of: expression)
            else { return condition }
            object["condition"] = rule
        }
        if let rule = object["condition"] { object["condition"] = withRanges(rule) }
        return .object(object)
    }

    private static func withRanges(_ rule: JSONValue) -> JSONValue {
        guard var members = rule.object else { return rule }
        for name in ["orCondition", "andCondition"] {
            guard let list = members[name]?["conditions"]?.array else { continue }
            members[name] = ["conditions": .array(list.map(withRanges))]
        }
        if var percent = members["percent"]?.object, percent["microPercentRange"] == nil {
            percent["microPercentRange"] = [:]
            members["percent"] = .object(percent)
        }
        return .object(members)
    }

    private static func condition(
        of element: ConfigExpression.Element
    ) throws(ServerConditionError) -> JSONValue {
        switch element {
        case .constant(true): return ["true": [:]]
        case .constant(false): return ["false": [:]]
        case .percent(let seed, let rule): return ["percent": .object(members(of: rule, seed))]
        case .number(.signal(let key), let comparison, let number):
            return signal(key, "NUMERIC_\(name(of: comparison))", [number.text])
        case .version(.signal(let key), let comparison, _, let text):
            return signal(key, "SEMANTIC_VERSION_\(name(of: comparison))", [text])
        case .text(.property(.signal(let key)), let method):
            switch method {
            case .contains(let texts): return signal(key, "STRING_CONTAINS", texts)
            case .notContains(let texts): return signal(key, "STRING_DOES_NOT_CONTAIN", texts)
            case .exactlyMatches(let texts): return signal(key, "STRING_EXACTLY_MATCHES", texts)
            case .matches(let patterns):
                return signal(key, "STRING_CONTAINS_REGEX", patterns.map(\.pattern))
            }
        case .number(.user, _, _), .version(.build, _, _, _), .version(.version, _, _, _),
            .text(.property(.user), _), .text(.version, _), .appID, .firstOpen, .dateTime,
            .installation, .country, .language, .operatingSystem:
            throw ServerConditionError(
                "servers' templates have percent and app.customSignal, not \(element.text.shown)"
            )
        }
    }

    /// The seed of a percentage that has none, as Java's Admin SDK rejects a whole template because
    /// of such a percentage.
    private static let seed = "percent"

    private static func members(
        of rule: ConfigExpression.PercentRule,
        _ seed: String?
    ) -> JSONObject {
        var members: JSONObject
        switch rule {
        case .atMost(let bound):
            members = ["percentOperator": "LESS_OR_EQUAL", "microPercent": JSONValue(bound)]
        case .over(let bound):
            members = ["percentOperator": "GREATER_THAN", "microPercent": JSONValue(bound)]
        case .between(let lower, let upper):
            members = [
                "percentOperator": "BETWEEN",
                "microPercentRange": [
                    "microPercentLowerBound": JSONValue(lower),
                    "microPercentUpperBound": JSONValue(upper),
                ],
            ]
        }
        members["seed"] = .string(seed ?? Self.seed)
        return members
    }

    private static func signal(_ key: String, _ name: String, _ targets: [String]) -> JSONValue {
        [
            "customSignal": [
                "customSignalOperator": .string(name), "customSignalKey": .string(key),
                "targetCustomSignalValues": .array(targets.map { .string($0) }),
            ]
        ]
    }

    private static func name(of comparison: ConfigExpression.Comparison) -> String {
        switch comparison {
        case .less: "LESS_THAN"
        case .lessOrEqual: "LESS_EQUAL"
        case .equal: "EQUAL"
        case .notEqual: "NOT_EQUAL"
        case .greater: "GREATER_THAN"
        case .greaterOrEqual: "GREATER_EQUAL"
        }
    }
}
