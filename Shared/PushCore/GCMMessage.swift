package import JSON

/// Converts messages of FCM's legacy HTTP protocol to FCM v1 messages, the only form that FCM
/// accepts today. Azure's `gcm` sends and stored templates still have the legacy form. Pure.
///
/// - SeeAlso: Firebase, "Migrate from legacy FCM APIs to HTTP v1".
package enum GCMMessage {
    /// A field that v1 does not support, or that only the audience may set. Names the field, never its value.
    package struct Problem: Error, Equatable, Sendable, CustomStringConvertible {
        package let field: String
        package let problem: String

        init(_ field: String, _ problem: String) {
            self.field = String(field.prefix(100))
            self.problem = problem
        }

        package var description: String { "\(field) \(problem)" }
    }

    /// The notification fields that v1 has only for Android: v1's names by legacy names.
    private static let androidNames = [
        "icon": "icon", "color": "color", "sound": "sound", "tag": "tag",
        "click_action": "click_action", "android_channel_id": "channel_id",
        "title_loc_key": "title_loc_key", "title_loc_args": "title_loc_args",
        "body_loc_key": "body_loc_key", "body_loc_args": "body_loc_args",
    ]

    /// - Returns: The value of v1's `message`.
    package static func message(from legacy: JSONObject) throws(Problem) -> JSONObject {
        var message = JSONObject()
        var android = JSONObject()
        var aps = JSONObject()
        for (key, value) in legacy where !value.isNull {
            switch key {
            case "data": message["data"] = .object(try data(value))
            case "notification":
                let (shared, own) = try notification(value)
                if !shared.isEmpty { message["notification"] = .object(shared) }
                if !own.isEmpty { android["notification"] = .object(own) }
            case "collapse_key": android["collapse_key"] = .string(try text(value, key))
            case "restricted_package_name": android[key] = .string(try text(value, key))
            case "priority": android["priority"] = .string(try priority(value))
            case "time_to_live":
                guard let seconds = value.integer ?? value.string.flatMap({ Int($0) }),
                    (0...2_419_200).contains(seconds)
                else { throw Problem(key, "must be 0 to 2419200 seconds") }
                android["ttl"] = .string("\(seconds)s")
            case "content_available": if value == true { aps["content-available"] = 1 }
            case "mutable_content": if value == true { aps["mutable-content"] = 1 }
            // This field has had no effect since 2016.
            case "delay_while_idle": break
            case "to", "registration_ids", "condition", "notification_key":
                throw Problem(key, "is the send's audience to say")
            default: throw Problem(key, "has no counterpart in FCM's v1 message")
            }
        }
        if !android.isEmpty { message["android"] = .object(android) }
        if !aps.isEmpty { message["apns"] = ["payload": ["aps": .object(aps)]] }
        return message
    }

    /// Converts legacy values of other types to strings: devices got them as strings.
    private static func data(_ value: JSONValue) throws(Problem) -> JSONObject {
        guard let object = value.object else { throw Problem("data", "must be an object") }
        var result = JSONObject()
        for (key, value) in object { result[key] = .string(value.string ?? value.text) }
        return result
    }

    private static func notification(
        _ value: JSONValue
    ) throws(Problem) -> (shared: JSONObject, android: JSONObject) {
        guard let object = value.object else { throw Problem("notification", "must be an object") }
        var (shared, own) = (JSONObject(), JSONObject())
        for (key, value) in object where !value.isNull {
            let path = "notification.\(key)"
            switch key {
            case "title", "body", "image": shared[key] = .string(try text(value, path))
            case "title_loc_args", "body_loc_args":
                let list = value.string.flatMap { try? JSONValue.parse(Array($0.utf8)) } ?? value
                guard let list = list.array else { throw Problem(path, "must be a list of texts") }
                own[key] = .array(list.map { .string($0.string ?? $0.text) })
            default:
                guard let name = androidNames[key] else {
                    throw Problem(path, "has no counterpart in FCM's v1 message")
                }
                own[name] = .string(try text(value, path))
            }
        }
        return (shared, own)
    }

    private static func priority(_ value: JSONValue) throws(Problem) -> String {
        switch value.string ?? value.integer.map(String.init) {
        case "high", "10": return "HIGH"
        case "normal", "5": return "NORMAL"
        default: throw Problem("priority", "must be high or normal")
        }
    }

    private static func text(_ value: JSONValue, _ field: String) throws(Problem) -> String {
        guard let text = value.string else { throw Problem(field, "must be a string") }
        return text
    }
}
