package import JSON
package import PushCore

/// A reader's first read of a secure payload: a record of `push.outcomes` beside those of the
/// deliveries that announced it. No provider is involved.
package struct ConfirmedReadRecord: Sendable, Equatable {
    package var app: String
    package var pushID: String
    package var eventID: String
    package var identity: String
    /// The authenticated device; `nil` if the reader authenticated as the identity.
    package var installationID: String?
    package var at: Instant

    package init(
        app: String,
        pushID: String,
        eventID: String,
        identity: String,
        installationID: String?,
        at: Instant
    ) {
        self.app = app
        self.pushID = pushID
        self.eventID = eventID
        self.identity = identity
        self.installationID = installationID
        self.at = at
    }

    package var object: JSONObject {
        var object: JSONObject = [
            "pushId": .string(pushID), "eventId": .string(eventID), "app": .string(app),
        ]
        if let installationID { object["installationId"] = .string(installationID) }
        object["identity"] = .string(identity)
        object["provider"] = "secure"
        object["outcome"] = "confirmed"
        object["attempt"] = 1
        object["at"] = .string(at.iso8601)
        return object
    }

    /// Returns the record, with the device as its key, as for its deliveries' outcomes, else the identity.
    package func record(topics: KafkaTopics) -> OutgoingRecord {
        OutgoingRecord(
            topic: topics.pushOutcomes,
            key: Array((installationID ?? "identity:\(identity)").utf8),
            value: object.bytes,
            queue: OutboxQueue.reports(of: app)
        )
    }
}
