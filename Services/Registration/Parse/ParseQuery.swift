import JSON
import PushCore

/// Parses a client's query of a class by Parse's names. Pure.
///
/// A parameter is JSON in a body, or a string in a query string; one that Parse does not know is error 102.
/// Hints for Parse's database (`hint`, `comment`, the read preferences) are accepted and ignored.
enum ParseQuery {
    private static let advice: ExactStringSet = [
        "hint", "comment", "readPreference", "includeReadPreference", "subqueryReadPreference",
    ]
    private static let forReading: ExactStringSet = [
        "keys", "excludeKeys", "include", "includeAll",
    ]
    private static let forFinding: ExactStringSet = [
        "where", "limit", "skip", "order", "count", "explain", "redirectClassNameForKey",
    ]

    /// Parses the query for one object by its id: only its selection of fields.
    static func read(_ parameters: JSONObject) throws -> ObjectQuery {
        for name in parameters.keys where !forReading.contains(name) && !advice.contains(name) {
            throw unknown(name)
        }
        var query = ObjectQuery()
        try readSelection(parameters, into: &query)
        return query
    }

    static func find(_ parameters: JSONObject) throws -> ObjectQuery {
        for name in parameters.keys
        where !forReading.contains(name) && !forFinding.contains(name) && !advice.contains(name) {
            throw unknown(name)
        }
        for name in ["explain", "redirectClassNameForKey"] where isOn(parameters[name]) {
            throw ObjectError(code: 108, "\(name) is not supported.")
        }
        var query = ObjectQuery()
        try readSelection(parameters, into: &query)
        if let condition = try condition(parameters["where"]) { query.condition = condition }
        if let limit = try number("limit", parameters) {
            // Like Parse with its `maxLimit`.
            query.limit = min(limit, WhereQuery.maximumLimit)
        }
        if let skip = try number("skip", parameters) { query.skip = skip }
        if let order = try names("order", parameters) { query.order = try SortKey.parse(order) }
        query.wantsCount = isOn(parameters["count"])
        return query
    }

    /// Parses a `where`: an object, or its JSON as a string.
    static func condition(_ value: JSONValue?) throws -> Where? {
        guard var value, !value.isNull else { return nil }
        if let text = value.string {
            do {
                value = try JSONValue.parse(Array(text.utf8), maximumDepth: ParseCall.maximumDepth)
            } catch {
                throw ObjectError(code: 107, "where is no JSON: \(error.description)")
            }
        }
        return try Where.parse(value)
    }

    private static func readSelection(
        _ parameters: JSONObject,
        into query: inout ObjectQuery
    ) throws {
        if let keys = try names("keys", parameters) {
            try query.selection.add(keys, isExcluding: false)
        }
        if let keys = try names("excludeKeys", parameters) {
            try query.selection.add(keys, isExcluding: true)
        }
        if let include = try names("include", parameters) {
            query.include = include.split(separator: ",").map(String.init)
        }
        if isOn(parameters["includeAll"]) { query.include = ["*"] }
    }

    /// Returns names joined by commas, from such a string or from a list.
    private static func names(_ name: String, _ parameters: JSONObject) throws -> String? {
        switch parameters[name] {
        case nil, .null?: return nil
        case .string(let text)?: return text
        case .array(let list)?:
            let texts = list.compactMap(\.string)
            guard texts.count == list.count else { throw wrong(name, "names") }
            return texts.joined(separator: ",")
        default: throw wrong(name, "names")
        }
    }

    private static func number(_ name: String, _ parameters: JSONObject) throws -> Int? {
        switch parameters[name] {
        case nil, .null?: return nil
        case let value?:
            guard let number = value.wholeNumber, number >= 0 else {
                throw wrong(name, "a whole number, 0 or more, not \(value.shown)")
            }
            return number
        }
    }

    private static func isOn(_ value: JSONValue?) -> Bool {
        guard let value, !value.isNull, value != "" else { return false }
        return value.flag ?? true
    }

    private static func unknown(_ name: String) -> ObjectError {
        ObjectError(code: 102, "Invalid parameter for query: \(name.prefix(100))")
    }

    private static func wrong(_ name: String, _ expected: String) -> ObjectError {
        ObjectError(code: 102, "\(name) must be \(expected).")
    }
}
