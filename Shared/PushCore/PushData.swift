import JSON

/// LeanCloud's `data`: each known key has one type and one form; all other keys are custom.
enum PushData {
    private static let platformObjects = [
        "ios", "android", "wp", "aps", "fcm", "mi", "hms", "mz", "vivo", "oppo",
    ]

    /// Normalizes numbers and flags to the form that providers accept. For example, APNs shows
    /// nothing for a badge of `3.0`, and ignores a flag that is a string.
    ///
    /// - Throws: `PushRequestError` that names the first field with an invalid value.
    static func checked(_ data: JSONObject) throws(PushRequestError) -> JSONObject {
        var result = try checkedFields(data, path: "data.") ?? data
        let fields = FieldReader(data)
        for platform in platformObjects {
            guard let value = fields[platform] else { continue }
            guard let object = value.object else {
                throw PushRequestError("data.\(platform)", .invalid("must be an object"))
            }
            if let changed = try checkedFields(object, path: "data.\(platform).") {
                result[platform] = .object(changed)
            }
        }
        return result
    }

    /// - Returns: The normalized fields; `nil` if nothing changes.
    private static func checkedFields(
        _ object: JSONObject,
        path: String
    ) throws(PushRequestError) -> JSONObject? {
        var result: JSONObject?
        for (key, value) in object where !value.isNull {
            try check(key, value, path)
            guard let form = form(of: value, under: key) else { continue }
            if result == nil { result = object }
            result?[key] = form
        }
        return result
    }

    private static func check(
        _ key: String,
        _ value: JSONValue,
        _ path: String
    ) throws(PushRequestError) {
        if key == "badge", BadgeChange(value) != nil { return }
        // `alert-fr` has the type of `alert`. `alert-id` may also be a key of the app.
        let variant = LocaleVariants.variant(key)
        let meaning = variant.map { $0.isDoubtful ? key : $0.base } ?? key
        guard let expected = expectation(meaning), !expected.holds(value) else { return }
        let given = expected.isContent ? "" : ", not \(value.shown)"
        throw PushRequestError(path + key, .invalid("must be \(expected.text)\(given)"))
    }

    private struct Expectation {
        let text: String
        /// Whether the value is text for people, so that errors do not repeat it.
        var isContent = false
        let holds: (JSONValue) -> Bool
    }

    private static func expectation(_ key: String) -> Expectation? {
        switch key {
        case "alert", "sound":
            Expectation(text: "a string or an object", isContent: true) {
                $0.string != nil || $0.object != nil
            }
        case "badge":
            Expectation(text: "Increment or a whole number, 0 or more") {
                $0.wholeNumber.map { $0 >= 0 } ?? false
            }
        case "title", "category", "thread-id", "collapse-id", "apns-push-type", "action",
            "wp-param", "target-content-id":
            Expectation(text: "a string", isContent: true) { $0.string != nil }
        case "content-available", "mutable-content":
            Expectation(text: "0, 1, true or false") { $0.flag != nil }
        case "silent":
            Expectation(text: "true or false") { $0.flag != nil }
        case "apns-priority":
            Expectation(text: "10, 5 or 1") { $0.wholeNumber.map([10, 5, 1].contains) ?? false }
        case "url-args":
            Expectation(text: "an array of strings", isContent: true) {
                $0.array?.allSatisfy { $0.string != nil } ?? false
            }
        default:
            nil
        }
    }

    // MARK: One form

    private static func rewritten(_ object: JSONObject) -> JSONObject {
        var result = object
        for (key, value) in object {
            if let form = form(of: value, under: key) { result[key] = form }
        }
        return result
    }

    /// Returns the normalized value; `nil` if it stays as it is.
    private static func form(of value: JSONValue, under key: String) -> JSONValue? {
        switch key {
        case "badge", "apns-priority": return value.wholeNumber.map(JSONValue.init)
        case "content-available", "mutable-content": return value.flag.map { $0 ? 1 : 0 }
        case "silent": return value.flag.map(JSONValue.bool)
        case "sound":
            guard var sound = value.object, let isCritical = sound["critical"]?.flag else {
                return nil
            }
            sound["critical"] = isCritical ? 1 : 0
            return .object(sound)
        case "aps": return value.object.map { .object(rewritten($0)) }
        default: return nil
        }
    }
}
