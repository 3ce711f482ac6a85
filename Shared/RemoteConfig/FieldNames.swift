internal import JSON

/// The names of the messages' fields. Proto3's JSON uses camel case, and also accepts snake case:
/// `valueType` is also `value_type`.
enum FieldNames {
    private static let known = [
        "parameterGroups",
        "defaultValue", "conditionalValues", "valueType",
        "useInAppDefault", "rolloutValue", "personalizationValue", "experimentValue",
        "tagColor",
        "orCondition", "andCondition", "customSignal",
        "percentOperator", "microPercent", "microPercentRange",
        "microPercentLowerBound", "microPercentUpperBound",
        "customSignalOperator", "customSignalKey", "targetCustomSignalValues",
    ]

    private static let bySnakeCase = ExactStringMap<String>(
        known.map { (snakeCase($0), $0) },
        uniquingKeysWith: { first, _ in first }
    )

    static func snakeCase(_ name: String) -> String {
        var result = ""
        for character in name {
            if character.isUppercase { result.append("_") }
            result += character.lowercased()
        }
        return result
    }

    /// Returns a message with known fields in camel case, in their order; others are unchanged.
    ///
    /// - Throws: The field that is present in both spellings.
    static func camelCase(_ message: JSONObject) throws(RepeatedField) -> JSONObject {
        guard message.contains(where: { bySnakeCase[$0.key] != nil }) else { return message }
        var result = JSONObject()
        for (name, value) in message {
            let field = bySnakeCase[name] ?? name
            guard result[field] == nil else { throw RepeatedField(name: field) }
            result[field] = value
        }
        return result
    }
}

/// A field that a message has in both spellings.
struct RepeatedField: Error {
    let name: String
}
