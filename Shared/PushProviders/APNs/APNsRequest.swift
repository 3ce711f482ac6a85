internal import HTTPTransport
internal import JSON
internal import PushCore

/// The conversion of a push to APNs' form.
enum APNsRequest {
    static let maximumPayloadBytes = 4096
    static let maximumVoIPPayloadBytes = 5120
    static let maximumCollapseIDBytes = 64

    /// The known push types, each with the suffix that it adds to the bundle id.
    private static let topicSuffixes = [
        "alert": "", "background": "", "mdm": "", "voip": ".voip",
        "complication": ".complication", "fileprovider": ".pushkit.fileprovider",
        "location": ".location-query", "liveactivity": ".push-type.liveactivity",
        "pushtotalk": ".voip-ptt", "widgets": ".push-type.widgets",
        "controls": ".push-type.controls",
    ]

    /// The keys of `data` that are copied to `aps` unchanged.
    private static let apsKeys = [
        "badge", "sound", "category", "thread-id", "target-content-id", "filter-criteria",
        "interruption-level", "relevance-score", "url-args",
    ]

    static func render(
        _ request: PushRequest,
        pushID: String,
        locale: String?
    ) throws(RenderingError) -> PayloadDraft {
        if let native = request.native.apns {
            return try render(native: native, request, pushID)
        }
        guard let data = request.data else { throw .noContent(.apns) }
        var fields = try PlatformData(data, over: ["ios"], locale: locale, for: .apns)
        fields.drop(["wp-param", "silent", "_notificationChannel"])
        let collapseID = try fields.takeText("collapse-id")
        let statedType = try fields.takeText("apns-push-type")
        let statedPriority = fields.take("apns-priority")?.integer.map(String.init)
        let aps = try takeAps(&fields)
        var payload = JSONObject([("aps", .object(aps))])
        for (key, value) in fields.fields { payload[key] = value }
        if request.includesPushID { payload[PushRequest.pushIDKey] = .string(pushID) }

        var headers: [RenderedPayload.Header] = []
        if let statedType { headers.append(.init("apns-push-type", statedType)) }
        if let statedPriority { headers.append(.init("apns-priority", statedPriority)) }
        if let collapseID { headers.append(.init("apns-collapse-id", collapseID)) }
        return try finish(payload, headers, request, pushID, field: "data")
    }

    private static func render(
        native: JSONObject,
        _ request: PushRequest,
        _ pushID: String
    ) throws(RenderingError) -> PayloadDraft {
        let ours = ["apns-id", "apns-channel-id", "apns-request-id"]
        let headers = try nativeHeaders(
            native["headers"]?.object,
            field: "native.apns.headers"
        ) { $0.hasPrefix("apns-") && !ours.contains($0) }
        guard var payload = native["payload"]?.object else {
            throw .invalid(field: "native.apns.payload", problem: "must be an object")
        }
        // Messages for device management do not reach an app, so they get no push id.
        if request.includesPushID, payload["mdm"] == nil {
            payload[PushRequest.pushIDKey] = .string(pushID)
        }
        return try finish(payload, headers, request, pushID, field: "native.apns.headers")
    }

    private static func takeAps(
        _ fields: inout PlatformData
    ) throws(RenderingError) -> JSONObject {
        var aps = JSONObject()
        if let ready = fields.take("aps") {
            guard let object = ready.object else {
                throw .invalid(field: "data.aps", problem: "must be an object")
            }
            aps = object
        }
        let title = try fields.takeText("title")
        switch (fields.take("alert"), title) {
        case (.object(var alert), let title):
            if let title, alert["title"] == nil { alert["title"] = .string(title) }
            aps["alert"] = .object(alert)
        case (let body?, let title?):
            aps["alert"] = ["title": .string(title), "body": body]
        case (let body?, nil): aps["alert"] = body
        case (nil, let title?) where aps["alert"] == nil:
            aps["alert"] = ["title": .string(title)]
        case (nil, _): break
        }
        for key in apsKeys {
            if let value = fields.take(key) { aps[key] = value }
        }
        for key in ["content-available", "mutable-content"] where fields.takeFlag(key) {
            aps[key] = 1
        }
        if let badge = aps["badge"], !PlaceholderMarks.isBadge(badge) {
            throw .invalid(field: "data.badge", problem: "must be a whole number")
        }
        // Without any of these keys the device would do nothing, so the push is data for the app.
        if ["alert", "badge", "sound", "content-available"].allSatisfy({ aps[$0] == nil }) {
            aps["content-available"] = 1
        }
        return aps
    }

    /// Adds missing headers, and validates all headers.
    private static func finish(
        _ payload: JSONObject,
        _ stated: [RenderedPayload.Header],
        _ request: PushRequest,
        _ pushID: String,
        field: String
    ) throws(RenderingError) -> PayloadDraft {
        var headers = stated
        func value(_ name: String) -> String? { headers.first { $0.name == name }?.value }
        func add(_ name: String, _ value: String) { headers.append(.init(name, value)) }

        let aps = payload["aps"]?.object
        let isVisible = ["alert", "badge", "sound"].contains { aps?[$0] != nil }
        if value("apns-push-type") == nil {
            let type =
                payload["mdm"] != nil
                ? "mdm" : isVisible || aps?["content-available"] == nil ? "alert" : "background"
            add("apns-push-type", type)
        }
        let type = value("apns-push-type") ?? ""
        guard topicSuffixes[type] != nil else {
            throw .invalid(field: "\(field).apns-push-type", problem: "is not a push type")
        }
        if type == "background" {
            guard !isVisible else {
                throw .invalid(
                    field: "\(field).apns-push-type",
                    problem: "cannot be background beside an alert, badge or sound"
                )
            }
            // Apple rejects 10 for these pushes, so the priority is always 5.
            headers.removeAll { $0.name == "apns-priority" }
            add("apns-priority", "5")
        } else if value("apns-priority") == nil {
            add("apns-priority", request.priority == .normal ? "5" : "10")
        }
        guard ["10", "5", "1"].contains(value("apns-priority")) else {
            throw .invalid(field: "\(field).apns-priority", problem: "must be 10, 5 or 1")
        }
        if value("apns-collapse-id") == nil {
            add("apns-collapse-id", request.collapseID ?? pushID)
        }
        if request.isNowOrNever, value("apns-expiration") == nil { add("apns-expiration", "0") }
        let collapseID = value("apns-collapse-id") ?? ""
        guard (1...maximumCollapseIDBytes).contains(collapseID.utf8.count),
            collapseID.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7F })
        else {
            throw .invalid(field: "\(field).collapse-id", problem: "must be 1 to 64 bytes of text")
        }
        let body = JSONValue.object(payload).bytes
        let limit = type == "voip" ? maximumVoIPPayloadBytes : maximumPayloadBytes
        return PayloadDraft(
            payload: RenderedPayload(
                platform: .apns,
                headers: headers,
                body: body,
                repeatOverwrites: true
            ),
            limit: limit
        )
    }

    /// The headers of a request, without its `apns-id`.
    struct Headers: Equatable {
        /// Headers that many pushes share.
        var shared: [HTTPField] = []
        /// Headers of one push.
        var own: [HTTPField] = []
    }

    /// Whether a header of a payload belongs to one push only.
    static func isOwn(_ name: String) -> Bool {
        name == "apns-collapse-id" || name == "apns-expiration"
    }

    /// Returns the headers that belong to one push only.
    static func own(_ notification: OutgoingNotification) -> [HTTPField] {
        var own: [HTTPField] = []
        for header in notification.payload.headers where isOwn(header.name) {
            own.append(HTTPField(header.name, header.value))
        }
        if let expiration = notification.expiration,
            notification.payload.header("apns-expiration") == nil
        {
            own.append(HTTPField("apns-expiration", String(expiration)))
        }
        return own
    }

    /// - Parameters:
    ///   - notification: The notification.
    ///   - topic: The topic of the credential, for installations that name none.
    ///   - bearer: The provider token; `nil` if we authenticate by a certificate.
    /// - Returns: The headers.
    static func headers(
        _ notification: OutgoingNotification,
        topic: String,
        bearer: String?
    ) -> Headers {
        var headers = Headers(own: own(notification))
        if let bearer { headers.shared.append(HTTPField("authorization", "bearer \(bearer)")) }
        for header in notification.payload.headers where !isOwn(header.name) {
            headers.shared.append(HTTPField(header.name, header.value))
        }
        if notification.payload.header("apns-topic") == nil {
            let type = notification.payload.header("apns-push-type") ?? ""
            let suffix = topicSuffixes[type] ?? ""
            let topic = notification.apnsTopic ?? topic
            headers.shared.append(
                HTTPField("apns-topic", topic.hasSuffix(suffix) ? topic : topic + suffix)
            )
        }
        headers.shared.append(HTTPField("content-type", "application/json"))
        return headers
    }

    /// The path before the device's token. The caller has checked that the token is alphanumeric.
    static let path = "/3/device/"
}
