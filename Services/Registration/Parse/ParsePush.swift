package import JSON
import PushCore

/// Turns the body of `POST /parse/push` into the push request that all of Carillon speaks. Pure.
package enum ParsePush {
    /// Parse's code for a push that cannot be sent as it is.
    static let misconfigured = 115

    /// - Throws: `ObjectError` 115 for what Parse refuses, or would accept and then fail at;
    ///   `WhereError` with its own code for a condition.
    package static func request(_ body: JSONObject) throws -> JSONObject {
        for name in ["app", "id", "source"] where body[name] != nil {
            throw refused("\(name) belongs to a record on Kafka; over HTTP it is not taken.")
        }
        var request = body
        let (condition, channels) = (body["where"], body["channels"])
        guard condition == nil || channels == nil else {
            throw refused("channels and where can not be set at the same time.")
        }
        guard condition != nil || channels != nil else {
            throw refused("A push needs either channels or where.")
        }
        if let condition {
            guard condition.object != nil else { throw refused("where must be an object.") }
            _ = try Where.parse(condition)
        }
        if body["expiration_time"] != nil, body["expiration_interval"] != nil {
            throw refused("Both expiration_time and expiration_interval cannot be set.")
        }
        for name in ["push_time", "expiration_time"] {
            request[name] = try time(body[name], name)
        }
        if let interval = body["expiration_interval"] {
            guard let seconds = interval.integer, seconds > 0 else {
                throw refused("expiration_interval must be a whole number greater than 0.")
            }
        }
        guard let data = body["data"]?.object else { throw refused("data must be an object.") }
        request["data"] = .object(kept(data))
        return request
    }

    /// Parse's names for what the rest of Carillon calls after Apple's headers.
    private static let names = ["push_type": "apns-push-type", "priority": "apns-priority"]

    /// A push's words as all of Carillon reads them. Parse sets the stored badges to a number that
    /// is sent.
    private static func kept(_ data: JSONObject) -> JSONObject {
        var kept = data
        if let number = data["badge"]?.integer {
            kept["badge"] = ["__op": "Set", "amount": JSONValue(number)]
        }
        for (name, other) in names where data[other] == nil {
            guard let value = data[name], isApples(value, name) else { continue }
            kept.removeValue(forKey: name)
            kept[other] = value
        }
        return kept
    }

    /// Anything else by these names is a word of the app's own.
    private static func isApples(_ value: JSONValue, _ name: String) -> Bool {
        if name == "priority" { return value.integer.map { [10, 5, 1].contains($0) } ?? false }
        return value.string.map(pushTypes.contains) ?? false
    }

    private static let pushTypes: TextSet = [
        "alert", "background", "voip", "complication", "fileprovider", "mdm", "location",
        "liveactivity", "pushtotalk", "widgets", "controls",
    ]

    /// The words as they came.
    package static func sent(_ kept: JSONObject) -> JSONObject {
        var data = kept
        if let badge = kept["badge"], BadgeChange(badge)?.isSetting == true {
            data["badge"] = badge["amount"]
        }
        for (name, other) in names {
            guard let value = kept[other] else { continue }
            data.removeValue(forKey: other)
            data[name] = value
        }
        return data
    }

    /// Seconds since 1970 are an instant; a text stays, as one without a zone is device-local.
    private static func time(_ value: JSONValue?, _ name: String) throws -> JSONValue? {
        switch value {
        case nil: return nil
        case .string?: return value
        case let value?:
            guard let seconds = value.double, abs(seconds) < 1e11 else {
                throw refused("\(name) is not a valid time.")
            }
            let time = Instant(milliseconds: Int64((seconds * 1000).rounded()))
            return .string(time.iso8601)
        }
    }

    private static func refused(_ text: String) -> ObjectError {
        ObjectError(code: misconfigured, text)
    }
}
