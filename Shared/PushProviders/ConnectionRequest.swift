internal import JSON
internal import PushCore

/// The conversion of a push to the message of a device that holds a connection to Carillon. It is
/// LeanCloud's `data` as LeanCloud's Android SDK gets it: flat, without the keys of other
/// platforms.
package enum ConnectionRequest {
    static let maximumPayloadBytes = 4096
    private static let maximumCollapseIDBytes = 256
    /// Headers of the payload that are not sent, but stored with the message.
    package static let collapseHeader = "collapse-id"
    package static let channelsHeader = "channels"

    /// The keys of `data` that belong to other platforms.
    private static let foreignKeys = [
        "aps", "content-available", "mutable-content", "thread-id", "apns-priority",
        "apns-push-type", "url-args", "target-content-id", "filter-criteria",
        "interruption-level", "relevance-score", "wp-param",
    ]

    static func render(
        _ request: PushRequest,
        pushID: String,
        locale: String?
    ) throws(RenderingError) -> PayloadDraft {
        guard let data = request.data else { throw .noContent(.connection) }
        var fields = try PlatformData(data, over: ["android"], locale: locale, for: .connection)
        fields.drop(foreignKeys)
        let collapseID = try fields.takeText("collapse-id") ?? request.collapseID
        if let badge = fields.fields["badge"], !PlaceholderMarks.isBadge(badge) {
            throw .invalid(field: "data.badge", problem: "must be a whole number")
        }
        guard
            collapseID.map({ $0.utf8.count <= maximumCollapseIDBytes && !$0.utf8.contains(0) })
                ?? true
        else {
            throw .invalid(
                field: "collapse_id",
                problem: "must be at most \(maximumCollapseIDBytes) bytes, without NUL"
            )
        }
        var message = fields.fields
        if let channel = request.androidChannel, message["_notificationChannel"] == nil {
            message["_notificationChannel"] = .string(channel)
        }
        guard !message.isEmpty else { throw .noContent(.connection) }
        if request.includesPushID { message[PushRequest.pushIDKey] = .string(pushID) }
        var headers: [RenderedPayload.Header] = []
        if let collapseID { headers.append(.init(collapseHeader, collapseID)) }
        if !request.audienceChannels.isEmpty {
            let channels = JSONValue.array(request.audienceChannels.map(JSONValue.string))
            headers.append(.init(channelsHeader, channels.text))
        }
        return PayloadDraft(
            payload: RenderedPayload(
                platform: .connection,
                headers: headers,
                body: JSONValue.object(message).bytes,
                // A message is stored once, even if it is sent again.
                repeatOverwrites: true
            ),
            limit: maximumPayloadBytes
        )
    }
}
