package import JSON
package import PushCore

/// A reader has read a secure payload for the first time: a record of `push.outcomes` beside those of
/// the deliveries that told of it. No provider had a part in it.
package struct ConfirmedRead: Sendable, Equatable {
    package var app: String
    package var pushID: String
    package var eventID: String
    package var identity: String
    /// The device that proved itself; `nil`: somebody proved to be the identity.
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

    /// Keyed by the device, as its deliveries' outcomes are, else by the identity.
    package func record(topics: KafkaTopics) -> OutgoingRecord {
        OutgoingRecord(
            topic: topics.pushOutcomes,
            key: Array((installationID ?? "identity:\(identity)").utf8),
            value: object.bytes
        )
    }
}
