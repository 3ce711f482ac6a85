import JSON

/// The shape of LeanCloud's `data`: what is known must have its kind, the rest is custom.
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
            // A ready `aps` is the sender's own; what changes a badge stands beside it.
            if key == "badge", path != "data.aps.", BadgeChange(value) != nil { continue }
            // `alert-fr` is what `alert` is.
            let meaning = LocaleVariants.variant(key)?.base ?? key
            guard let expected = expectation(meaning), !expected.holds(value) else { continue }
            throw PushRequestError(path + key, .invalid("must be \(expected.text)"))
        }
    }

    private struct Expectation {
        let text: String
        let holds: (JSONValue) -> Bool
    }

    private static func expectation(_ key: String) -> Expectation? {
        switch key {
        case "alert":
            Expectation(text: "a string or an object") { $0.string != nil || $0.object != nil }
        case "badge":
            Expectation(text: "Increment or a whole number, 0 or more") {
                $0.integer.map { $0 >= 0 } ?? false
            }
        case "sound":
            Expectation(text: "a string or an object") { $0.string != nil || $0.object != nil }
        case "title", "category", "thread-id", "collapse-id", "apns-push-type", "action",
            "wp-param", "target-content-id":
            Expectation(text: "a string") { $0.string != nil }
        case "content-available", "mutable-content":
            Expectation(text: "0, 1, true or false") {
                $0.bool != nil || $0.integer == 0 || $0.integer == 1
            }
        case "silent":
            Expectation(text: "true or false") { $0.bool != nil }
        case "apns-priority":
            Expectation(text: "10, 5 or 1") { $0.integer.map([10, 5, 1].contains) ?? false }
        case "url-args":
            Expectation(text: "an array of strings") {
                $0.array?.allSatisfy { $0.string != nil } ?? false
            }
        default:
            nil
        }
    }
}
