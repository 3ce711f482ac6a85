package import JSON
package import PushCore

/// A push that came in and is to be kept. A reference: it goes from list to list, and a copy would count
/// some forty texts.
package final class NewPush: Sendable {
    package let id: String
    package let app: String
    package let eventSource: String
    package let eventID: String
    /// As it came.
    package let object: JSONObject
    /// What it means.
    package let request: PushRequest
    package let expiresAt: Instant?
    /// When it is to be released; `nil`: at once.
    package let releaseAt: Instant?

    package init(
        id: String,
        app: String,
        eventSource: String,
        eventID: String,
        object: JSONObject,
        request: PushRequest,
        expiresAt: Instant?,
        releaseAt: Instant? = nil
    ) {
        self.id = id
        self.app = app
        self.eventSource = eventSource
        self.eventID = eventID
        self.object = object
        self.request = request
        self.expiresAt = expiresAt
        self.releaseAt = releaseAt
    }

    /// The same with the times that its row has.
    func with(releaseAt: Instant?, expiresAt: Instant?) -> NewPush {
        NewPush(
            id: id,
            app: app,
            eventSource: eventSource,
            eventID: eventID,
            object: object,
            request: request,
            expiresAt: expiresAt,
            releaseAt: releaseAt
        )
    }

    var lane: Int { request.isDirect ? 0 : 1 }

    var notes: JSONObject {
        var notes: JSONObject = [:]
        if !request.unknownFields.isEmpty {
            // Field names may hold what `jsonb` refuses.
            let names = request.unknownFields.map { name in String(name.filter { $0 != "\0" }) }
            notes["unknownFields"] = .array(names.map(JSONValue.string))
        }
        if case .topic(let topic) = request.audience, let version = topic.configVersion {
            notes["leftOut"] = .string(
                "installations that fetched version \(version) of remote config, or a later one"
            )
        }
        // Here it can be searched for; the request itself is never looked into.
        if let label = request.notificationLabel { notes["notificationId"] = .string(label) }
        return notes
    }
}
