import Postgres
import PushCore

extension PushStore {
    private static let rowsAtOnce = 5000

    /// Cancels a push, and tells the dispatchers. Nobody sends anything of it from then on; what is in
    /// flight ends as it will. The rows and shards that wait are due at once: a dispatcher claims them,
    /// and suppresses each delivery for the reason "cancelled", with its outcome on `push.outcomes`
    /// before it is on the books. Until then it is pending.
    ///
    /// - Returns: The push as it stands now: cancelled, unless it was over before; `nil` where there
    ///   is none of that id.
    package func cancel(_ pushID: String) async throws -> StoredPush? {
        if let day = try await end(pushID, untold: false) { try await hastenRows(of: pushID, day) }
        return try await find(pushID)
    }

    /// Cancels a push of an app that is being deleted: what waits is suppressed here and now, and
    /// nothing of it goes to `push.outcomes`.
    func cancelUntold(_ pushID: String) async throws {
        if let day = try await end(pushID, untold: true) {
            try await suppressRows(of: pushID, day)
        }
    }

    /// - Returns: The day of its rows; `nil` where it was over before. Of one that was cancelled
    ///   before, too: whoever did it may have ended in the middle.
    private func end(_ pushID: String, untold: Bool) async throws -> String? {
        guard PushIdentity.isUUID(pushID) else { return nil }
        return try await database.transaction { transaction in
            try await IndexPlan.require(transaction)
            // Before the push, as in a checkpoint.
            _ = try await transaction.execute(Self.hastenShards(waits: true), [.uuid(pushID)])
            let changed = try await transaction.execute(
                """
                UPDATE pushes SET \(PushBooks.cancelled)
                WHERE id = $1 AND status IN \(PushStatus.sql { !$0.isFinal || $0 == .cancelled })
                RETURNING (created_at AT TIME ZONE 'UTC')::date::text AS day
                """,
                [.uuid(pushID)]
            )
            guard let row = changed.first else { return String?.none }
            if untold {
                try await PushLedger.endUnfinished(of: pushID, transaction)
            } else {
                // Those that were planned meanwhile. Nobody waits for a shard while he holds a push.
                _ = try await transaction.execute(Self.hastenShards(waits: false), [.uuid(pushID)])
            }
            _ = try await transaction.execute(
                """
                SELECT pg_notify('\(StorageChannel.cancelled.rawValue)', $1),
                    pg_notify('\(StorageChannel.shards.rawValue)', '')
                """,
                [.text(pushID)]
            )
            return try row.text("day")
        }
    }

    private static func hastenShards(waits: Bool) -> String {
        """
        WITH open AS (
            SELECT push_id, shard FROM shards WHERE push_id = $1 AND NOT finished
            ORDER BY shard FOR UPDATE \(waits ? "" : "SKIP LOCKED")
        )
        UPDATE shards s SET due_at = least(s.due_at, now())
        FROM open o WHERE s.push_id = o.push_id AND s.shard = o.shard
        """
    }

    /// Makes the rows due that nobody owns, in the order of their targets.
    private func hastenRows(of pushID: String, _ day: String) async throws {
        var last: String? = ""
        while let start = last {
            last = try await database.transaction { transaction in
                try await IndexPlan.require(transaction)
                return try await transaction.execute(
                    Self.hastenSQL,
                    [.uuid(pushID), .text(day), .text(start), .integer(Self.rowsAtOnce)]
                ).first?.textOrNil("last")
            }
        }
    }

    private static let hastenSQL = """
        WITH page AS (
            SELECT target FROM deliveries
            WHERE day = $2::date AND push_id = $1 AND target > $3 AND state = \(DeliveryState.pending.sql)
                AND owner IS NULL AND due_at > now()
            ORDER BY target LIMIT $4 FOR UPDATE SKIP LOCKED
        ), moved AS (
            UPDATE deliveries d SET due_at = now(), updated_at = now()
            FROM page
            WHERE d.day = $2::date AND d.push_id = $1 AND d.target = page.target
        )
        SELECT max(target) AS last FROM page
        """

    /// Suppresses the rows that nobody owns, in the order of their targets.
    func suppressRows(of pushID: String, _ day: String) async throws {
        var last: String? = ""
        while let start = last {
            last = try await database.transaction { transaction in
                try await IndexPlan.require(transaction)
                let results = try await transaction.pipeline([
                    ("SELECT id FROM pushes WHERE id = $1 FOR UPDATE", [.uuid(pushID)]),
                    (
                        Self.suppressSQL,
                        [
                            .uuid(pushID), .text(day), .text(start), .integer(Self.rowsAtOnce),
                            .text(Delivery.cancelledReason),
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
            WHERE day = $2::date AND push_id = $1 AND target > $3 AND state = \(DeliveryState.pending.sql)
                AND owner IS NULL
            ORDER BY target LIMIT $4 FOR UPDATE SKIP LOCKED
        ), ended AS (
            UPDATE deliveries d SET state = \(DeliveryState.suppressed.sql), last_reason = $5, updated_at = now()
            FROM page
            WHERE d.day = $2::date AND d.push_id = $1 AND d.target = page.target
            RETURNING 1
        ), books AS (
            UPDATE pushes p SET
                \(PushBooks.change([.pending: "-e.count", .suppressed: "e.count"]))
            FROM (SELECT count(*) AS count FROM ended) e WHERE p.id = $1 AND e.count > 0
        )
        SELECT max(target) AS last FROM page
        """
}
