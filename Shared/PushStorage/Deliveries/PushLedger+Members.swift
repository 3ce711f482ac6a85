import InstallationStorage
import JSON
package import Postgres
import PushCore
import Storage

/// Records members of shards, and ends shards that cannot be sent.
extension PushLedger {
    /// Writes checkpoints of shards in one transaction: delivered members as chunks, all others as
    /// rows, with the cursors, the counters of the pushes, and the dead tokens. The last checkpoint
    /// of a shard has `isFinished`. It releases the shard, and corrects the counters by the members
    /// that were added or removed while the shard was sent.
    ///
    /// A checkpoint whose reply was lost may be written again: records that are stored already are left
    /// out.
    ///
    /// - Throws: `StorageError` of kind `sessionLost` if the session does not own one of the
    ///   shards; then nothing was written.
    func write(
        _ checkpoints: [(ClaimedShard, ShardCheckpoint)],
        session: Int
    ) async throws -> [LedgerResult] {
        guard !checkpoints.isEmpty else { return [] }
        return try await database.transaction { transaction in
            // Each checkpoint locks its shard's row, all in the same order. The rows of pushes are
            // locked last, as all shards of a push wait for them.
            let order = checkpoints.indices.sorted {
                let (a, b) = (checkpoints[$0].0, checkpoints[$1].0)
                return (a.pushID, a.shard) < (b.pushID, b.shard)
            }
            var parts: [(place: Int, part: Part)] = []
            for place in order {
                let (shard, checkpoint) = checkpoints[place]
                let part = try await Self.part(
                    session,
                    shard,
                    checkpoint,
                    at: database.clock.now(),
                    transaction
                )
                if let part { parts.append((place, part)) }
            }
            let statuses = try await Self.write(parts.map(\.part), transaction)
            var results = checkpoints.map { _ in LedgerResult.written }
            for (place, part) in parts {
                let (shard, status) = (part.shard, statuses[part.shard.pushID])
                if status == .failed, !part.after.isFinished {
                    // The push failed while this transaction had the shard locked, so this
                    // transaction must end it.
                    try await Self.endUnfinished(
                        of: shard.pushID,
                        only: shard.shard,
                        transaction
                    )
                }
                if status?.isCutShort == true, !shard.isCancelled { results[place] = .cancelled }
            }
            let dead = parts.flatMap(\.part.records).compactMap(\.deadToken)
            if !dead.isEmpty {
                try await IndexPlan.require(transaction)
                try await DeadToken.disable(dead, transaction)
            }
            return results
        }
    }

    /// A checkpoint of the transaction whose rows are written.
    private struct Part {
        let shard: ClaimedShard
        let checkpoint: ShardCheckpoint
        let records: [DeliveryRecord]
        let chunks: [DeliveryChunk]
        let after: ShardLedger
        var change: LedgerChange
    }

    /// - Returns: `nil` if this same checkpoint was written before and has ended the shard.
    private static func part(
        _ session: Int,
        _ shard: ClaimedShard,
        _ checkpoint: ShardCheckpoint,
        at now: Instant,
        _ transaction: PostgresTransaction
    ) async throws -> Part? {
        guard let held = try await hold(session, shard, checkpoint, transaction) else { return nil }
        var records = try checkpoint.records(behind: held.cursor)
        if shard.zones != nil { records = try await unrecorded(records, of: shard, transaction) }
        let (chunks, rows) = DeliveryChunk.divide(records, of: shard)
        if !rows.isEmpty {
            try await insert(rows, of: shard, session: session, held, at: now, transaction)
        }
        var books = held.books
        books.record(records.count)
        if checkpoint.isFinished { books.finish() }
        var change = LedgerChange(records)
        change.moved(from: held.books, to: books)
        return Part(
            shard: shard,
            checkpoint: checkpoint,
            records: records,
            chunks: chunks,
            after: books,
            change: change
        )
    }

    /// Returns the records that have no row yet. If a member has moved to another zone meanwhile,
    /// the other shard may have written its row.
    private static func unrecorded(
        _ records: [DeliveryRecord],
        of shard: ClaimedShard,
        _ transaction: PostgresTransaction
    ) async throws -> [DeliveryRecord] {
        guard !records.isEmpty else { return [] }
        let known = try await transaction.execute(
            """
            SELECT target FROM deliveries
            WHERE day = $1::date AND push_id = $2 AND target = ANY ($3::text[])
            """,
            [
                .text(shard.day), .uuid(shard.pushID),
                .textArray(records.map(\.delivery.target)),
            ]
        ).rows
        guard !known.isEmpty else { return records }
        let targets = Set(try known.map { try $0.text("target") })
        return records.filter { !targets.contains($0.delivery.target) }
    }

    struct Held {
        let books: ShardLedger
        let cursor: String?
        let isCancelled: Bool
        /// The table for the rows: the partition of the push's day, or `deliveries` if there is
        /// none. An insert into the partition costs a tenth less.
        let table: String
    }

    /// Locks a shard that this session owns.
    ///
    /// - Returns: `nil` if this same checkpoint was written before and has ended the shard.
    private static func hold(
        _ session: Int,
        _ shard: ClaimedShard,
        _ checkpoint: ShardCheckpoint,
        _ transaction: PostgresTransaction
    ) async throws -> Held? {
        let results = try await transaction.pipeline([
            (SessionStore.holdSQL, [.integer(session)]),
            (
                """
                SELECT s.owner, s.cursor, s.expected, s.recorded, s.cancelled, s.finished,
                    p.status, (SELECT c.relname::text FROM pg_class c
                        WHERE c.oid = to_regclass('deliveries_' || to_char(s.day, 'YYYYMMDD'))
                            AND c.relispartition) AS partition
                FROM shards s JOIN pushes p ON p.id = s.push_id
                WHERE s.push_id = $1 AND s.shard = $2 FOR UPDATE OF s
                """, [.uuid(shard.pushID), .integer(shard.shard)]
            ),
        ])
        guard !results[0].isEmpty, let row = results[1].first else {
            throw StorageError.sessionLost
        }
        let books = ShardLedger(
            expected: try row.integer("expected"),
            recorded: try row.integer("recorded"),
            cancelled: try row.integer("cancelled"),
            isFinished: try row.boolean("finished")
        )
        let owner = try row.integerOrNil("owner")
        let cursor = try row.textOrNil("cursor")
        if owner == nil, books.isFinished, checkpoint.isFinished,
            checkpoint.cursor ?? cursor == cursor
        {
            return nil
        }
        guard owner == session else { throw StorageError.sessionLost }
        return Held(
            books: books,
            cursor: cursor,
            isCancelled: PushStatus(rawValue: try row.text("status"))?.isCutShort ?? false,
            table: try row.textOrNil("partition") ?? "deliveries"
        )
    }

    private static let booksSQL = LedgerSQL.change(
        [
            .targeted: "$2", .pending: "$3", .delivered: "$4", .failed: "$5", .expired: "$6",
            .suppressed: "$7", .inDoubt: "$8", .invalidTokens: "$9", .openShards: "$10",
        ],
        failures: """
            CASE WHEN $11::jsonb IS NULL THEN p.failures
                ELSE \(FailureCounts.mergeSQL("p.failures", FailureCounts.querySQL("$11"))) END
            """
    )

    /// Writes chunks, then the counters of shards, then the counters of their pushes.
    ///
    /// - Returns: The pushes' statuses.
    private static func write(
        _ parts: [Part],
        _ transaction: PostgresTransaction
    ) async throws -> [String: PushStatus] {
        guard !parts.isEmpty else { return [:] }
        var changes: [String: LedgerChange] = [:]
        for part in parts { changes[part.shard.pushID, default: LedgerChange([])].add(part.change) }
        let ids = changes.keys.sorted()
        var statements = parts.flatMap { part in part.chunks.map { $0.insertion(of: part.shard) } }
        statements += parts.map(cursor)
        statements += ids.map { counters(of: $0, changes[$0] ?? LedgerChange([])) }
        let results = try await transaction.pipeline(statements)
        var statuses: [String: PushStatus] = [:]
        for (id, result) in zip(ids, results.suffix(ids.count)) {
            statuses[id] = try result.first.flatMap { PushStatus(rawValue: try $0.text("status")) }
        }
        return statuses
    }

    private static func cursor(of part: Part) -> (sql: String, parameters: [PostgresValue]) {
        (
            """
            UPDATE shards SET cursor = greatest(cursor, $3), expected = $4, recorded = $5,
                cancelled = $6, finished = $7, updated_at = now(),
                members = CASE WHEN NOT $7 THEN members END,
                owner = CASE WHEN $8 THEN NULL ELSE owner END
            WHERE push_id = $1 AND shard = $2
            """,
            [
                .uuid(part.shard.pushID), .integer(part.shard.shard),
                .optional(text: part.checkpoint.cursor), .integer(part.after.expected),
                .integer(part.after.recorded), .integer(part.after.cancelled),
                .boolean(part.after.isFinished), .boolean(part.checkpoint.isFinished),
            ]
        )
    }

    private static func counters(
        of pushID: String,
        _ change: LedgerChange
    ) -> (sql: String, parameters: [PostgresValue]) {
        (
            "UPDATE pushes p SET \(booksSQL) WHERE p.id = $1 RETURNING p.status",
            [
                .uuid(pushID), .integer(change.ledger.targeted),
                .integer(change.ledger.pending), .integer(change.ledger.delivered),
                .integer(change.ledger.failed), .integer(change.ledger.expired),
                .integer(change.ledger.suppressed), .integer(change.ledger.inDoubt),
                .integer(change.ledger.invalidTokens), .integer(-change.closedShards),
                change.failures.parameter,
            ]
        )
    }

    /// Ends the shards of a push that cannot be sent, or whose app is deleted. It skips shards that
    /// other transactions have locked: those end a shard of a failed push themselves. Members
    /// without a row are counted as suppressed, without outcome records. The sessions keep the
    /// shards that they own, to record the members that were sent.
    package static func endUnfinished(
        of pushID: String,
        only shard: Int? = nil,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            WITH open AS (
                SELECT push_id, shard FROM shards
                WHERE push_id = $1 AND NOT finished AND ($2::integer IS NULL OR shard = $2)
                ORDER BY shard FOR UPDATE SKIP LOCKED
            ), ended AS (
                UPDATE shards s SET finished = true, cancelled = s.expected - s.recorded,
                    members = NULL, updated_at = now()
                FROM open o WHERE s.push_id = o.push_id AND s.shard = o.shard
                RETURNING s.cancelled
            )
            UPDATE pushes p SET \(LedgerSQL.change([
                .pending: "-e.members", .suppressed: "e.members", .openShards: "-e.shards",
            ]))
            FROM (SELECT coalesce(sum(cancelled), 0) AS members, count(*) AS shards FROM ended) e
            WHERE p.id = $1 AND e.shards > 0
            """,
            [.uuid(pushID), .optional(integer: shard)]
        )
    }

    /// Ends a shard of a cancelled push whose members cannot be read. The remaining members are
    /// suppressed without outcome records.
    ///
    /// - Throws: `StorageError` of kind `sessionLost`.
    package func endUnread(session: Int, _ shard: ClaimedShard) async throws {
        try await database.transaction { transaction in
            try await SessionStore.hold(session, transaction)
            let held = try await transaction.execute(
                """
                SELECT 1 AS held FROM shards
                WHERE push_id = $1 AND shard = $2 AND owner = $3 AND NOT finished FOR UPDATE
                """,
                [.uuid(shard.pushID), .integer(shard.shard), .integer(session)]
            )
            guard !held.isEmpty else { throw StorageError.sessionLost }
            try await Self.endUnfinished(of: shard.pushID, only: shard.shard, transaction)
            _ = try await transaction.execute(
                "UPDATE shards SET owner = NULL WHERE push_id = $1 AND shard = $2",
                [.uuid(shard.pushID), .integer(shard.shard)]
            )
        }
    }
}

/// The change of a push's ledger by some records.
struct LedgerChange: Equatable {
    private(set) var ledger = Ledger()
    private(set) var failures = FailureTally()
    private(set) var closedShards = 0

    /// Counts only the records themselves.
    init(_ records: [DeliveryRecord]) {
        for record in records {
            guard let end = record.end, let outcome = end.outcome else {
                ledger.pending += 1
                continue
            }
            ledger[outcome] += 1
            if end.tokenDiedAt != nil { ledger.invalidTokens += 1 }
            if outcome == .failed {
                failures.add(
                    record.delivery.device.provider,
                    reason: end.reason,
                    status: end.status
                )
            }
        }
    }

    mutating func add(_ other: LedgerChange) {
        for outcome in Outcome.allCases { ledger[outcome] += other.ledger[outcome] }
        ledger.targeted += other.ledger.targeted
        ledger.pending += other.ledger.pending
        ledger.invalidTokens += other.ledger.invalidTokens
        failures.add(other.failures)
        closedShards += other.closedShards
    }

    /// Adds the change of a shard's members without a row.
    mutating func moved(from before: ShardLedger, to after: ShardLedger) {
        ledger.targeted += after.expected - before.expected
        ledger.pending += after.unrecorded - before.unrecorded
        ledger.suppressed += after.cancelled - before.cancelled
        if after.isFinished, !before.isFinished { closedShards += 1 }
    }
}

extension ShardCheckpoint {
    /// Returns the records after the stored cursor.
    ///
    /// - Throws: `StorageError` if a record is after its own checkpoint's cursor: it would be sent
    ///   again.
    fileprivate func records(behind known: String?) throws -> [DeliveryRecord] {
        if let known, let cursor, cursor <= known, !isFinished { return [] }
        if !isFinished, let last = records.lazy.map(\.delivery.target).max(),
            last > cursor ?? ""
        {
            throw StorageError(.conflict, "a record lies behind its checkpoint's cursor")
        }
        guard let known, !records.allSatisfy({ $0.delivery.target > known }) else {
            return records
        }
        return records.filter { $0.delivery.target > known }
    }
}
