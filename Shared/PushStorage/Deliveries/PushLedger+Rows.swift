import InstallationStorage
import Postgres
import PushCore
import Storage

/// Records the ends of rows with the counters of their pushes, and releases rows.
extension PushLedger {
    /// Writes rows in one transaction, with the dead tokens. Rows that this session no longer owns
    /// are left alone. A released row is due as its record says. If its push was cancelled
    /// meanwhile it is due at once, to be suppressed.
    ///
    /// - Returns: The keys of the rows that this session owned.
    func write(_ records: [DeliveryRecord], session: Int) async throws -> Set<DeliveryKey> {
        let records = Self.unique(records)
        guard !records.isEmpty else { return [] }
        return try await database.transaction { transaction in
            let pushIDs = Set(
                records.lazy.filter { $0.state != .pending }.map(\.delivery.pushID)
            ).sorted()
            let results = try await transaction.pipeline([
                (IndexPlan.sql, []),
                (
                    "SELECT id FROM pushes WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE",
                    [.uuidArray(pushIDs)]
                ), (Self.rowsSQL, [.integer(session)] + Self.changes.parameters(of: records)),
            ])
            let keys = Set(try results[2].rows.map(Self.key))
            try await DeadToken.disable(
                records.filter { keys.contains($0.delivery.key) }.compactMap(\.deadToken),
                transaction
            )
            return keys
        }
    }

    private static let mergedFailures = FailureCounts.mergeSQL(
        "p.failures",
        "SELECT provider, reason, count FROM failures WHERE push_id = p.id"
    )

    private static let settledSQL = LedgerSQL.change(
        [
            .pending: "-c.settled", .delivered: "c.delivered", .failed: "c.failed",
            .expired: "c.expired", .suppressed: "c.suppressed", .inDoubt: "c.in_doubt",
            .invalidTokens: "c.died",
        ],
        failures: "CASE WHEN c.failed = 0 THEN p.failures ELSE \(mergedFailures) END"
    )

    // "IS NOT DISTINCT FROM" cannot use an index. With "=" the planner may read all rows of the
    // owner for each row of the batch, where only the primary key is right.
    private static let rowsSQL = """
        WITH written AS (
            UPDATE deliveries d SET state = i.state, owner = NULL, attempts = i.attempts,
                unanswered = i.unanswered,
                due_at = CASE WHEN i.due_at IS NULL THEN d.due_at
                    WHEN EXISTS (SELECT FROM pushes p
                        WHERE p.id = i.push_id AND p.status = \(PushStatus.cancelled.sql))
                    THEN least(i.due_at, now()) ELSE i.due_at END,
                last_status = CASE WHEN i.due_at IS NULL THEN i.status
                    ELSE coalesce(i.status, d.last_status) END,
                last_reason = CASE WHEN i.due_at IS NULL THEN i.reason
                    ELSE coalesce(i.reason, d.last_reason) END,
                provider_message_id = i.message_id,
                answers = CASE WHEN i.answers IS NULL THEN d.answers
                    ELSE (coalesce(d.answers::jsonb, '[]') || i.answers::jsonb)::json END,
                updated_at = now()
            FROM \(changes.source(as: "i", after: 1))
            WHERE d.day = i.day AND d.push_id = i.push_id AND d.target = i.target
                AND d.owner IS NOT DISTINCT FROM $1 AND d.state = \(DeliveryState.pending.sql)
            RETURNING d.day, d.push_id, d.target, d.state, i.died, d.provider, d.last_status,
                d.last_reason
        ), counts AS (
            SELECT push_id, count(*) AS settled,
                \(DeliveryState.counts(by: "state")),
                count(*) FILTER (WHERE died) AS died
            FROM written WHERE state <> \(DeliveryState.pending.sql) GROUP BY push_id
        ), failures AS (
            SELECT push_id, provider, \(FailureCounts.reasonSQL("w")) AS reason, count(*) AS count
            FROM written w WHERE state = \(DeliveryState.failed.sql) GROUP BY 1, 2, 3
        ), books AS (
            UPDATE pushes p SET \(settledSQL)
            FROM counts c WHERE p.id = c.push_id
        )
        SELECT day::text AS day, push_id, target FROM written
        """

    private static let changes = Columns<DeliveryRecord>([
        .date("day") { $0.delivery.key.day }, .uuid("push_id") { $0.delivery.pushID },
        .text("target") { $0.delivery.target }, .smallint("state") { $0.state.rawValue },
        .integer("attempts") { $0.attempts }, .integer("unanswered") { $0.unanswered },
        .integer("status") { $0.end?.status }, .text("reason") { $0.end?.reason },
        .text("message_id") { $0.state == .pending ? nil : $0.end?.messageID },
        .boolean("died") { $0.end?.tokenDiedAt != nil },
        .time("due_at") { $0.end?.decision.dueAt }, .json("answers") { $0.answers },
    ])

    private static func key(_ row: PostgresRow) throws -> DeliveryKey {
        DeliveryKey(
            day: try row.text("day"),
            pushID: try row.uuid("push_id"),
            target: try row.text("target")
        )
    }

    /// Returns the first record of each key, sorted by key, so that rows are locked in one order.
    private static func unique(_ records: [DeliveryRecord]) -> [DeliveryRecord] {
        var seen: Set<DeliveryKey> = []
        return records.filter { seen.insert($0.delivery.key).inserted }
            .sorted {
                let (a, b) = ($0.delivery.key, $1.delivery.key)
                return (a.day, a.pushID, a.target) < (b.day, b.pushID, b.target)
            }
    }
}
