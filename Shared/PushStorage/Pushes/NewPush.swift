package import JSON
package import PushCore
import Storage

/// A push that was received and is to be stored. A class, because it moves from list to list, and
/// each copy would retain some forty strings.
package final class NewPush: Sendable {
    package let id: String
    package let app: String
    package let eventSource: String
    package let eventID: String
    /// The request as it was received.
    package let object: JSONObject
    /// The parsed request.
    package let request: PushRequest
    package let expiresAt: Instant?
    /// The time at which it is released; `nil` if it is released at once.
    package let releaseAt: Instant?
    /// Whether it becomes a shard even if it names few devices (`canBeShard`), as its app has many in
    /// flight.
    package let prefersShard: Bool

    package init(
        id: String,
        app: String,
        eventSource: String,
        eventID: String,
        object: JSONObject,
        request: PushRequest,
        expiresAt: Instant?,
        releaseAt: Instant? = nil,
        prefersShard: Bool = false
    ) {
        self.id = id
        self.app = app
        self.eventSource = eventSource
        self.eventID = eventID
        self.object = object
        self.request = request
        self.expiresAt = expiresAt
        self.releaseAt = releaseAt
        self.prefersShard = prefersShard
    }

    /// Returns a copy with the times of the push's row.
    func with(releaseAt: Instant?, expiresAt: Instant?) -> NewPush {
        NewPush(
            id: id,
            app: app,
            eventSource: eventSource,
            eventID: eventID,
            object: object,
            request: request,
            expiresAt: expiresAt,
            releaseAt: releaseAt,
            prefersShard: prefersShard
        )
    }

    var lane: Int { request.isDirect ? 0 : 1 }

    var notes: JSONObject {
        var notes: JSONObject = [:]
        if !request.unknownFields.isEmpty {
            // Field names may contain characters that `jsonb` refuses.
            let names = request.unknownFields.map { name in String(name.filter { $0 != "\0" }) }
            notes["unknownFields"] = .array(names.map(JSONValue.string))
        }
        if case .topic(let topic) = request.audience, let version = topic.configVersion {
            notes["leftOut"] = .string(
                "installations that fetched version \(version) of remote config, or a later one"
            )
        }
        // Queries for the label read the notes, as the request itself is never searched.
        if let label = request.notificationLabel { notes["notificationId"] = .string(label) }
        return notes
    }
}
