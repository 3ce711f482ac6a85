internal import HTTPTransport
internal import JSON
internal import PushCore

/// The conversion of a push to the form of FCM's v1 message.
enum FCMRequest {
    static let maximumPayloadBytes = 4096
    /// The limit of a message to a topic.
    static let maximumTopicPayloadBytes = 2048
    /// The longest lifetime of a message: four weeks.
    static let maximumTimeToLiveSeconds: Int64 = 2_419_200

    /// The keys of `data` that belong to other platforms.
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
        if request.sdk == .parse {
            return try renderForParse(fields.fields, request, pushID)
        }
        var whole = fields.fields
        let isSilent = fields.takeFlag("silent")
        var notification = JSONObject()
        var android = JSONObject()
        try takeAlert(&fields, &notification, &android)
        if let sound = fields.take("sound")?.string { android["sound"] = .string(sound) }
        if let badge = fields.take("badge") {
            guard PlaceholderMarks.isBadge(badge) else {
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
            // The system shows nothing, but the app may need the texts.
            for (key, value) in [("alert", notification["body"]), ("title", notification["title"])]
            where value != nil { strings[key] = value }
        }
        for (key, value) in fields.fields {
            strings[allowed(key)] = .string(value.string ?? value.text)
        }
        guard isVisible || !strings.isEmpty else { throw .noContent(.fcm) }
        if request.includesPushID {
            strings[PushRequest.pushIDKey] = .string(pushID)
            whole[PushRequest.pushIDKey] = .string(pushID)
        }
        let texts = leafBytes(.object(notification)) + leafBytes(.object(android))
        addExtras(of: whole, request, to: &strings, beside: texts)
        if !strings.isEmpty { message["data"] = .object(strings) }
        return try finish(message, request, pushID, field: "data")
    }

    /// Renders for Parse's Android SDK, which reads three strings and shows or forwards the message
    /// itself. So there is no `notification`, which the system would show instead.
    ///
    /// - SeeAlso: Parse Server's push adapter, whose form this is.
    private static func renderForParse(
        _ data: JSONObject,
        _ request: PushRequest,
        _ pushID: String
    ) throws(RenderingError) -> PayloadDraft {
        var data = data
        if request.includesPushID { data[PushRequest.pushIDKey] = .string(pushID) }
        guard !data.isEmpty else { throw .noContent(.fcm) }
        let message: JSONObject = [
            "android": ["priority": request.priority == .normal ? "NORMAL" : "HIGH"],
            "data": ["push_id": .string(pushID), "data": .string(JSONValue.object(data).text)],
        ]
        return try finish(message, request, pushID, field: "data")
    }

    /// Returns a key that FCM accepts: a reserved key gets the prefix `_`.
    private static func allowed(_ key: String) -> String { isReserved(key) ? "_" + key : key }

    /// - SeeAlso: Firebase, "Message": the keys of `data`.
    private static func isReserved(_ key: String) -> Bool {
        key == "from" || key == "message_type" || key.hasPrefix("google.")
            || key.hasPrefix("gcm.notification.")
    }

    /// Adds copies of the push for an app with a receiver of LeanCloud's SDK, if the push has an
    /// `action`. The first two strings are the extras of the receiver's intent. LeanCloud's own FCM
    /// service reads the last one. Each copy is added only if it fits, as the message already has
    /// all values under their own names.
    private static func addExtras(
        of data: JSONObject,
        _ request: PushRequest,
        to strings: inout JSONObject,
        beside texts: Int
    ) {
        // The values of placeholders would be added to each copy.
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
            // The sum reserves 96 bytes, for a tag of up to 64 bytes in a notification.
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
        if request.includesPushID { addPushID(pushID, in: &message) }
        return try finish(message, request, pushID, field: "native.fcm.message")
    }

    /// Adds the push's id to the data that an app gets. On Android, `android.data` replaces the
    /// message's `data`.
    private static func addPushID(_ pushID: String, in message: inout JSONObject) {
        func withPushID(_ data: JSONValue?) -> JSONValue? {
            if let data, !data.isNull, data.object == nil { return data }
            var object = data?.object ?? JSONObject()
            object[PushRequest.pushIDKey] = .string(pushID)
            return .object(object)
        }
        message["data"] = withPushID(message["data"])
        guard var android = message["android"]?.object, let own = android["data"] else { return }
        android["data"] = withPushID(own)
        message["android"] = .object(android)
    }

    /// Takes LeanCloud's alert: a string, or APNs' object of texts and their localization keys.
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
                    if let text = text(object[key]) { notification[key] = .string(text) }
                }
                for (apns, fcm) in [("title-loc", "title_loc"), ("loc", "body_loc")] {
                    // FCM rejects arguments without a key, and arguments that are not strings.
                    guard let key = text(object["\(apns)-key"]) else { continue }
                    android["\(fcm)_key"] = .string(key)
                    guard let given = object["\(apns)-args"], !given.isNull else { continue }
                    let arguments = given.array ?? [given]
                    android["\(fcm)_args"] = .array(
                        arguments.map { .string($0.string ?? $0.text) }
                    )
                }
            }
        }
        if let title { notification["title"] = .string(title) }
    }

    /// Returns a string, or a number as a string.
    private static func text(_ value: JSONValue?) -> String? {
        switch value {
        case .string(let text)?: text
        case .integer?, .double?, .number?: value?.text
        case nil, .null?, .bool?, .array?, .object?: nil
        }
    }

    private static func hasText(_ notification: JSONObject, _ android: JSONObject) -> Bool {
        !notification.isEmpty || android["title_loc_key"] != nil || android["body_loc_key"] != nil
    }

    /// Adds missing fields, validates all fields, and reserves space for each device's own values.
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
            // A tag makes a repeat overwrite on the device. It is not a collapse key, as FCM
            // allows only four of these per device.
            var block = android["notification"]?.object ?? JSONObject()
            if block["tag"] == nil { block["tag"] = .string(request.collapseID ?? pushID) }
            android["notification"] = .object(block)
        }
        if android["priority"] == nil {
            let isHigh = request.priority.map { $0 == .high } ?? isNotification
            android["priority"] = isHigh ? "HIGH" : "NORMAL"
        }
        // On Android, `android.data` replaces the message's `data`.
        let data = android["data"] ?? message["data"]
        let counted = [message["notification"], data, android["notification"]]
        var bytes = counted.compactMap { $0 }.reduce(0) { $0 + leafBytes($1) }
        let statesTimeToLive = android["ttl"] != nil || message["ttl"] != nil
        if request.isNowOrNever, !statesTimeToLive { android["ttl"] = "0s" }
        let includesTime = request.sdk == .parse && field == "data"
        if includesTime { bytes += Self.timeBytes }
        return PayloadDraft(
            payload: splice(
                message,
                android,
                topic: request.topicName,
                includesTime: includesTime,
                needsTimeToLive: request.expiration != nil && !request.isNowOrNever
                    && !statesTimeToLive,
                // Parse's SDK recognises a repeated push by its id.
                repeatOverwrites: isNotification || includesTime
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
            guard !isReserved(key) else {
                throw .invalid(field: path, problem: "is a key that FCM reserves")
            }
        }
    }

    /// Returns the size of keys and values, as FCM measures a payload.
    private static func leafBytes(_ value: JSONValue) -> Int {
        switch value {
        case .object(let object):
            object.reduce(0) { $0 + $1.key.utf8.count + leafBytes($1.value) }
        case .array(let array): array.reduce(0) { $0 + leafBytes($1) }
        case .string(let text): text.utf8.count
        case .null, .bool, .integer, .double, .number: value.bytes.count
        }
    }

    /// The size of `time` and its value.
    private static let timeBytes = 28

    private static func splice(
        _ message: JSONObject,
        _ android: JSONObject,
        topic: String?,
        includesTime: Bool,
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
            guard includesTime, key == "data" else { continue }
            body.removeLast()
            body.append(contentsOf: #","time":"#.utf8)
            points.append(.init(offset: body.count, splice: .time))
            body.append(UInt8(ascii: "}"))
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

    /// Returns the body for one device at this time.
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
            case .time: writeJSONString(now.iso8601, into: &body)
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
    /// The name of the audience topic, which FCM sends to by one message; `nil` for other
    /// audiences.
    fileprivate var topicName: String? {
        switch audience {
        case .topic(let topic): topic.name
        case .tokens, .installations: nil
        }
    }
}
