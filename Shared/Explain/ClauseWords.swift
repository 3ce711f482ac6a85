package import JSON
import PushCore

/// The words of one condition of an audience. Pure.
enum ClauseWords {
    /// The most values of a list that are shown, and the most characters of one.
    private static let maximumValues = 5
    private static let maximumCharacters = 60
    /// The most parts of a nested condition that are shown.
    private static let maximumParts = 4

    static func list(_ field: String, _ values: [String], isArray: Bool = false) -> Phrase {
        let shown = join(values.map(shorten))
        return Phrase(
            isArray ? "{field} contains one of {values}" : "{field} is one of {values}",
            ["field": .text(field), "values": .text(shown)]
        )
    }

    /// Returns the words of a condition.
    static func phrase(_ condition: Where) -> Phrase {
        switch condition {
        case .all(let parts): combined("all of: {parts}", parts)
        case .any(let parts): combined("one of: {parts}", parts)
        case .none(let parts): combined("none of: {parts}", parts)
        case .field(let path, let test): phrase(name(of: path), test)
        }
    }

    private static func combined(_ template: String, _ parts: [Where]) -> Phrase {
        if parts.count == 1, template.hasPrefix("all") || template.hasPrefix("one") {
            return phrase(parts[0])
        }
        var texts = parts.prefix(maximumParts).map { phrase($0).text }
        if parts.count > maximumParts { texts.append("…") }
        return Phrase(template, ["parts": .text(texts.joined(separator: "; "))])
    }

    private static func phrase(_ field: String, _ test: WhereTest) -> Phrase {
        if secretFields.contains(field), !test.isOnPresence {
            return Phrase("{field} meets a condition on its value", ["field": .text(field)])
        }
        func words(_ template: String, _ value: String) -> Phrase {
            Phrase(template, ["field": .text(field), "value": .text(value)])
        }
        switch test {
        case .equal(let value): return words("{field} is {value}", text(of: value))
        case .notEqual(let value): return words("{field} is not {value}", text(of: value))
        case .compare(let comparison, let value):
            return words(template(of: comparison), text(of: value))
        case .among(let values): return list(field, values.map(text))
        case .notAmong(let values):
            return words("{field} is none of {value}", join(values.map(text)))
        case .holdsAll(let elements):
            return words("{field} contains all of {value}", join(elements.map(text)))
        case .containedBy(let values):
            return words("{field} contains nothing but {value}", join(values.map(text)))
        case .size(let count): return words("{field} has {value} elements", String(count))
        case .exists(let isPresent):
            return words(isPresent ? "{field} is set" : "{field} is not set", "")
        case .pattern(let pattern): return words("{field} matches {value}", shorten(pattern.source))
        case .inQuery: return words("{field} is in the result of a query", "")
        case .notInQuery: return words("{field} is not in the result of a query", "")
        case .selected(let path, _):
            return words("{field} equals {value} of a query's result", path.text)
        case .notSelected(let path, _):
            return words("{field} equals no {value} of a query's result", path.text)
        case .near(let point, _, let maximum):
            return words(
                maximum == nil ? "{field} is a place" : "{field} is near {value}",
                "\(point.latitude), \(point.longitude)"
            )
        case .inBox: return words("{field} is within a box", "")
        case .inPolygon: return words("{field} is within a polygon", "")
        }
    }

    private static func template(of comparison: WhereTest.Comparison) -> String {
        switch comparison {
        case .less: "{field} is less than {value}"
        case .lessOrEqual: "{field} is at most {value}"
        case .greater: "{field} is greater than {value}"
        case .greaterOrEqual: "{field} is at least {value}"
        }
    }

    private static func text(of value: WhereValue) -> String {
        switch value {
        case .null: "null"
        case .bool(let flag): flag ? "true" : "false"
        case .integer(let number): String(number)
        case .double(let number): JSONValue.double(number).text
        case .string(let text): shorten(text)
        case .date(let time): time.iso8601
        case .pointer(let className, let id): shorten("\(className)/\(id)")
        case .point(let point): "\(point.latitude), \(point.longitude)"
        case .structure(let json): shorten(json.text)
        }
    }

    private static func text(of element: WhereElement) -> String {
        switch element {
        case .value(let value): text(of: value)
        case .pattern(let pattern): shorten(pattern.source)
        }
    }

    private static func join(_ values: [String]) -> String {
        let more = values.count > maximumValues ? ", … (\(values.count) in all)" : ""
        return values.prefix(maximumValues).joined(separator: ", ") + more
    }

    static func shorten(_ text: String) -> String {
        text.count <= maximumCharacters ? text : text.prefix(maximumCharacters - 1) + "…"
    }

    // MARK: The device's value

    /// Fields whose values an explanation hides.
    private static let secretFields = SecretFields.names

    private static func name(of path: WherePath) -> String {
        switch path.text {
        case "$identity": "identity"
        case "$provider": "provider"
        default: path.text
        }
    }

    /// Returns the device's present value of the only field that a condition tests; `nil` if it
    /// tests several, or the value is secret.
    static func value(_ condition: Where, _ installation: Installation) -> String? {
        switch condition {
        case .all(let parts), .any(let parts):
            return parts.count == 1 ? value(parts[0], installation) : nil
        case .none: return nil
        case .field(let path, _):
            guard let first = path.segments.first, !secretFields.contains(first) else { return nil }
            return shorten(text(of: path, installation))
        }
    }

    private static func text(of path: WherePath, _ installation: Installation) -> String {
        switch path.text {
        case "$identity": return installation.identity ?? "not set"
        case "$provider": return installation.platform?.rawValue ?? "not set"
        case "objectId": return installation.objectID
        case "createdAt": return installation.createdAt.iso8601
        case "updatedAt": return installation.updatedAt.iso8601
        default: break
        }
        var found: JSONValue? = .object(installation.object)
        for segment in path.segments { found = found?[segment] }
        guard let found, !found.isNull else { return "not set" }
        if let list = found.array { return join(list.map { $0.string ?? $0.text }) }
        return found.string ?? found.text
    }

    /// Whether a condition depends on more than the installation's saved fields: on other objects,
    /// or on the badge, which pushes change.
    static func isForeign(_ condition: Where) -> Bool {
        switch condition {
        case .all(let parts), .any(let parts), .none(let parts):
            return parts.contains(where: isForeign)
        case .field(let path, let test):
            if path.segments.first == "badge" || path.segments.first == "valid" { return true }
            switch test {
            case .inQuery, .notInQuery, .selected, .notSelected: return true
            default: return false
            }
        }
    }
}

extension WhereTest {
    /// Whether it names no value.
    fileprivate var isOnPresence: Bool {
        if case .exists = self { return true }
        return false
    }
}

/// Fields that contain the device's address at a provider, or the secret by which it connects. Their
/// values are shown to nobody who may not see tokens, nor in explanations.
package enum SecretFields {
    package static let names: ExactStringSet = [
        "deviceToken", "registrationId", "subscriptionUri", "deviceUri", "pushChannel",
        "installationId", HubTemplate.field,
    ]
}
