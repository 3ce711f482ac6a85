import Postgres
import PushCore
import Storage

extension PushStore {
    private static let rowsAtOnce = 5000

    /// Cancels a push, and notifies the dispatchers. Nothing more of it is sent; deliveries in
    /// flight end as usual. Its waiting rows and shards are due at once. A dispatcher claims them
    /// and suppresses each delivery for the reason "cancelled". The outcome goes to `push.outcomes`
    /// before it is in the ledger, and until then the delivery is pending.
    ///
    /// - Returns: The push as it is now: cancelled, unless it had ended before; `nil` if the id is
    ///   unknown.
    package func cancel(_ pushID: String) async throws -> StoredPush? {
        if let day = try await end(pushID, withoutOutcomes: false) {
            try await makeRowsDue(of: pushID, day)
        }
        return try await find(pushID)
    }

    /// Cancels a push of an app that is being deleted. Waiting deliveries are suppressed here, and
    /// their outcomes do not go to `push.outcomes`.
    package func cancelWithoutOutcomes(_ pushID: String) async throws {
        if let day = try await end(pushID, withoutOutcomes: true) {
            try await suppressRows(of: pushID, day)
        }
    }

    /// - Returns: The day of its rows; `nil` if it had ended before. Also returns the day if the
    ///   push was cancelled before: that call may have stopped in the middle.
    private func end(_ pushID: String, withoutOutcomes: Bool) async throws -> String? {
        guard PushIdentity.isUUID(pushID) else { return nil }
        return try await database.transaction { transaction in
            try await IndexPlan.require(transaction)
            // The shards are locked before the push, as in a checkpoint.
            _ = try await transaction.execute(Self.makeShardsDue(waits: true), [.uuid(pushID)])
            let changed = try await transaction.execute(
                """
                UPDATE pushes SET \(LedgerSQL.cancelled)
                WHERE id = $1 AND status IN \(PushStatus.sql { !$0.isFinal || $0 == .cancelled })
                RETURNING (created_at AT TIME ZONE 'UTC')::date::text AS day
                """,
                [.uuid(pushID)]
            )
            guard let row = changed.first else { return String?.none }
            if withoutOutcomes {
                try await PushLedger.endUnfinished(of: pushID, transaction)
            } else {
                // Makes shards due that were planned meanwhile. It skips locked shards, as a
                // transaction that has locked a push must not wait for a shard.
                _ = try await transaction.execute(Self.makeShardsDue(waits: false), [.uuid(pushID)])
            }
            _ = try await transaction.execute(
                """
                SELECT pg_notify('\(NotifyChannel.cancelled.rawValue)', $1),
                    pg_notify('\(NotifyChannel.shards.rawValue)', '')
                """,
                [.text(pushID)]
            )
            return try row.text("day")
        }
    }

    private static func makeShardsDue(waits: Bool) -> String {
        """
        WITH open AS (
            SELECT push_id, shard FROM shards WHERE push_id = $1 AND NOT finished
            ORDER BY shard FOR UPDATE \(waits ? "" : "SKIP LOCKED")
        )
        UPDATE shards s SET due_at = least(s.due_at, now())
        FROM open o WHERE s.push_id = o.push_id AND s.shard = o.shard
        """
    }

    /// Makes the rows without an owner due, in the order of their targets.
    private func makeRowsDue(of pushID: String, _ day: String) async throws {
        var last: String? = ""
        while let start = last {
            last = try await database.transaction { transaction in
                try await IndexPlan.require(transaction)
                return try await transaction.execute(
                    Self.makeDueSQL,
                    [.uuid(pushID), .text(day), .text(start), .integer(Self.rowsAtOnce)]
                ).first?.textOrNil("last")
            }
        }
    }

    private static let makeDueSQL = """
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

    /// Suppresses the rows without an owner, in the order of their targets.
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
                \(LedgerSQL.change([.pending: "-e.count", .suppressed: "e.count"]))
            FROM (SELECT count(*) AS count FROM ended) e WHERE p.id = $1 AND e.count > 0
        )
        SELECT max(target) AS last FROM page
        """
}
