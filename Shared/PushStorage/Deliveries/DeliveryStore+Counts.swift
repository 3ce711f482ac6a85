import Postgres
package import PushCore

/// Deliveries of some pushes that went to one push service and ended the same way.
package struct DeliveryCount: Sendable, Equatable {
    package var platform: Platform
    /// `nil`: they have not ended.
    package var outcome: Outcome?
    /// The last answer's.
    package var status: Int?
    package var reason: String?
    package var count: Int
}

/// One delivery, for whoever asked to see what becomes of it.
package struct DeliveryRow: Sendable, Equatable {
    package var installationID: String?
    package var token: String
    /// Of this one alone.
    package var count: DeliveryCount
}

extension DeliveryStore {
    private static let ofPushes = """
        FROM pushes p JOIN deliveries d ON d.push_id = p.id
            AND d.day = (p.created_at AT TIME ZONE 'UTC')::date
        WHERE p.id = ANY ($1::uuid[])
        """

    /// How the deliveries of some pushes ended, as far as they have rows: those of a broadcast get
    /// theirs as it goes on.
    package func counts(of pushIDs: [String]) async throws -> [DeliveryCount] {
        try await database.execute(
            """
            SELECT d.provider, d.state, d.last_status, d.last_reason, count(*) AS count
            \(Self.ofPushes)
            GROUP BY d.provider, d.state, d.last_status, d.last_reason
            ORDER BY d.provider, count(*) DESC LIMIT 1000
            """,
            [.uuidArray(pushIDs.sorted())]
        ).rows.map(Self.count)
    }

    /// The deliveries themselves, at most `limit` of them.
    package func rows(of pushIDs: [String], limit: Int) async throws -> [DeliveryRow] {
        try await database.execute(
            """
            SELECT d.provider, d.state, d.last_status, d.last_reason, 1::bigint AS count, d.token,
                d.installation_id
            \(Self.ofPushes) ORDER BY d.push_id, d.target LIMIT $2
            """,
            [.uuidArray(pushIDs.sorted()), .integer(limit)]
        ).rows.map { row in
            DeliveryRow(
                installationID: try row.textOrNil("installation_id"),
                token: try row.text("token"),
                count: try Self.count(row)
            )
        }
    }

    private static func count(_ row: PostgresRow) throws -> DeliveryCount {
        guard let platform = Platform(rawValue: try row.text("provider")) else {
            throw StorageError(.corrupt, "a delivery has no known provider")
        }
        return DeliveryCount(
            platform: platform,
            outcome: DeliveryState(rawValue: try row.integer("state"))?.outcome,
            status: try row.integerOrNil("last_status"),
            reason: try row.textOrNil("last_reason"),
            count: try row.integer("count")
        )
    }
}
