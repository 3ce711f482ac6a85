package import JSON
package import PushCore

/// A device's first acknowledgement of a push over its own connection: a record of `push.outcomes`
/// beside the one of the delivery.
package struct ReceivedRecord: Sendable, Equatable {
    package let object: JSONObject
    /// The installation's object id, the key of its deliveries' records, too.
    package let key: String

    /// - Parameters:
    ///   - app: The app's id.
    ///   - pushID: The push.
    ///   - eventID: Its event.
    ///   - target: The installation's object id.
    ///   - at: The time of the acknowledgement.
    package init(
        _ app: String,
        _ pushID: String,
        _ eventID: String,
        _ target: String,
        at: Instant
    ) {
        key = target
        object = [
            "pushId": .string(pushID), "eventId": .string(eventID), "app": .string(app),
            "installationId": .string(target), "provider": .string(Platform.connection.rawValue),
            "outcome": "received", "attempt": 1, "at": .string(at.iso8601),
        ]
    }
}
