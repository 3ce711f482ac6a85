internal import HTTPTransport
internal import JSON
internal import PushCore

/// Puts a push into the form of FCM's v1 message.
enum FCMRequest {
    static let maximumPayloadBytes = 4096
    /// Of a message to a topic.
    static let maximumTopicPayloadBytes = 2048
    /// Four weeks.
    static let maximumTimeToLiveSeconds: Int64 = 2_419_200

    /// `data`'s keys that are other platforms' own.
    private static let foreignKeys = [
        "aps", "content-available", "mutable-content", "category", "thread-id", "apns-priority",
        "apns-push-type", "url-args", "target-content-id", "filter-criteria",
        "interruption-level", "relevance-score", "wp-param",
    ]

    static func render(
        _ request: PushRequest,
        pushID: String,
        locale: String?
    ) throws(RenderingError) -> PayloadDraft {
        if let native = request.native.fcm {
            return try render(native: native, request, pushID)
        }
        guard let data = request.data else { throw .noContent(.fcm) }
        var fields = try PlatformData(data, over: ["android", "fcm"], locale: locale, for: .fcm)
        fields.drop(foreignKeys)
        let tag = try fields.takeText("collapse-id")
        let channel = try fields.takeText("_notificationChannel")
        var whole = fields.fields
        let isSilent = fields.takeFlag("silent")
        var notification = JSONObject()
        var android = JSONObject()
        try takeAlert(&fields, &notification, &android)
        if let sound = fields.take("sound")?.string { android["sound"] = .string(sound) }
        if let badge = fields.take("badge") {
            guard Marks.isBadge(badge) else {
                throw .invalid(field: "data.badge", problem: "must be a whole number")
            }
            android["notification_count"] = badge
        }
        if let channel = channel ?? request.androidChannel {
            android["channel_id"] = .string(channel)
        }
        let isVisible = !isSilent && hasText(notification, android)
        var message = JSONObject()
        if isVisible {
            if !notification.isEmpty { message["notification"] = .object(notification) }
            if let tag { android["tag"] = .string(tag) }
            message["android"] = ["notification": .object(android)]
        }
        var strings = JSONObject()
        if isSilent {
            // Nothing is shown, but the app may want to know what would have been.
            for (key, value) in [("alert", notification["body"]), ("title", notification["title"])]
            where value != nil { strings[key] = value }
        }
        for (key, value) in fields.fields {
            strings[key] = .string(value.string ?? value.text)
        }
        guard isVisible || !strings.isEmpty else { throw .noContent(.fcm) }
        if request.tellsPushID {
            strings[PushRequest.pushIDKey] = .string(pushID)
            whole[PushRequest.pushIDKey] = .string(pushID)
        }
        let texts = leafBytes(.object(notification)) + leafBytes(.object(android))
        addExtras(of: whole, request, to: &strings, beside: texts)
        if !strings.isEmpty { message["data"] = .object(strings) }
        return try finish(message, request, pushID, field: "data")
    }

    /// A push with `action` is for a receiver of LeanCloud's, which finds it whole under these names:
    /// the first two are its intent's extras, the last is what LeanCloud's own FCM service reads.
    /// Each is there where it has room, as all of it is in the message by its own names already.
    private static func addExtras(
        of data: JSONObject,
        _ request: PushRequest,
        to strings: inout JSONObject,
        beside texts: Int
    ) {
        // Where devices put values of their own into it, each copy grows by them.
        guard data["action"]?.string != nil, request.templateFields.isEmpty else { return }
        var channel: String?
        if case .installations(let selectors) = request.audience {
            channel = selectors.channels?.first
        }
        var whole = data
        if let channel { whole["_channel"] = .string(channel) }
        let extras: [[(String, String)]] = [
            [
                ("com.avos.avoscloud.Channel", channel ?? ""),
                ("com.avos.avoscloud.Data", JSONValue.object(data).text),
            ],
            [("payload", JSONValue.object(whole).text)],
        ]
        for pairs in extras where pairs.allSatisfy({ strings[$0.0] == nil }) {
            var more = strings
            for (name, text) in pairs { more[name] = .string(text) }
            // A tag of 64 bytes, once it is shown.
            guard leafBytes(.object(more)) + texts + 96 <= limit(of: request) else { continue }
            strings = more
        }
    }

    private static func render(
        native: JSONObject,
        _ request: PushRequest,
        _ pushID: String
    ) throws(RenderingError) -> PayloadDraft {
        guard var message = native["message"]?.object else {
            throw .invalid(field: "native.fcm.message", problem: "must be an object")
        }
        for key in native.keys where key != "message" {
            throw .invalid(field: "native.fcm.\(key.prefix(60))", problem: "is not known")
        }
        for key in ["token", "topic", "condition", "fid", "name"] where message[key] != nil {
            throw .invalid(
                field: "native.fcm.message.\(key)",
                problem: "is the push's audience to say"
            )
        }
        if request.tellsPushID { tell(pushID, in: &message) }
        return try finish(message, request, pushID, field: "native.fcm.message")
    }

    /// Into the data that an app gets: Android's own takes the place of the message's.
    private static func tell(_ pushID: String, in message: inout JSONObject) {
        func told(_ data: JSONValue?) -> JSONValue? {
            if let data, !data.isNull, data.object == nil { return data }
            var object = data?.object ?? JSONObject()
            object[PushRequest.pushIDKey] = .string(pushID)
            return .object(object)
        }
        message["data"] = told(message["data"])
        guard var android = message["android"]?.object, let own = android["data"] else { return }
        android["data"] = told(own)
        message["android"] = .object(android)
    }

    /// LeanCloud's alert, a string or APNs' object of texts and their localised keys.
    private static func takeAlert(
        _ fields: inout PlatformData,
        _ notification: inout JSONObject,
        _ android: inout JSONObject
    ) throws(RenderingError) {
        let title = try fields.takeText("title")
        if let alert = fields.take("alert") {
            if let text = alert.string { notification["body"] = .string(text) }
            if let object = alert.object {
                for key in ["title", "body"] {
                    if let text = object[key]?.string { notification[key] = .string(text) }
                }
                for (apns, fcm) in [
                    ("title-loc-key", "title_loc_key"), ("title-loc-args", "title_loc_args"),
                    ("loc-key", "body_loc_key"), ("loc-args", "body_loc_args"),
                ] {
                    if let value = object[apns], !value.isNull { android[fcm] = value }
                }
            }
        }
        if let title { notification["title"] = .string(title) }
    }

    private static func hasText(_ notification: JSONObject, _ android: JSONObject) -> Bool {
        !notification.isEmpty || android["title_loc_key"] != nil || android["body_loc_key"] != nil
    }

    /// Adds what is not stated, checks the whole, and leaves room for what each device brings.
    private static func finish(
        _ stated: JSONObject,
        _ request: PushRequest,
        _ pushID: String,
        field: String
    ) throws(RenderingError) -> PayloadDraft {
        var message = stated
        try checkData(message["data"], field: "\(field == "data" ? "data" : field + ".data")")
        var android = message.removeValue(forKey: "android")?.object ?? JSONObject()
        try checkData(android["data"], field: "\(field).android.data")
        let isNotification = message["notification"] != nil || android["notification"] != nil
        if isNotification {
            // A tag overwrites on the device; of FCM's collapse keys it may hold only four.
            var block = android["notification"]?.object ?? JSONObject()
            if block["tag"] == nil { block["tag"] = .string(request.collapseID ?? pushID) }
            android["notification"] = .object(block)
        }
        if android["priority"] == nil {
            let isHigh = request.priority.map { $0 == .high } ?? isNotification
            android["priority"] = isHigh ? "HIGH" : "NORMAL"
        }
        // Android's own data takes the place of the message's.
        let data = android["data"] ?? message["data"]
        let counted = [message["notification"], data, android["notification"]]
        let bytes = counted.compactMap { $0 }.reduce(0) { $0 + leafBytes($1) }
        let needsTimeToLive =
            request.expiration != nil && android["ttl"] == nil && message["ttl"] == nil
        return PayloadDraft(
            payload: splice(
                message,
                android,
                topic: request.topicName,
                needsTimeToLive: needsTimeToLive,
                repeatOverwrites: isNotification
            ),
            measure: .texts(bytes),
            limit: limit(of: request)
        )
    }

    private static func limit(of request: PushRequest) -> Int {
        request.topicName == nil ? maximumPayloadBytes : maximumTopicPayloadBytes
    }

    private static func checkData(
        _ value: JSONValue?,
        field: String
    ) throws(RenderingError) {
        guard let value, !value.isNull else { return }
        guard let object = value.object else {
            throw .invalid(field: field, problem: "must be an object")
        }
        for (key, value) in object {
            let path = "\(field).\(key.prefix(60))"
            guard value.string != nil else {
                throw .invalid(field: path, problem: "must be a string")
            }
            let isReserved =
                key == "from" || key == "message_type" || key.hasPrefix("google")
                || key.hasPrefix("gcm")
            if isReserved { throw .invalid(field: path, problem: "is a key that FCM reserves") }
        }
    }

    /// Keys and values, as FCM counts a payload.
    private static func leafBytes(_ value: JSONValue) -> Int {
        switch value {
        case .object(let object):
            object.reduce(0) { $0 + $1.key.utf8.count + leafBytes($1.value) }
        case .array(let array): array.reduce(0) { $0 + leafBytes($1) }
        case .string(let text): text.utf8.count
        case .null, .bool, .integer, .double, .number: value.bytes.count
        }
    }

    private static func splice(
        _ message: JSONObject,
        _ android: JSONObject,
        topic: String?,
        needsTimeToLive: Bool,
        repeatOverwrites: Bool
    ) -> RenderedPayload {
        var body: [UInt8]
        var points: [RenderedPayload.SplicePoint] = []
        if let topic {
            body = Array(#"{"message":{"topic":"#.utf8)
            writeJSONString(topic, into: &body)
        } else {
            body = Array(#"{"message":{"token":"#.utf8)
            points.append(.init(offset: body.count, splice: .token))
        }
        for (key, value) in message {
            body.append(UInt8(ascii: ","))
            writeJSONString(key, into: &body)
            body.append(UInt8(ascii: ":"))
            value.write(into: &body)
        }
        body.append(contentsOf: #","android":"#.utf8)
        JSONValue.object(android).write(into: &body)
        if needsTimeToLive {
            body.removeLast()
            body.append(contentsOf: #","ttl":"#.utf8)
            points.append(.init(offset: body.count, splice: .timeToLive))
            body.append(UInt8(ascii: "}"))
        }
        body.append(contentsOf: "}}".utf8)
        return RenderedPayload(
            platform: .fcm,
            headers: [.init("content-type", "application/json")],
            body: body,
            splicePoints: points,
            repeatOverwrites: repeatOverwrites
        )
    }

    /// The body for one device, now.
    static func body(_ notification: OutgoingNotification, at now: Instant) -> [UInt8] {
        let template = notification.payload.body
        var body: [UInt8] = []
        body.reserveCapacity(template.count + notification.target.token.utf8.count + 16)
        var from = 0
        for point in notification.payload.splicePoints {
            body.append(contentsOf: template[from..<point.offset])
            from = point.offset
            switch point.splice {
            case .token: writeJSONString(notification.target.token, into: &body)
            case .timeToLive:
                let left = (notification.expiration ?? now.seconds) - now.seconds
                let seconds = min(max(left, 0), maximumTimeToLiveSeconds)
                body.append(contentsOf: "\"\(seconds)s\"".utf8)
            }
        }
        body.append(contentsOf: template[from...])
        return body
    }

    static func headers(_ notification: OutgoingNotification, bearer: String) -> [HTTPField] {
        [HTTPField("authorization", "Bearer \(bearer)")]
            + notification.payload.headers.map { HTTPField($0.name, $0.value) }
    }
}

extension PushRequest {
    /// At FCM an audience topic is one message, whoever else is told one by one.
    fileprivate var topicName: String? {
        switch audience {
        case .topic(let topic): topic.name
        case .tokens, .installations: nil
        }
    }
}
