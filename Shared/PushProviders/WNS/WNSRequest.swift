internal import Cryptography
internal import HTTPTransport
internal import JSON
internal import PushCore

/// The conversion of a push to WNS' form: a toast, a badge, or raw data. One notification is one
/// request. If a push has an alert and a badge, the badge is omitted, as a toast cannot carry it.
enum WNSRequest {
    static let maximumPayloadBytes = 5000

    /// The keys of `data` that belong to other platforms.
    private static let foreignKeys = [
        "aps", "content-available", "mutable-content", "category", "thread-id", "apns-priority",
        "apns-push-type", "url-args", "target-content-id", "filter-criteria",
        "interruption-level", "relevance-score", "_notificationChannel", "action",
    ]

    private static let types = ["wns/toast", "wns/tile", "wns/badge", "wns/raw"]

    static func render(
        _ request: PushRequest,
        pushID: String,
        locale: String?
    ) throws(RenderingError) -> PayloadDraft {
        if let native = request.native.wns {
            return try render(native: native, request, pushID)
        }
        guard let data = request.data else { throw .noContent(.wns) }
        var fields = try PlatformData(data, over: ["wp"], locale: locale, for: .wns)
        fields.drop(foreignKeys)
        let isSilent = fields.takeFlag("silent")
        let collapseID = try fields.takeText("collapse-id")
        let sound = fields.take("sound")?.string
        let badge = fields.take("badge")
        if let badge, !PlaceholderMarks.isBadge(badge) || badge.integer ?? 0 < 0 {
            throw .invalid(field: "data.badge", problem: "must be a whole number")
        }
        let hasText = fields.fields["alert"] != nil || fields.fields["title"] != nil
        if hasText, !isSilent {
            let lines = try takeLines(&fields)
            let named = [try fields.takeText("wp-param"), try fields.takeText("param")]
                .compactMap { $0 }.first
            let custom = customFields(fields, request, pushID)
            let launch = named ?? (custom.isEmpty ? nil : JSONValue.object(custom).text)
            return try finish(
                "wns/toast",
                body: Array(toast(lines, launch: launch, sound: sound).utf8),
                headers: [],
                request,
                collapseID: collapseID ?? request.collapseID ?? pushID
            )
        }
        if let badge, fields.fields.isEmpty {
            let body = Array(#"<badge value="\#(badge.text)"/>"#.utf8)
            return try finish(
                "wns/badge",
                body: body,
                headers: [],
                request,
                collapseID: pushID
            )
        }
        guard !fields.fields.isEmpty else { throw .noContent(.wns) }
        return try finish(
            "wns/raw",
            body: JSONValue.object(customFields(fields, request, pushID)).bytes,
            headers: [],
            request,
            collapseID: pushID
        )
    }

    /// Returns the app's own fields, and the push's id if it is included.
    private static func customFields(
        _ fields: PlatformData,
        _ request: PushRequest,
        _ pushID: String
    ) -> JSONObject {
        var custom = fields.fields
        if request.includesPushID { custom[PushRequest.pushIDKey] = .string(pushID) }
        return custom
    }

    private static func render(
        native: JSONObject,
        _ request: PushRequest,
        _ pushID: String
    ) throws(RenderingError) -> PayloadDraft {
        guard let type = native["type"]?.string, types.contains(type) else {
            throw .invalid(
                field: "native.wns.type",
                problem: "must be wns/toast, tile, badge or raw"
            )
        }
        guard let body = native["body"]?.string, !body.isEmpty else {
            throw .invalid(field: "native.wns.body", problem: "must be a string, not empty")
        }
        let ours = ["x-wns-type", "x-wns-match"]
        let headers = try nativeHeaders(
            native["headers"]?.object,
            field: "native.wns.headers"
        ) { $0.hasPrefix("x-wns-") && !ours.contains($0) || $0 == "ms-cv" }
        return try finish(
            type,
            body: Array(body.utf8),
            headers: headers,
            request,
            collapseID: request.collapseID ?? pushID
        )
    }

    /// Takes up to three lines of text: title, subtitle, body.
    private static func takeLines(_ fields: inout PlatformData) throws(RenderingError) -> [String] {
        let title = try fields.takeText("title")
        let alert = fields.take("alert")
        var lines: [String?] = [title ?? alert?["title"]?.string]
        if let text = alert?.string {
            lines.append(text)
        } else {
            lines.append(alert?["subtitle"]?.string)
            lines.append(alert?["body"]?.string ?? alert?["loc-key"]?.string)
        }
        let texts = lines.compactMap { $0 }
        guard !texts.isEmpty else {
            throw .invalid(field: "data.alert", problem: "holds no text that Windows can show")
        }
        return texts
    }

    private static func toast(_ lines: [String], launch: String?, sound: String?) -> String {
        var xml = "<toast"
        if let launch { xml += " launch=\"\(xmlEscaped(launch))\"" }
        xml += "><visual><binding template=\"ToastGeneric\">"
        for line in lines { xml += "<text>\(xmlEscaped(line))</text>" }
        xml += "</binding></visual>"
        // A sound of another platform is a file that a Windows app does not have.
        if let sound, sound.hasPrefix("ms-winsoundevent:") || sound.hasPrefix("ms-appx:") {
            xml += "<audio src=\"\(xmlEscaped(sound))\"/>"
        }
        return xml + "</toast>"
    }

    private static func finish(
        _ type: String,
        body: [UInt8],
        headers stated: [RenderedPayload.Header],
        _ request: PushRequest,
        collapseID: String
    ) throws(RenderingError) -> PayloadDraft {
        let isRaw = type == "wns/raw"
        var headers = [
            RenderedPayload.Header("x-wns-type", type),
            .init("content-type", isRaw ? "application/octet-stream" : "text/xml"),
        ]
        headers += stated
        func has(_ name: String) -> Bool { stated.contains { $0.name == name } }
        if type == "wns/toast" || type == "wns/tile", !has("x-wns-tag") {
            headers.append(.init("x-wns-tag", tag(collapseID)))
        }
        if let priority = request.priority, !has("x-wns-priority") {
            headers.append(.init("x-wns-priority", priority == .high ? "1" : "2"))
        }
        if request.isNowOrNever, !has("x-wns-ttl") {
            headers.append(.init("x-wns-ttl", "0"))
            if !has("x-wns-cache-policy") {
                headers.append(.init("x-wns-cache-policy", "no-cache"))
            }
        }
        return PayloadDraft(
            payload: RenderedPayload(
                platform: .wns,
                headers: headers,
                body: body,
                repeatOverwrites: !isRaw
            ),
            limit: maximumPayloadBytes
        )
    }

    /// Returns the tag. A tag has at most 16 letters and digits, so another id is replaced by its
    /// digest.
    static func tag(_ collapseID: String) -> String {
        let bytes = Array(collapseID.utf8)
        if (1...16).contains(bytes.count), bytes.allSatisfy(ASCII.isAlphanumeric) {
            return collapseID
        }
        return Hex.encode(Array(sha256(bytes)[..<8]))
    }

    static func make(
        _ notification: OutgoingNotification,
        bearer: String,
        at now: Instant,
        timeout: Duration
    ) -> HTTPRequest {
        var headers = [HTTPField("authorization", "Bearer \(bearer)")]
        for header in notification.payload.headers {
            headers.append(HTTPField(header.name, header.value))
        }
        if let expiration = notification.expiration,
            notification.payload.header("x-wns-ttl") == nil
        {
            let seconds = max(expiration - now.seconds, 0)
            headers.append(HTTPField("x-wns-ttl", String(seconds)))
            // "Now or never" conflicts with caching, which is the default of most types.
            if seconds == 0, notification.payload.header("x-wns-cache-policy") == nil {
                headers.append(HTTPField("x-wns-cache-policy", "no-cache"))
            }
        }
        return HTTPRequest(
            url: notification.target.token,
            headers: headers,
            body: notification.payload.body,
            timeout: timeout,
            isRepeatable: notification.payload.repeatOverwrites
        )
    }
}
