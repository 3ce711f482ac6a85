package import JSON
package import PushCore
import Storage

/// The key of a delivery's row.
package struct DeliveryKey: Hashable, Sendable {
    /// The push's day in UTC, `YYYY-MM-DD`: the partition.
    package var day: String
    package var pushID: String
    /// The installation's object id, else the token's hash in hex, or `topic:<name>`.
    package var target: String

    package init(day: String, pushID: String, target: String) {
        self.day = day
        self.pushID = pushID
        self.target = target
    }
}

/// One delivery that a session owns and has to end.
package struct Delivery: Sendable, Equatable {
    package var key: DeliveryKey
    package var app: String
    /// `nil` if the push named a token or a topic.
    package var installationID: String?
    package var device: DeviceTarget
    package var locale: String?
    package var apnsTopic: String?
    package var lane: Int
    package var attempts: Int
    package var unanswered: Int
    package var expiresAt: Instant?
    /// The time at which it was first due. Its age is counted from this time, even if it is
    /// released later.
    package var createdAt: Instant
    /// The reason why it is not sent at all: the push names its installation, which cannot be
    /// reached.
    package var suppression: String?
    /// The values of its push's placeholders, by field; `nil` if it has none.
    package var values: JSONObject?
    /// The badge to send, if its push raises the installation's stored badge.
    package var badge: Int?

    /// The reason of deliveries that are suppressed because their push was cancelled.
    static let cancelledReason = "cancelled"

    /// Whether it goes to a topic's subscribers: its outcome says nothing about any device.
    package var isForTopic: Bool {
        installationID == nil && target.utf8.starts(with: AudienceTopic.targetPrefix.utf8)
    }

    package var pushID: String { key.pushID }
    package var target: String { key.target }
}

/// The present state of a delivery.
package struct DeliveryStatus: Sendable, Equatable {
    package var target: String
    package var installationID: String?
    package var state: DeliveryState
    package var attempts: Int
    package var status: Int?
    package var reason: String?
    /// The session that owns it, if any.
    package var owner: Int?
}
