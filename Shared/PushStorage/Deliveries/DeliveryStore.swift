import Postgres
package import PushCore

/// The rows of the ledger. Planning is in `DeliveryStore+Plan.swift`, what becomes of a delivery in
/// `DeliveryStore+Settle.swift`.
package struct DeliveryStore: Sendable {
    let database: Database
    let zoneNames: ZoneNames

    /// What a session owns, in no order: to find rows that it does not know of, because the answer
    /// to the transaction that made them its own was lost.
    package func owned(session: Int, limit: Int = 200_000) async throws -> [Delivery] {
        try await database.execute(
            """
            SELECT \(Delivery.columns) FROM deliveries
            WHERE owner = $1 AND state = \(DeliveryState.pending.sql) LIMIT $2
            """,
            [.integer(session), .integer(limit)]
        ).rows.map(Delivery.read)
    }

    /// When the next delivery of a lane that nobody owns is due.
    package func nextDue(lane: Int) async throws -> Instant? {
        try await database.execute(
            """
            SELECT min(due_at) AS due FROM deliveries
            WHERE state = \(DeliveryState.pending.sql) AND owner IS NULL AND lane = $1
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
