import JSON

/// LeanCloud's `data`: known keys have their types, and one form each; the rest is custom.
enum PushData {
    private static let platformObjects = [
        "ios", "android", "wp", "aps", "fcm", "mi", "hms", "mz", "vivo", "oppo",
    ]

    static func check(_ data: JSONObject) throws(PushRequestError) {
        try checkFields(data, path: "data.")
        for platform in platformObjects {
            let value = data[platform]
            guard let value, !value.isNull else { continue }
            guard let object = value.object else {
                throw PushRequestError("data.\(platform)", .invalid("must be an object"))
            }
            try checkFields(object, path: "data.\(platform).")
        }
    }

    private static func checkFields(
        _ object: JSONObject,
        path: String
    ) throws(PushRequestError) {
        for (key, value) in object where !value.isNull {
            if key == "badge", BadgeChange(value) != nil { continue }
            // `alert-fr` is what `alert` is; `alert-id` may as well be a key of the app's own.
            let variant = LocaleVariants.variant(key)
            let meaning = variant.map { $0.isDoubtful ? key : $0.base } ?? key
            guard let expected = expectation(meaning), !expected.holds(value) else { continue }
            let given = expected.isContent ? "" : ", not \(value.shown)"
            throw PushRequestError(path + key, .invalid("must be \(expected.text)\(given)"))
        }
    }

    private struct Expectation {
        let text: String
        /// What people read, which no error repeats.
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

    /// Rewrites numbers and flags to the form that providers take, wherever clients may write them:
    /// APNs would show nothing for a badge of `3.0`, and reads no flag that is a string.
    static func inOneForm(_ data: JSONObject) -> JSONObject {
        var result = rewritten(data)
        for platform in platformObjects {
            guard let object = data[platform]?.object else { continue }
            result[platform] = .object(rewritten(object))
        }
        return result
    }

    private static func rewritten(_ object: JSONObject) -> JSONObject {
        var result = object
        for (key, value) in object {
            if let form = form(of: value, under: key) { result[key] = form }
        }
        return result
    }

    /// `nil`: as it is.
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
