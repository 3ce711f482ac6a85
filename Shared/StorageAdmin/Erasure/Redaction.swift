import JSON
import PushCore
import Storage

/// The removal of a subject's names from a push's request. An unsent request keeps its meaning for all
/// others; a sent one loses the names in every string, except for short names inside of longer strings.
/// Keys stay as they are.
struct Redaction {
    /// The replacement of a name in an unsent audience. It is not the name of any subject.
    static let erasedPlaceholder = "erased-3f0c51b6-8f0e-4b7e-9a52-6d1f0c2e7a94"

    private let names: ExactStringSet
    /// The names that are also searched inside of other strings. A short name may be a common word.
    private let longNames: NameSearch

    /// Words of requests and of payloads. If a user has such a name, it is not searched for there.
    private static let vocabulary: ExactStringSet = [
        "all", "apns", "dev", "fcm", "high", "ios", "android", "windows", "wp", "wns", "mpns",
        "normal", "prod", "production", "sandbox", "default", "Date", "GeoPoint", "Pointer",
        "_User", "_Installation", "Increment", "Decrement", "true", "false", "alert",
    ]
    /// Fields of a condition whose values are names.
    static let namingFields: ExactStringSet = [
        "objectId", "installationId", "deviceToken", "registrationId", "deviceUri",
        "subscriptionUri", "owner", "user", "userId", "identity",
    ]
    /// Fields of a request that list names.
    static let lists: ExactStringSet = ["installations", "identities", "tokens"]

    init(_ names: SubjectNames) {
        self.names = names.texts
        longNames = NameSearch(names.texts.filter { $0.utf8.count >= 8 })
    }

    /// Redacts the request of a push that has not ended: its lists, and other fields that name its audience.
    ///
    /// - Parameters:
    ///   - request: The stored request.
    ///   - isSole: Whether it was sent to the subject alone; then its content is removed, too.
    /// - Returns: The request to store.
    func redactedUnsent(_ request: JSONObject, isSole: Bool) -> JSONObject {
        var result: JSONObject = [:]
        for (key, value) in isSole ? SolePush.withoutContent(request) : request {
            switch key {
            case _ where Self.lists.contains(key): result[key] = withoutNames(value)
            case "where": result[key] = condition(value, field: nil)
            case "deviceId" where request["identityPoolId"] != nil:
                // A change without a writer is sent to all listeners.
                if !(value.string.map(isName) ?? false) { result[key] = value }
            case "tags": result[key] = value.string.map { .string(tags($0)) } ?? value
            case "cql":
                result[key] =
                    value.string.map { text in
                        .string(
                            CQLQuery.replacing(in: text) {
                                isName($0) ? Self.erasedPlaceholder : nil
                            }
                        )
                    } ?? value
            default: result[key] = value
            }
        }
        return result
    }

    /// Redacts the request of a push that has ended.
    func redactedSent(_ request: JSONObject, isSole: Bool) -> JSONObject {
        JSONObject(
            redactedUnsent(request, isSole: isSole).map { key, value in
                (key, Self.lists.contains(key) || key == "app" ? value : redactedSent(value))
            }
        )
    }

    func redactedSent(_ value: JSONValue) -> JSONValue {
        switch value {
        case .null, .bool, .integer, .double, .number: return value
        case .string(let text):
            guard !Self.vocabulary.contains(text) else { return value }
            return .string(withoutNames(text))
        case .array(let elements): return .array(elements.map(redactedSent))
        case .object(let object):
            return .object(JSONObject(object.map { ($0.key, redactedSent($0.value)) }))
        }
    }

    /// Whether a record reports the subject's read of a secure payload.
    func isReading(_ record: JSONObject) -> Bool {
        record["provider"]?.string == "secure"
            && ["identity", "installationId"].contains { record[$0]?.string.map(isName) ?? false }
    }

    /// Whether a record announces a change of the subject's dataset, to other systems or to devices.
    func isSync(_ record: JSONObject) -> Bool {
        if let identity = record["identityId"]?.string { return isName(identity) }
        guard record["source"]?.string == PushIdentity.syncSource else { return false }
        let parts = record["id"]?.string?.split(separator: "/") ?? []
        return parts.count > 1 && isName(String(parts[1]))
    }

    /// Whether a request's selectors can select only the subject.
    func isSoleRecipient(_ request: JSONObject) -> Bool {
        SolePush.isSelected(by: request, names)
    }

    private func isName(_ text: String) -> Bool { names.contains(text) }

    private func withoutNames(_ value: JSONValue) -> JSONValue {
        guard let elements = value.array else { return value }
        return .array(
            elements.filter { element in
                !(element.string.map(isName) ?? false)
                    && !(element["token"]?.string.map(isName) ?? false)
            }
        )
    }

    /// Redacts a condition. A name is replaced by another value, so that the condition keeps its form and selects no
    /// device by it.
    private func condition(_ value: JSONValue, field: String?) -> JSONValue {
        switch value {
        case .null, .bool, .integer, .double, .number: return value
        case .string(let text):
            guard let field, Self.namingFields.contains(field), isName(text) else { return value }
            return .string(Self.erasedPlaceholder)
        case .array(let elements):
            return .array(elements.map { condition($0, field: field) })
        case .object(let object):
            return .object(
                JSONObject(
                    object.map { key, inner in
                        (key, condition(inner, field: key.hasPrefix("$") ? field : key))
                    }
                )
            )
        }
    }

    /// Redacts `$UserId:{name}` and `$InstallationId:{name}`, with or without the braces.
    private func tags(_ text: String) -> String {
        var result = ""
        var rest = text[...]
        while let start = rest.firstIndex(of: "$") {
            result += rest[..<start]
            rest = rest[start...]
            let mark = rest.prefix { $0 != ":" && $0 != "{" }
            result += mark
            rest = rest.dropFirst(mark.count)
            guard ["$userid", "$installationid"].contains(mark.lowercased()), rest.first == ":"
            else { continue }
            rest = rest.dropFirst()
            let isInBraces = rest.first == "{"
            if isInBraces { rest = rest.dropFirst() }
            let name = rest.prefix {
                isInBraces ? $0 != "}" : !$0.isWhitespace && !"&|!()".contains($0)
            }
            rest = rest.dropFirst(name.count)
            let kept = isName(String(name)) ? Self.erasedPlaceholder : String(name)
            result += isInBraces ? ":{\(kept)" : ":\(kept)"
        }
        return result + rest
    }

    /// Redacts a string that is not used any more, or the id of an event, which its sender chose. A
    /// string that is a name is replaced whole. In any other string, the longer names that are
    /// words in it are replaced.
    func withoutNames(_ text: String) -> String {
        isName(text) ? ErasureFence.mark : longNames.replaced(in: text, by: ErasureFence.mark)
    }
}
