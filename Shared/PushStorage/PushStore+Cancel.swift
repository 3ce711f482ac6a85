import Postgres
import PushCore

extension PushStore {
    private static let rowsAtOnce = 5000

    /// Cancels a push, and tells the dispatchers. What nobody has sent yet becomes suppressed: its
    /// rows get that state, for the reason "cancelled"; the members of its shards that have no row
    /// get none, but are counted by their shard. What is in flight ends as it will, and is taken
    /// from those figures where it was counted there. Nothing of this goes to `push.outcomes`.
    ///
    /// The push, its shards and its first 5000 rows are changed in one transaction, further rows in
    /// more of them. Whoever claims one before its turn comes is told to suppress it.
    ///
    /// - Returns: The push as it stands now: cancelled, unless it was over before; `nil` where there
    ///   is none of that id.
    package func cancel(_ pushID: String) async throws -> StoredPush? {
        guard PushIdentity.isUUID(pushID) else { return nil }
        let day = try await database.transaction { transaction in
            try await DeliveryStore.planByIndex(transaction)
            // Before the push, as in a checkpoint.
            _ = try await transaction.execute(
                """
                SELECT shard FROM shards WHERE push_id = $1 AND NOT finished
                ORDER BY shard FOR UPDATE
                """,
                [.uuid(pushID)]
            )
            let changed = try await transaction.execute(
                """
                UPDATE pushes SET status = 'cancelled', planner = NULL, updated_at = now(),
                    finished_at = now()
                WHERE id = $1 AND status IN ('queued', 'scheduled', 'planning', 'sending')
                RETURNING (created_at AT TIME ZONE 'UTC')::date::text AS day
                """,
                [.uuid(pushID)]
            )
            guard let row = changed.first else { return String?.none }
            try await ShardStore.endUnfinished(of: pushID, transaction)
            _ = try await transaction.execute(
                "SELECT pg_notify('\(StorageChannel.cancelled.rawValue)', $1)",
                [.text(pushID)]
            )
            return try row.text("day")
        }
        if let day { try await suppressRows(of: pushID, day) }
        return try await find(pushID)
    }

    /// The rows that nobody owns, in the order of their targets.
    func suppressRows(of pushID: String, _ day: String) async throws {
        var last: String? = ""
        while let start = last {
            last = try await database.transaction { transaction in
                try await DeliveryStore.planByIndex(transaction)
                let results = try await transaction.pipeline([
                    ("SELECT id FROM pushes WHERE id = $1 FOR UPDATE", [.uuid(pushID)]),
                    (
                        Self.suppressSQL,
                        [
                            .uuid(pushID), .text(day), .text(start), .integer(Self.rowsAtOnce),
                            .text(DeliveryStore.cancelledReason),
                        ]
                    ),
                ])
                return try results[1].first?.textOrNil("last")
            }
        }
    }

    private static let suppressSQL = """
        WITH page AS (
            SELECT target FROM deliveries
            WHERE day = $2::date AND push_id = $1 AND target > $3 AND state = 0
                AND owner IS NULL
            ORDER BY target LIMIT $4 FOR UPDATE SKIP LOCKED
        ), ended AS (
            UPDATE deliveries d SET state = 4, last_reason = $5, updated_at = now()
            FROM page
            WHERE d.day = $2::date AND d.push_id = $1 AND d.target = page.target
            RETURNING 1
        ), books AS (
            UPDATE pushes SET pending = pending - e.count, suppressed = suppressed + e.count,
                updated_at = now()
            FROM (SELECT count(*) AS count FROM ended) e WHERE id = $1 AND e.count > 0
        )
        SELECT max(target) AS last FROM page
        """
}
