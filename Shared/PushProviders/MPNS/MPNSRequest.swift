internal import HTTPTransport
internal import JSON
internal import PushCore

/// The conversion of a push to MPNS' form: a toast, a tile with a count, or raw data. One
/// notification is one request. If a push has an alert and a badge, the badge is omitted, as a
/// toast cannot carry it.
///
/// - SeeAlso: MSDN hh202945, "Sending push notifications for Windows Phone".
enum MPNSRequest {
    static let maximumPayloadBytes = 3072
    /// The limit of raw data in Azure's documentation. MSDN does not mention one.
    static let maximumRawBytes = 1024
    static let highestCount = 99

    /// The keys of `data` that belong to other platforms.
    private static let foreignKeys = [
        "aps", "content-available", "mutable-content", "category", "thread-id", "apns-priority",
        "apns-push-type", "url-args", "target-content-id", "filter-criteria",
        "interruption-level", "relevance-score", "_notificationChannel", "action", "collapse-id",
        "sound",
    ]

    private enum Kind {
        case tile, toast, raw

        /// Returns the notification class. Its first digit is how long MPNS may wait, the second is
        /// the kind.
        func notificationClass(isUrgent: Bool) -> String {
            let kind =
                switch self {
                case .tile: "1"
                case .toast: "2"
                case .raw: "3"
                }
            return isUrgent ? kind : "1" + kind
        }

        var target: String? {
            switch self {
            case .tile: "token"
            case .toast: "toast"
            case .raw: nil
            }
        }
    }

    static func render(
        _ request: PushRequest,
        pushID: String,
        locale: String?
    ) throws(RenderingError) -> PayloadDraft {
        if let native = request.native.mpns { return try render(native: native, request) }
        guard let data = request.data else { throw .noContent(.mpns) }
        var fields = try PlatformData(data, over: ["wp"], locale: locale, for: .mpns)
        fields.drop(foreignKeys)
        let isSilent = fields.takeFlag("silent")
        let badge = fields.take("badge")
        if let badge, !PlaceholderMarks.isBadge(badge) || badge.integer ?? 0 < 0 {
            throw .invalid(field: "data.badge", problem: "must be a whole number")
        }
        let hasText = fields.fields["alert"] != nil || fields.fields["title"] != nil
        if hasText, !isSilent {
            return draft(.toast, body: Array(try toast(&fields).utf8), request)
        }
        if let badge, fields.fields.isEmpty {
            let count = badge.integer.map { String(min($0, highestCount)) } ?? badge.text
            let tile = notification("<wp:Tile><wp:Count>\(count)</wp:Count></wp:Tile>")
            return draft(.tile, body: Array(tile.utf8), request)
        }
        guard !fields.fields.isEmpty else { throw .noContent(.mpns) }
        // Neither a toast nor a tile can carry the push's id.
        var custom = fields.fields
        if request.includesPushID { custom[PushRequest.pushIDKey] = .string(pushID) }
        return draft(.raw, body: JSONValue.object(custom).bytes, request)
    }

    private static func render(
        native: JSONObject,
        _ request: PushRequest
    ) throws(RenderingError) -> PayloadDraft {
        let headers = try nativeHeaders(
            native["headers"]?.object,
            field: "native.mpns.headers"
        ) { $0 == "x-windowsphone-target" || $0 == "x-notificationclass" }
        guard let body = native["body"]?.string, !body.isEmpty else {
            throw .invalid(field: "native.mpns.body", problem: "must be a string, not empty")
        }
        func value(_ name: String) -> String? { headers.first { $0.name == name }?.value }
        let kind: Kind
        switch value("x-windowsphone-target")?.lowercased() {
        case "toast": kind = .toast
        case "token", "tile": kind = .tile
        case nil, "", "raw": kind = .raw
        case .some:
            throw .invalid(
                field: "native.mpns.headers.x-windowsphone-target",
                problem: "must be toast or token"
            )
        }
        var draft = draft(kind, body: Array(body.utf8), request)
        if let stated = value("x-notificationclass") {
            guard (1...2).contains(stated.utf8.count),
                stated.utf8.allSatisfy({ (48...57).contains($0) })
            else {
                throw .invalid(
                    field: "native.mpns.headers.x-notificationclass",
                    problem: "must be a number of one or two digits"
                )
            }
            draft.payload.headers.removeAll { $0.name == "x-notificationclass" }
            draft.payload.headers.append(.init("x-notificationclass", stated))
        }
        return draft
    }

    private static func toast(_ fields: inout PlatformData) throws(RenderingError) -> String {
        let title = try fields.takeText("title")
        let alert = fields.take("alert")
        let first = title ?? alert?["title"]?.string
        let second = alert?.string ?? alert?["body"]?.string ?? alert?["loc-key"]?.string
        guard first != nil || second != nil else {
            throw .invalid(field: "data.alert", problem: "holds no text that Windows can show")
        }
        var xml = "<wp:Toast>"
        if let first { xml += "<wp:Text1>\(xmlEscaped(first))</wp:Text1>" }
        if let second { xml += "<wp:Text2>\(xmlEscaped(second))</wp:Text2>" }
        let page = [try fields.takeText("wp-param"), try fields.takeText("param")]
            .compactMap { $0 }.first
        if let page { xml += "<wp:Param>\(xmlEscaped(page))</wp:Param>" }
        return notification(xml + "</wp:Toast>")
    }

    private static func notification(_ inside: String) -> String {
        #"<?xml version="1.0" encoding="utf-8"?><wp:Notification xmlns:wp="WPNotification">"#
            + inside + "</wp:Notification>"
    }

    private static func draft(_ kind: Kind, body: [UInt8], _ request: PushRequest) -> PayloadDraft {
        var headers = [
            RenderedPayload.Header(
                "content-type",
                kind == .raw ? "application/octet-stream" : "text/xml"
            ),
            .init(
                "x-notificationclass",
                kind.notificationClass(isUrgent: request.priority != .normal)
            ),
        ]
        if let target = kind.target { headers.append(.init("x-windowsphone-target", target)) }
        return PayloadDraft(
            payload: RenderedPayload(
                platform: .mpns,
                headers: headers,
                body: body,
                // A tile has one count, so a second tile replaces it. A second toast does not
                // replace the first.
                repeatOverwrites: kind == .tile
            ),
            limit: kind == .raw ? maximumRawBytes : maximumPayloadBytes
        )
    }

    static func make(_ notification: OutgoingNotification, timeout: Duration) -> HTTPRequest {
        var headers = [HTTPField("x-messageid", notification.notificationID)]
        for header in notification.payload.headers {
            headers.append(HTTPField(header.name, header.value))
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
