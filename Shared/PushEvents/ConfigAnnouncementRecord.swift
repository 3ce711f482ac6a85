import JSON
import PushCore

/// A record of `PUSH_RC`, in the shape of FCM's message: a version of an app's remote config was
/// published. It becomes a silent push with the same values for every platform, at the place where
/// its clients look for them.
enum ConfigAnnouncementRecord {
    /// The key of the number of seconds over which clients should fetch, as text, if the record has a `spread`.
    static let spreadKey = "CONFIG_SPREAD_SECONDS"

    /// A larger announcement fits into no push.
    private static let maximumWords = 1000

    /// Converts the record to a push request: `topic` is the audience topic here, and `data`
    /// becomes each platform's own message. All other fields are those of every push.
    ///
    /// - Parameters:
    ///   - record: The record's value.
    ///   - source: The CloudEvent's source, if it is one.
    /// - Returns: A request for `PushRequest.parse`, now and whenever the push's record is read.
    /// - Throws: `PushRequestError` that names the field.
    static func request(
        _ record: JSONObject,
        source: String?
    ) throws(PushRequestError) -> JSONObject {
        for field in ["audience_topic", "native", "template"] where record[field] != nil {
            throw PushRequestError(field, .conflict(with: "data"))
        }
        guard let topic = record["topic"]?.string else {
            throw PushRequestError("topic", .missing("a string, the audience topic"))
        }
        let data = try words(of: record)
        let text = JSONValue.string(JSONValue.object(data).text)
        var payload: JSONObject = ["aps": ["content-available": 1]]
        for (key, value) in data { payload[key] = value }
        var request = record
        request["topic"] = nil
        request["data"] = nil
        request["audience_topic"] = .string(topic)
        request["native"] = [
            "apns": ["headers": ["apns-push-type": "background"], "payload": .object(payload)],
            "fcm": ["message": ["data": .object(data)]],
            "wns": ["type": "wns/raw", "body": text],
            "mpns": ["body": text],
        ]
        if record["priority"]?.isNull != false { request["priority"] = "normal" }
        // The source decides how the push is sent, and later only the push's record is read.
        if let source, source.utf8.count <= PushRequest.maximumSourceBytes {
            request["source"] = .string(source)
        }
        return request
    }

    private static func words(of record: JSONObject) throws(PushRequestError) -> JSONObject {
        guard var data = record["data"]?.object, !data.isEmpty else {
            throw PushRequestError("data", .missing("an object of strings"))
        }
        guard data.count <= maximumWords else {
            throw PushRequestError("data", .invalid("must hold at most \(maximumWords) strings"))
        }
        for (key, value) in data {
            let field = "data.\(key.prefix(100))"
            guard value.string != nil else {
                throw PushRequestError(field, .invalid("must be a string"))
            }
            guard key != "aps" else {
                throw PushRequestError(field, .invalid("is APNs' own"))
            }
        }
        if data[spreadKey] == nil, let seconds = record["spread"]?.double, seconds > 0 {
            data[spreadKey] = .string(
                Int(exactly: seconds).map { String($0) } ?? String(seconds)
            )
        }
        return data
    }
}
