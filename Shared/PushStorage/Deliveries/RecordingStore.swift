import Postgres
import PushCore

/// What becomes of rows: their ends, and their return.
package struct RecordingStore: Sendable {
    let database: Database

    /// Writes outcomes down: the rows, the books of their pushes, and the tokens that died. One
    /// transaction; what this session does not own any more is left alone and counted nowhere.
    ///
    /// - Returns: Those that were this session's and are settled now.
    package func settle(
        session: Int,
        _ settled: [DeliveryRecord]
    ) async throws -> Set<DeliveryKey> {
        let settled = Self.unique(settled)
        guard !settled.isEmpty else { return [] }
        return try await database.transaction { transaction in
            let pushIDs = Set(settled.map(\.delivery.pushID)).sorted()
            let results = try await transaction.pipeline([
                (IndexPlan.sql, []),
                (
                    "SELECT id FROM pushes WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE",
                    [.uuidArray(pushIDs)]
                ), (Self.settleSQL, Self.parameters(session, settled)),
            ])
            let rows = results[2].rows
            var keys: Set<DeliveryKey> = []
            for row in rows { keys.insert(try Self.key(row)) }
            let matched = keys
            let dead = settled.filter { matched.contains($0.delivery.key) }.compactMap(\.deadToken)
            try await DeadToken.disable(dead, transaction)
            return matched
        }
    }

    /// Gives deliveries back, to be sent when they are due by whoever is there then. What was cancelled
    /// meanwhile is due at once, to be suppressed.
    ///
    /// - Returns: How many were this session's.
    package func postpone(session: Int, _ postponed: [DeliveryRecord]) async throws -> Int {
        let postponed = Self.unique(postponed)
        guard !postponed.isEmpty else { return 0 }
        return try await database.transaction { transaction in
            try await IndexPlan.require(transaction)
            return try await transaction.execute(
                """
                UPDATE deliveries d SET owner = NULL, attempts = i.attempts,
                    unanswered = i.unanswered,
                    due_at = CASE WHEN EXISTS (SELECT FROM pushes p
                            WHERE p.id = i.push_id AND p.status = \(PushStatus.cancelled.sql))
                        THEN least(i.due_at, now()) ELSE i.due_at END,
                    last_status = coalesce(i.status, d.last_status),
                    last_reason = coalesce(i.reason, d.last_reason), updated_at = now()
                FROM unnest($2::date[], $3::uuid[], $4::text[], $5::integer[], $6::integer[],
                    $7::timestamptz[], $8::integer[], $9::text[])
                    AS i(day, push_id, target, attempts, unanswered, due_at, status, reason)
                WHERE d.day = i.day AND d.push_id = i.push_id AND d.target = i.target
                    AND d.owner IS NOT DISTINCT FROM $1 AND d.state = \(DeliveryState.pending.sql)
                """,
                [
                    .integer(session), .textArray(postponed.map(\.delivery.key.day)),
                    .uuidArray(postponed.map(\.delivery.pushID)),
                    .textArray(postponed.map(\.delivery.target)),
                    .integerArray(postponed.map(\.attempts)),
                    .integerArray(postponed.map(\.unanswered)),
                    .timestampArray(postponed.map { $0.end?.decision.dueAt?.microseconds }),
                    .integerArray(postponed.map { $0.end?.status }),
                    .textArray(postponed.map { $0.end?.reason }),
                ]
            ).affectedRows
        }
    }

    private static let mergedFailures = FailureCounts.mergeSQL(
        "p.failures",
        "SELECT provider, reason, count FROM failures WHERE push_id = p.id"
    )

    private static let booksSQL = PushBooks.change(
        [
            .pending: "-c.settled", .delivered: "c.delivered", .failed: "c.failed",
            .expired: "c.expired", .suppressed: "c.suppressed", .inDoubt: "c.in_doubt",
            .invalidTokens: "c.died",
        ],
        failures: "CASE WHEN c.failed = 0 THEN p.failures ELSE \(mergedFailures) END"
    )

    // "IS NOT DISTINCT FROM", as no index serves it: with "=" the planner may read all that the owner
    // has, for each row of the batch, where only the primary key is right.
    private static let settleSQL = """
        WITH input AS (
            SELECT * FROM unnest($2::date[], $3::uuid[], $4::text[], $5::smallint[],
                $6::integer[], $7::integer[], $8::integer[], $9::text[], $10::text[], $11::boolean[])
                AS i(day, push_id, target, state, attempts, unanswered, status, reason, message_id,
                    died)
        ), settled AS (
            UPDATE deliveries d SET state = i.state, owner = NULL, attempts = i.attempts,
                unanswered = i.unanswered, last_status = i.status, last_reason = i.reason,
                provider_message_id = i.message_id, updated_at = now()
            FROM input i
            WHERE d.day = i.day AND d.push_id = i.push_id AND d.target = i.target
                AND d.owner IS NOT DISTINCT FROM $1 AND d.state = \(DeliveryState.pending.sql)
            RETURNING d.day, d.push_id, d.target, d.state, i.died, d.provider, d.last_status,
                d.last_reason
        ), counts AS (
            SELECT push_id, count(*) AS settled,
                \(DeliveryState.counts(by: "state")),
                count(*) FILTER (WHERE died) AS died
            FROM settled GROUP BY push_id
        ), failures AS (
            SELECT push_id, provider, \(FailureCounts.reasonSQL("s")) AS reason, count(*) AS count
            FROM settled s WHERE state = \(DeliveryState.failed.sql) GROUP BY 1, 2, 3
        ), books AS (
            UPDATE pushes p SET \(booksSQL)
            FROM counts c WHERE p.id = c.push_id
        )
        SELECT day::text AS day, push_id, target FROM settled
        """

    private static func parameters(
        _ session: Int,
        _ settled: [DeliveryRecord]
    ) -> [PostgresValue] {
        [
            .integer(session), .textArray(settled.map(\.delivery.key.day)),
            .uuidArray(settled.map(\.delivery.pushID)), .textArray(settled.map(\.delivery.target)),
            .integerArray(settled.map(\.state.rawValue)),
            .integerArray(settled.map(\.attempts)), .integerArray(settled.map(\.unanswered)),
            .integerArray(settled.map { $0.end?.status }),
            .textArray(settled.map { $0.end?.reason }),
            .textArray(settled.map { $0.end?.messageID }),
            .booleanArray(settled.map { $0.end?.tokenDiedAt != nil }),
        ]
    }

    private static func key(_ row: PostgresRow) throws -> DeliveryKey {
        DeliveryKey(
            day: try row.text("day"),
            pushID: try row.uuid("push_id"),
            target: try row.text("target")
        )
    }

    /// The first of each key, by key: rows are locked in one order, and none twice.
    private static func unique(_ records: [DeliveryRecord]) -> [DeliveryRecord] {
        var seen: Set<DeliveryKey> = []
        return records.filter { seen.insert($0.delivery.key).inserted }
            .sorted {
                let (a, b) = ($0.delivery.key, $1.delivery.key)
                return (a.day, a.pushID, a.target) < (b.day, b.pushID, b.target)
            }
    }
}
