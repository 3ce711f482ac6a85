package import JSON
import Postgres
package import PushCore

/// Which row a delivery is.
package struct DeliveryKey: Hashable, Sendable {
    /// The push's day in UTC, `YYYY-MM-DD`: the partition.
    package var day: String
    package var pushID: String
    /// The installation's object id, else the token's hash in hex.
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
    /// `nil` where the push named a token.
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

    package var pushID: String { key.pushID }
    package var target: String { key.target }

    static let columns = """
        day::text AS day, push_id, target, app, installation_id, provider, environment,
        environment_explicit, token, locale, apns_topic, lane, attempts, unanswered, expires_at,
        created_at, last_reason, template_values, badge
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

/// How a delivery has ended.
package struct Settlement: Sendable, Equatable {
    package var outcome: Outcome
    package var attempts: Int
    package var unanswered: Int
    package var status: Int?
    package var reason: String?
    package var providerMessageID: String?
    /// Set where the device is gone: its token dies, if it was registered no later than this.
    package var tokenDiedAt: Instant?

    package init(
        outcome: Outcome,
        attempts: Int,
        unanswered: Int,
        status: Int? = nil,
        reason: String? = nil,
        providerMessageID: String? = nil,
        tokenDiedAt: Instant? = nil
    ) {
        self.outcome = outcome
        self.attempts = attempts
        self.unanswered = unanswered
        self.status = status
        self.reason = reason
        self.providerMessageID = providerMessageID
        self.tokenDiedAt = tokenDiedAt
    }
}

/// A delivery that has its outcome.
package struct SettledDelivery: Sendable, Equatable {
    package var key: DeliveryKey
    package var settlement: Settlement

    package init(key: DeliveryKey, _ settlement: Settlement) {
        self.key = key
        self.settlement = settlement
    }
}

/// A delivery that goes back to wait, for a retry or because its owner stops.
package struct PostponedDelivery: Sendable, Equatable {
    package var key: DeliveryKey
    package var attempts: Int
    package var unanswered: Int
    package var dueAt: Instant
    package var status: Int?
    package var reason: String?

    package init(
        key: DeliveryKey,
        attempts: Int,
        unanswered: Int,
        dueAt: Instant,
        status: Int? = nil,
        reason: String? = nil
    ) {
        self.key = key
        self.attempts = attempts
        self.unanswered = unanswered
        self.dueAt = dueAt
        self.status = status
        self.reason = reason
    }
}

/// The rows of the ledger. Planning is in `DeliveryStore+Plan.swift`, what becomes of a delivery in
/// `DeliveryStore+Settle.swift`.
package struct DeliveryStore: Sendable {
    let database: PushDatabase

    /// Why those are suppressed that nobody had sent when their push was cancelled.
    static let cancelledReason = "cancelled"

    /// What a session owns, in no order: to find rows that it does not know of, because the answer
    /// to the transaction that made them its own was lost.
    package func owned(session: Int, limit: Int = 200_000) async throws -> [Delivery] {
        try await database.execute(
            """
            SELECT \(Delivery.columns) FROM deliveries
            WHERE owner = $1 AND state = 0 LIMIT $2
            """,
            [.integer(session), .integer(limit)]
        ).rows.map(Delivery.read)
    }

    /// A partition grows from nothing to millions of rows within minutes, faster than its
    /// statistics: left alone, the planner sorts all that is due to claim 500 of it (275 ms of
    /// 200,000 rows, against 18). Each statement here has its index, so it is told to use it. What is
    /// sorted none the less then looks so dear that Postgres would compile it, for a second and more.
    static func planByIndex(_ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(planByIndexSQL)
    }

    /// That, and `SessionStore.hold`, in one round trip.
    static func holdByIndex(_ session: Int, _ transaction: PostgresTransaction) async throws {
        let found = try await transaction.pipeline([
            (planByIndexSQL, []), (SessionStore.holdSQL, [.integer(session)]),
        ])
        guard !found[1].isEmpty else { throw StorageError.sessionLost }
    }

    static let planByIndexSQL = """
        SELECT set_config('enable_sort', 'off', true),
            set_config('enable_seqscan', 'off', true),
            set_config('enable_hashjoin', 'off', true),
            set_config('enable_mergejoin', 'off', true),
            set_config('jit', 'off', true)
        """

    /// When the next delivery of a lane that nobody owns is due.
    package func nextDue(lane: Int) async throws -> Instant? {
        try await database.execute(
            """
            SELECT min(due_at) AS due FROM deliveries
            WHERE state = 0 AND owner IS NULL AND lane = $1
            """,
            [.integer(lane)]
        ).first?.instantOrNil("due")
    }

    /// The deliveries of a push as they stand, for tests and explanations.
    package func states(pushID: String, limit: Int = 1000) async throws -> [DeliveryStatus] {
        try await database.execute(
            """
            SELECT target, installation_id, state, attempts, last_status, last_reason, owner
            FROM deliveries WHERE push_id = $1 ORDER BY target LIMIT $2
            """,
            [.uuid(pushID), .integer(limit)]
        ).rows.map { row in
            DeliveryStatus(
                target: try row.text("target"),
                installationID: try row.textOrNil("installation_id"),
                state: DeliveryState(rawValue: try row.integer("state")) ?? .pending,
                attempts: try row.integer("attempts"),
                status: try row.integerOrNil("last_status"),
                reason: try row.textOrNil("last_reason"),
                owner: try row.integerOrNil("owner")
            )
        }
    }

    static let qualified = """
        d.day::text AS day, d.push_id, d.target, d.app, d.installation_id, d.provider,
        d.environment, d.environment_explicit, d.token, d.locale, d.apns_topic, d.lane,
        d.attempts, d.unanswered, d.expires_at, d.created_at, d.last_reason,
        d.template_values, d.badge
        """
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
