package import JSON
import Postgres
package import PushCore

/// Which row a delivery is.
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

/// One delivery that a session owns and has to bring to its end.
package struct Delivery: Sendable, Equatable {
    package var key: DeliveryKey
    package var app: String
    /// `nil` where the push named a token or a topic.
    package var installationID: String?
    package var device: DeviceTarget
    package var locale: String?
    package var apnsTopic: String?
    package var lane: Int
    package var attempts: Int
    package var unanswered: Int
    package var expiresAt: Instant?
    /// When it was first due: its age is counted from then, however often it goes back.
    package var createdAt: Instant
    /// Why it is not to be sent at all: its installation was named, and cannot be reached.
    package var suppression: String?
    /// What its push's placeholders stand for, by field; `nil`: nothing, or it has none.
    package var values: JSONObject?
    /// The badge to send, where its push raises its installation's own.
    package var badge: Int?

    /// Why those are suppressed that nobody had sent when their push was cancelled.
    static let cancelledReason = "cancelled"

    /// Whether it goes to a topic's subscribers: what becomes of it says nothing of any device.
    package var isForTopic: Bool {
        installationID == nil && target.utf8.starts(with: AudienceTopic.targetPrefix.utf8)
    }

    package var pushID: String { key.pushID }
    package var target: String { key.target }

    static let columns = """
        day::text AS day, push_id, target, app, installation_id, provider, environment,
        environment_explicit, token, locale, apns_topic, lane, attempts, unanswered, expires_at,
        created_at, last_reason, template_values, badge
        """

    /// The same of a row `d`.
    static let qualified = """
        d.day::text AS day, d.push_id, d.target, d.app, d.installation_id, d.provider,
        d.environment, d.environment_explicit, d.token, d.locale, d.apns_topic, d.lane,
        d.attempts, d.unanswered, d.expires_at, d.created_at, d.last_reason,
        d.template_values, d.badge
        """

    static func read(_ row: PostgresRow) throws -> Delivery {
        let provider = try row.text("provider")
        guard let platform = Platform(rawValue: provider) else {
            throw StorageError(.corrupt, "a delivery is for the unknown provider \(provider)")
        }
        let token = try row.text("token")
        return Delivery(
            key: DeliveryKey(
                day: try row.text("day"),
                pushID: try row.uuid("push_id"),
                target: try row.text("target")
            ),
            app: try row.text("app"),
            installationID: try row.textOrNil("installation_id"),
            device: DeviceTarget(
                provider: platform,
                token: token,
                environment: PushEnvironment(rawValue: try row.text("environment")) ?? .none,
                environmentIsExplicit: try row.boolean("environment_explicit")
            ),
            locale: try row.textOrNil("locale"),
            apnsTopic: try row.textOrNil("apns_topic"),
            lane: try row.integer("lane"),
            attempts: try row.integer("attempts"),
            unanswered: try row.integer("unanswered"),
            expiresAt: try row.instantOrNil("expires_at"),
            createdAt: try row.instant("created_at"),
            suppression: token.isEmpty ? try row.textOrNil("last_reason") ?? "no token" : nil,
            values: try row.jsonOrNil("template_values")?.object,
            badge: try row.integerOrNil("badge")
        )
    }
}

/// How a delivery stands.
package struct DeliveryStatus: Sendable, Equatable {
    package var target: String
    package var installationID: String?
    package var state: DeliveryState
    package var attempts: Int
    package var status: Int?
    package var reason: String?
    /// The session that has it, if any.
    package var owner: Int?
}
