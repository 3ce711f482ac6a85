import JSON
import Postgres
import PushCore

/// Members of shards, and the end of those that cannot be sent.
extension PushLedger {
    /// Writes checkpoints of shards in one transaction: members that it went well for by the chunk, rows
    /// of the others, the cursors, the counters of the pushes, and the tokens that died. The last
    /// checkpoint of a shard, which says `isFinished`, gives it back and corrects the counters by the
    /// members that came or went while it was sent.
    ///
    /// A checkpoint whose reply was lost may be made again: what is recorded already is left out.
    ///
    /// - Throws: `StorageError` of kind `sessionLost` if one of the shards is not this session's; then
    ///   nothing was written.
    func write(
        _ checkpoints: [(ClaimedShard, ShardCheckpoint)],
        session: Int
    ) async throws -> [LedgerResult] {
        guard !checkpoints.isEmpty else { return [] }
        return try await database.transaction { transaction in
            // Each locks its shard's row, in one order; the pushes' rows come last, as all shards of a
            // push wait for them.
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
                    // It failed while this shard was locked here, so it was left to us.
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

    /// A checkpoint within its transaction, its rows written.
    private struct Part {
        let shard: ClaimedShard
        let checkpoint: ShardCheckpoint
        let records: [DeliveryRecord]
        let chunks: [DeliveryChunk]
        let after: ShardBooks
        var change: BooksChange
    }

    /// - Returns: `nil` if just this checkpoint has ended the shard already.
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
        var change = BooksChange(records)
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

    /// A member that moved from one zone to another meanwhile may have its row from there.
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

    private struct Held {
        let books: ShardBooks
        let cursor: String?
        let isCancelled: Bool
        /// Where the rows go: the partition of the push's day, which saves a tenth of what the way
        /// through `deliveries` costs, else that.
        let table: String
    }

    /// Locks a shard that is this session's.
    ///
    /// - Returns: `nil` where just this checkpoint has ended it already.
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
        let books = ShardBooks(
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

    private static let booksSQL = PushBooks.change(
        [
            .targeted: "$2", .pending: "$3", .delivered: "$4", .failed: "$5", .expired: "$6",
            .suppressed: "$7", .inDoubt: "$8", .invalidTokens: "$9", .openShards: "$10",
        ],
        failures: """
            CASE WHEN $11::jsonb IS NULL THEN p.failures
                ELSE \(FailureCounts.mergeSQL("p.failures", FailureCounts.querySQL("$11"))) END
            """
    )

    /// Writes chunks, the counters of shards, and those of their pushes, the latter last.
    ///
    /// - Returns: The pushes' statuses.
    private static func write(
        _ parts: [Part],
        _ transaction: PostgresTransaction
    ) async throws -> [String: PushStatus] {
        guard !parts.isEmpty else { return [:] }
        var changes: [String: BooksChange] = [:]
        for part in parts { changes[part.shard.pushID, default: BooksChange([])].add(part.change) }
        let ids = changes.keys.sorted()
        var statements = parts.flatMap { part in part.chunks.map { $0.insertion(of: part.shard) } }
        statements += parts.map(cursor)
        statements += ids.map { counters(of: $0, changes[$0] ?? BooksChange([])) }
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
        _ change: BooksChange
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

    /// Ends the shards of a push that nobody else is at just now, and counts their members without a
    /// row as suppressed, without a word to any of them: the push cannot be sent, or its app is deleted.
    /// Whoever is at one of a push that failed does it himself. Their owners keep them, to record what
    /// was sent.
    static func endUnfinished(
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
            UPDATE pushes p SET \(PushBooks.change([
                .pending: "-e.members", .suppressed: "e.members", .openShards: "-e.shards",
            ]))
            FROM (SELECT coalesce(sum(cancelled), 0) AS members, count(*) AS shards FROM ended) e
            WHERE p.id = $1 AND e.shards > 0
            """,
            [.uuid(pushID), .optional(integer: shard)]
        )
    }

    /// Ends a shard of a cancelled push whose members cannot be read: those that are left are
    /// suppressed, and nobody is told who they are.
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

/// What records do to the books of their push.
struct BooksChange: Equatable {
    private(set) var ledger = Ledger()
    private(set) var failures = FailureTally()
    private(set) var closedShards = 0

    /// What the records come to by themselves.
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

    mutating func add(_ other: BooksChange) {
        for outcome in Outcome.allCases { ledger[outcome] += other.ledger[outcome] }
        ledger.targeted += other.ledger.targeted
        ledger.pending += other.ledger.pending
        ledger.invalidTokens += other.ledger.invalidTokens
        failures.add(other.failures)
        closedShards += other.closedShards
    }

    /// What changes for those without a row.
    mutating func moved(from before: ShardBooks, to after: ShardBooks) {
        ledger.targeted += after.expected - before.expected
        ledger.pending += after.unrecorded - before.unrecorded
        ledger.suppressed += after.cancelled - before.cancelled
        if after.isFinished, !before.isFinished { closedShards += 1 }
    }
}

extension ShardCheckpoint {
    /// Those of its records that lie behind the cursor of the table.
    ///
    /// - Throws: `StorageError` where one lies behind its own cursor: it would be sent again.
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

// MARK: Rows

extension PushLedger {
    /// The first seven are the same in all rows of a checkpoint, and those from the provider to the
    /// last reason in most.
    private static let columns = [
        "day", "push_id", "app", "lane", "expires_at", "created_at", "updated_at", "target",
        "installation_id", "provider", "environment", "environment_explicit", "token", "locale",
        "apns_topic", "state", "attempts", "unanswered", "due_at", "owner", "last_status",
        "last_reason", "provider_message_id", "template_values", "badge",
    ]

    /// By COPY, into the partition: 1,000 rows cost Postgres 4.9 ms of CPU, as many through
    /// `INSERT … SELECT FROM unnest` 5.0, and there are no texts of arrays to be written here.
    private static func insert(
        _ records: [DeliveryRecord],
        of shard: ClaimedShard,
        session: Int,
        _ held: Held,
        at now: Instant,
        _ transaction: PostgresTransaction
    ) async throws {
        guard let day = Instant(iso8601: shard.day + "T00:00Z") else {
            throw StorageError(.corrupt, "a shard's day is no date")
        }
        let now = now.microseconds
        var constant = CopyCells()
        constant.date(day.microseconds)
        guard constant.uuid(shard.pushID) else {
            throw StorageError(.corrupt, "a push's id is no uuid")
        }
        constant.text(shard.app)
        constant.smallint(shard.lane)
        constant.timestamp(shard.expiresAt?.microseconds)
        constant.timestamp(shard.createdAt.microseconds)
        constant.timestamp(now)
        var writer = RowWriter(session: session, isCancelled: held.isCancelled, now: now)
        var rows = CopyRows(columns: columns.count, constant: constant, rows: records.count)
        for record in records {
            rows.append { writer.write(record, into: &$0) }
        }
        _ = try await transaction.copyIn(table: held.table, columns: columns, rows)
    }
}

/// Writes the cells of one checkpoint's rows, from the target on.
private struct RowWriter {
    /// What decides the cells from the provider to the last reason of a row that is settled.
    private struct Form: Equatable {
        var provider: Platform
        var environment: PushEnvironment
        var environmentIsExplicit: Bool
        var outcome: Outcome
        var attempts: Int
        var unanswered: Int
        var status: Int?
        var reason: String?
    }

    let session: Int
    let isCancelled: Bool
    let now: Int64
    /// That of the row before, and its cells: nearly all rows share them.
    private var form: Form?
    private var formCells = CopyCells()

    init(session: Int, isCancelled: Bool, now: Int64) {
        self.session = session
        self.isCancelled = isCancelled
        self.now = now
    }

    mutating func write(_ record: DeliveryRecord, into cells: inout CopyCells) {
        let delivery = record.delivery
        cells.text(delivery.key.target)
        cells.text(delivery.installationID)
        if let end = record.end, let outcome = end.outcome {
            return write(end, outcome, delivery.device, into: &cells)
        }
        writeProvider(of: delivery.device, into: &cells)
        cells.text(delivery.device.token)
        cells.text(delivery.locale)
        cells.text(delivery.apnsTopic)
        cells.smallint(DeliveryState.pending.rawValue)
        cells.integer(record.attempts)
        cells.integer(record.unanswered)
        if let dueAt = record.end?.decision.dueAt {
            // Whoever claims it once the push is cancelled tells of it, and need not wait for that.
            cells.timestamp(isCancelled ? now : dueAt.microseconds)
            cells.null()
        } else {
            cells.timestamp(now)
            cells.bigint(session)
        }
        cells.integer(record.end?.status)
        cells.text(record.end?.reason)
        cells.null()
        cells.text(delivery.values.map { JSONValue.object($0).text })
        cells.integer(delivery.badge)
    }

    private mutating func write(
        _ end: DeliveryEnd,
        _ outcome: Outcome,
        _ device: DeviceTarget,
        into cells: inout CopyCells
    ) {
        let form = Form(
            provider: device.provider,
            environment: device.environment,
            environmentIsExplicit: device.environmentIsExplicit,
            outcome: outcome,
            attempts: end.attempts,
            unanswered: end.unanswered,
            status: end.status,
            reason: end.reason
        )
        if form != self.form {
            self.form = form
            formCells = CopyCells()
            writeProvider(of: device, into: &formCells)
            // What only a sender needs is not kept.
            formCells.text("")
            formCells.null()
            formCells.null()
            formCells.smallint(DeliveryState(outcome).rawValue)
            formCells.integer(end.attempts)
            formCells.integer(end.unanswered)
            formCells.timestamp(now)
            formCells.null()
            formCells.integer(end.status)
            formCells.text(end.reason)
        }
        cells.append(formCells)
        cells.text(end.messageID)
        cells.null()
        cells.null()
    }

    private func writeProvider(of device: DeviceTarget, into cells: inout CopyCells) {
        cells.text(device.provider.rawValue)
        cells.text(device.environment.rawValue)
        cells.boolean(device.environmentIsExplicit)
    }
}
