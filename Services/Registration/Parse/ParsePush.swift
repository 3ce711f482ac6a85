package import JSON
import PushCore

/// Converts the body of `POST /parse/push` to Carillon's push request. Pure.
package enum ParsePush {
    /// Parse's code for a push that cannot be sent as it is.
    static let misconfigured = 115

    /// - Throws: `ObjectError` 115 for a push that Parse refuses, or would accept and then fail to send;
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
        if let interval = body["expiration_interval"] {
            guard let seconds = interval.double, seconds > 0 else {
                throw refused(
                    "expiration_interval must be a number greater than 0, not \(interval.shown)."
                )
            }
        }
        guard var data = body["data"]?.object else { throw refused("data must be an object.") }
        moveHeaders(of: &request, into: &data)
        moveEnd(of: &data, into: &request)
        request["push_time"] = try time(request["push_time"], "push_time", zone: "")
        request["expiration_time"] = try time(
            request["expiration_time"],
            "expiration_time",
            zone: "Z"
        )
        request["data"] = .object(kept(data))
        // Only Parse's SDK can read the messages that Parse Server sends to Android.
        request["sdk"] = .string(PushRequest.SDK.parse.rawValue)
        return request
    }

    // MARK: Keys

    /// A key of Parse's, Carillon's name for it, and a test of its value. If the value fails the
    /// test, the key is the app's own.
    private struct Word {
        let name: String
        let other: String
        let isMeant: (JSONValue) -> Bool

        init(_ name: String, _ other: String, _ isMeant: @escaping (JSONValue) -> Bool) {
            (self.name, self.other, self.isMeant) = (name, other, isMeant)
        }
    }

    /// - SeeAlso: Parse Server's push adapter, which reads these from `data`.
    private static var words: [Word] {
        [
            Word("push_type", "apns-push-type") { $0.string.map(pushTypes.contains) ?? false },
            Word("priority", "apns-priority") { $0.wholeNumber.map([10, 5, 1].contains) ?? false },
            Word("collapseId", "collapse-id", isCollapseID),
            Word("collapse_id", "collapse-id", isCollapseID),
            Word("threadId", "thread-id") { $0.string != nil },
            Word("interruptionLevel", "interruption-level") { $0.string != nil },
            Word("targetContentIdentifier", "target-content-id") { $0.string != nil },
        ]
    }

    private static let pushTypes: ExactStringSet = [
        "alert", "background", "voip", "complication", "fileprovider", "mdm", "location",
        "liveactivity", "pushtotalk", "widgets", "controls",
    ]

    private static func isCollapseID(_ value: JSONValue) -> Bool {
        value.string.map { (1...64).contains($0.utf8.count) } ?? false
    }

    /// Moves the keys into `data` that Parse's adapter also reads outside of it. Outside of `data`,
    /// a `priority` that is a string is Carillon's own.
    private static func moveHeaders(of request: inout JSONObject, into data: inout JSONObject) {
        for word in words where ["push_type", "priority"].contains(word.name) {
            guard let value = request[word.name], word.isMeant(value) else { continue }
            request.removeValue(forKey: word.name)
            data[word.name] = value
        }
    }

    /// Moves an expiry out of `data` if the push has no other. In `data` it is in milliseconds, as
    /// the adapter reads it.
    private static func moveEnd(of data: inout JSONObject, into request: inout JSONObject) {
        guard request["expiration_time"] == nil, request["expiration_interval"] == nil,
            let value = data["expiration_time"]?.double, value > 1e11, value < 1e15
        else { return }
        data.removeValue(forKey: "expiration_time")
        request["expiration_time"] = .double(value / 1000)
    }

    /// Returns the data with Carillon's keys. A number as `badge` becomes a `Set`, as in
    /// Parse it also sets the stored badges.
    private static func kept(_ data: JSONObject) -> JSONObject {
        var kept = data
        if let number = data["badge"]?.integer {
            kept["badge"] = ["__op": "Set", "amount": JSONValue(number)]
        }
        for word in words where kept[word.other] == nil {
            guard let value = kept[word.name], word.isMeant(value) else { continue }
            kept.removeValue(forKey: word.name)
            kept[word.other] = value
        }
        return kept
    }

    /// Returns the data with Parse's keys again, as they were sent.
    package static func sent(_ kept: JSONObject) -> JSONObject {
        var data = kept
        if let badge = kept["badge"], BadgeChange(badge)?.isSetting == true {
            data["badge"] = badge["amount"]
        }
        for word in words {
            guard let value = data.removeValue(forKey: word.other) else { continue }
            data[word.name] = value
        }
        return data
    }

    // MARK: Times

    /// Converts a time. A number is in seconds since 1970. A string with a zone stays. A string
    /// without one is in `zone`, or device-local if `zone` is empty. A date alone means its
    /// midnight.
    private static func time(
        _ value: JSONValue?,
        _ name: String,
        zone: String
    ) throws -> JSONValue? {
        var value = value
        if let date = value?.object, date["__type"] == "Date" { value = date["iso"] }
        switch value {
        case nil: return nil
        case .string(let text)?:
            for form in [text, text + "T00:00:00"] {
                if Instant(iso8601: form) != nil { return .string(form) }
                if LocalDateTime(iso8601: form) != nil { return .string(form + zone) }
            }
            throw refused("\(name) is not a valid time: \(JSONValue.string(text).shown).")
        case let value?:
            guard let seconds = value.double, abs(seconds) < 1e11 else {
                throw refused("\(name) is not a valid time: \(value.shown).")
            }
            let time = Instant(milliseconds: Int64((seconds * 1000).rounded()))
            return .string(time.iso8601)
        }
    }

    private static func refused(_ text: String) -> ObjectError {
        ObjectError(code: misconfigured, text)
    }
}
