package import JSON
package import Postgres
package import PushCore
package import Storage

/// A push's record.
package struct StoredPush: Sendable, Equatable {
    package var id: String
    package var app: String
    package var eventSource: String
    package var eventID: String
    /// The request as it was received.
    package var request: JSONObject
    package var status: PushStatus
    /// The reason why it failed as a whole.
    package var error: String?
    /// `unknownFields`: the fields of the request beyond the contract; `notificationId`: the
    /// sender's own label.
    package var notes: JSONObject
    /// 0: devices named one by one; 1: a broadcast.
    package var lane: Int
    package var ledger: Ledger
    /// The number of readers that have read the secure payload that it announces. Not part of the
    /// ledger's sum: a reader may have found the payload without the push.
    package var confirmed = 0
    /// The counts of devices' receipts, filled only by `ReceiptStore.added`; not part of the ledger's sum.
    package var receipts = ReceiptCounts()
    /// The reasons why deliveries failed, the most frequent first; fewer than `failed` if a dispatcher
    /// of an older version took part.
    package var failures: [FailureCount] = []
    /// The progress of a broadcast; `nil` if it was not requested, or there are no shards.
    package var progress: ShardProgress?
    package var expiresAt: Instant?
    /// The time at which it is or was released; `nil` if it does not wait for a time.
    package var releaseAt: Instant?
    /// The id of a scheduled push for LeanCloud's clients.
    package var scheduleID: Int?
    /// The time at which it was received.
    package var createdAt: Instant
    package var updatedAt: Instant
    package var finishedAt: Instant?
}

/// The progress of a broadcast's shards, in members. `expected` grows while the push is being planned.
package struct ShardProgress: Sendable, Equatable {
    package var shards: Int
    /// The shards that have ended, or were cancelled.
    package var finishedShards: Int
    package var expected: Int
    /// The members whose deliveries are recorded.
    package var recorded: Int
}

package struct PushStore: Sendable {
    let database: Database

    package init(
        database: Database
    ) {
        self.database = database
    }

    static let columns = """
        id, app, event_source, event_id, request, status, error, notes, lane, targeted, delivered,
        failed, expired, suppressed, in_doubt, pending, invalid_tokens, confirmed, failures,
        expires_at, release_at,
        schedule_id, coalesce(accepted_at, created_at) AS created_at, updated_at, finished_at
        """

    /// Stores a push that came over HTTP and the record that the relay produces to Kafka, in one
    /// transaction: an accepted push is durable.
    ///
    /// If another push with the same request key was accepted in the last five minutes, this push
    /// is a repeat and is not sent.
    ///
    /// - Returns: The push's record. If the id or the request key exists already, it is the record
    ///   of the first push.
    /// - Throws: `TooManyScheduled` if the push is scheduled and the app has `maximumWaiting`
    ///   waiting pushes already.
    package func accept(
        _ push: NewPush,
        record: OutgoingRecord,
        requestKey: String? = nil,
        maximumWaiting: Int? = nil
    ) async throws -> StoredPush {
        try await database.transaction { transaction in
            if let requestKey,
                let known = try await Self.claim(requestKey, for: push, transaction)
            {
                return known
            }
            if push.releaseAt != nil, let maximumWaiting,
                try await Self.waiting(in: push.app, transaction) >= maximumWaiting
            {
                throw TooManyScheduled()
            }
            if let fresh = try await Self.insert(push, record, transaction) { return fresh }
            let known = try await transaction.execute(
                "SELECT \(Self.columns) FROM pushes WHERE id = $1",
                [.uuid(push.id)]
            )
            guard let row = known.first else {
                throw StorageError(.conflict, "the push went away meanwhile", isRetryable: true)
            }
            return try Self.push(row)
        }
    }

    /// - Returns: `nil` if the id exists already.
    static func insert(
        _ push: NewPush,
        _ record: OutgoingRecord,
        _ transaction: PostgresTransaction
    ) async throws -> StoredPush? {
        let results = try await transaction.pipeline([
            ErasureFence.passBarrier(of: [push.app]), insertion(of: push),
        ])
        guard let row = results[1].first else { return nil }
        try await OutboxStore.append([record], transaction)
        return try Self.push(row)
    }

    /// Returns SQL that stores a push and returns its row; no row if the id exists already.
    package static func insertion(of push: NewPush) -> (sql: String, parameters: [PostgresValue]) {
        (
            """
            INSERT INTO pushes (id, app, event_source, event_id, request, status, notes, lane,
                expires_at, environment, release_at, schedule_id, created_at, updated_at)
            VALUES ($1, $2, $3, $4, $5, \(PushStatus.queued.sql), $6, $7, $8, $9, $10::timestamptz,
                CASE WHEN $10::timestamptz IS NOT NULL
                    THEN nextval('pushes_schedule_id') END,
                date_trunc('milliseconds', now()), date_trunc('milliseconds', now()))
            ON CONFLICT (id) DO NOTHING RETURNING \(Self.columns)
            """,
            [
                .uuid(push.id), .text(push.app), .text(push.eventSource), .text(push.eventID),
                .json(.object(push.object)), .json(.object(push.notes)), .integer(push.lane),
                .optional(timestamp: push.expiresAt?.microseconds),
                .text(push.request.environment.rawValue),
                .optional(timestamp: push.releaseAt?.microseconds),
            ]
        )
    }

    /// Assigns the request key to the push, unless another push has it.
    ///
    /// - Returns: The push that has the key already.
    private static func claim(
        _ requestKey: String,
        for push: NewPush,
        _ transaction: PostgresTransaction
    ) async throws -> StoredPush? {
        let key: [PostgresValue] = [
            .text(push.app), .text(requestKeySource), .text(requestKey),
        ]
        let claimed = try await transaction.execute(
            """
            INSERT INTO event_keys AS known (app, source, id, push_id) VALUES ($1, $2, $3, $4)
            ON CONFLICT (app, source, id) DO UPDATE
                SET push_id = excluded.push_id, created_at = excluded.created_at
                WHERE known.created_at < excluded.created_at - interval '5 minutes'
            RETURNING push_id
            """,
            key + [.uuid(push.id)]
        )
        if claimed.first != nil { return nil }
        let known = try await transaction.execute(
            """
            SELECT \(columns) FROM pushes WHERE id = (
                SELECT push_id FROM event_keys WHERE app = $1 AND source = $2 AND id = $3)
            """,
            key
        )
        guard let row = known.first else {
            throw StorageError(.conflict, "the push went away meanwhile", isRetryable: true)
        }
        return try Self.push(row)
    }

    /// The source of request keys. It differs from those of events, as both are in one table.
    private static let requestKeySource = "carillon/req_id"

    /// Returns the number of an app's pushes that wait for their time. A lock keeps other
    /// transactions from adding more until this one ends.
    static func waiting(
        in app: String,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        let results = try await transaction.pipeline([
            (
                "SELECT pg_advisory_xact_lock(hashtextextended(current_schema() || $1::text, 0))",
                [.text("schedules \(app)")]
            ),
            (
                "SELECT count(*) AS count FROM pushes WHERE is_waiting AND app = $1",
                [.text(app)]
            ),
        ])
        return try results[1].first?.integer("count") ?? 0
    }

    /// Returns a push, with the progress of its shards.
    package func find(_ id: String) async throws -> StoredPush? {
        guard PushIdentity.isUUID(id) else { return nil }
        return try await database.execute(
            "SELECT \(Self.columns), \(Self.shardColumns) \(Self.withShards) WHERE p.id = $1",
            [.uuid(id)]
        ).first.map(Self.pushWithProgress)
    }

    private static let shardColumns = "shards, shards_finished, shards_expected, shards_recorded"

    // The last two columns count members without a row: not recorded yet, or cancelled.
    private static let withShards = """
        FROM all_pushes p CROSS JOIN LATERAL (
            SELECT count(*) AS shards,
                count(*) FILTER (WHERE s.finished) AS shards_finished,
                coalesce(sum(s.expected), 0) AS shards_expected,
                coalesce(sum(s.recorded), 0) AS shards_recorded,
                coalesce(sum(s.expected - s.recorded) FILTER (WHERE NOT s.finished), 0)
                    AS shards_pending,
                coalesce(sum(s.cancelled), 0) AS shards_cancelled
            FROM shards s WHERE s.push_id = p.id) AS sharded
        """

    private static func pushWithProgress(_ row: PostgresRow) throws -> StoredPush {
        var push = try push(row)
        let shards = try row.integer("shards")
        if shards > 0 {
            push.progress = ShardProgress(
                shards: shards,
                finishedShards: try row.integer("shards_finished"),
                expected: try row.integer("shards_expected"),
                recorded: try row.integer("shards_recorded")
            )
        }
        return push
    }

    /// Returns the pushes whose ids have this prefix, ordered by their ids.
    package func find(
        beginning: String,
        app: String? = nil,
        limit: Int
    ) async throws -> [StoredPush] {
        guard let range = PushIdentity.range(beginning: beginning) else { return [] }
        return try await database.execute(
            """
            SELECT \(Self.columns) FROM all_pushes
            WHERE id BETWEEN $1 AND $2 AND ($3::text IS NULL OR app = $3) ORDER BY id LIMIT $4
            """,
            [.uuid(range.first), .uuid(range.last), .optional(text: app), .integer(limit)]
        ).rows.map(Self.push)
    }

    /// Returns the pushes of an event: more than one if several apps or sources use its id.
    package func find(eventID: String, app: String? = nil) async throws -> [StoredPush] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM all_pushes
            WHERE event_id = $1 AND ($2::text IS NULL OR app = $2)
            ORDER BY created_at DESC LIMIT 100
            """,
            [.text(eventID), .optional(text: app)]
        ).rows.map(Self.push)
    }

    /// Returns the latest pushes of an app.
    package func list(app: String, limit: Int = 100, skip: Int = 0) async throws -> [StoredPush] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM all_pushes p WHERE app = $1
            ORDER BY p.created_at DESC, id LIMIT $2 OFFSET $3
            """,
            [.text(app), .integer(min(max(limit, 0), 1000)), .integer(max(skip, 0))]
        ).rows.map(Self.push)
    }

    /// Returns the pushes with these ids; unknown ids are missing. The payloads of claimed
    /// deliveries are rendered from these pushes.
    package func find(_ ids: Set<String>) async throws -> [String: StoredPush] {
        let rows = try await database.execute(
            "SELECT \(Self.columns) FROM all_pushes WHERE id = ANY ($1::uuid[])",
            [.uuidArray(ids.sorted())]
        ).rows
        return Dictionary(try rows.map(Self.push).map { ($0.id, $0) }) { first, _ in first }
    }

    /// Fails a push that cannot be sent at all. Its planned deliveries that were not sent yet are
    /// suppressed, as after a cancellation.
    ///
    /// - Parameters:
    ///   - id: The push.
    ///   - error: The reason, for its record.
    ///   - planner: The session that plans it. Nothing is changed if another session has claimed it
    ///     by now.
    /// - Throws: `StorageError`.
    package func fail(_ id: String, error: String, planner: Int? = nil) async throws {
        let day = try await database.transaction { transaction in
            try await IndexPlan.require(transaction)
            // The shards are locked before the push, as in a checkpoint.
            _ = try await transaction.execute(
                """
                SELECT shard FROM shards WHERE push_id = $1 AND NOT finished
                ORDER BY shard FOR UPDATE
                """,
                [.uuid(id)]
            )
            let failed = try await LedgerSQL.fail(id, error: error, planner: planner, transaction)
            guard let day = failed else { return String?.none }
            try await PushLedger.endUnfinished(of: id, transaction)
            _ = try await transaction.execute(
                "SELECT pg_notify('\(NotifyChannel.cancelled.rawValue)', $1)",
                [.text(id)]
            )
            return day
        }
        if let day { try await suppressRows(of: id, day) }
    }

    /// Returns a push, and counts to compare its ledger with: its delivery rows, and the shard members that
    /// have no row. All are read in one snapshot. `invalidTokens` is not a sum of rows and
    /// stays 0 in the count.
    package func audit(_ id: String) async throws -> (push: StoredPush, counted: Ledger)? {
        let result = try await database.execute(
            """
            SELECT \(Self.columns), counted.*, sharded.* \(Self.withShards) CROSS JOIN LATERAL (
                SELECT count(*) AS rows,
                    count(*) FILTER (WHERE d.state = \(DeliveryState.pending.sql)) AS rows_pending,
                    \(DeliveryState.counts(by: "d.state", as: "rows_"))
                FROM all_deliveries d WHERE d.push_id = p.id
                    AND d.day = (p.created_at AT TIME ZONE 'UTC')::date) AS counted
            WHERE p.id = $1
            """,
            [.uuid(id)]
        )
        guard let row = result.first else { return nil }
        var counted = Ledger()
        let (unrecorded, cancelled) = (
            try row.integer("shards_pending"), try row.integer("shards_cancelled")
        )
        counted.targeted = try row.integer("rows") + unrecorded + cancelled
        counted.pending = try row.integer("rows_pending") + unrecorded
        counted.delivered = try row.integer("rows_delivered")
        counted.failed = try row.integer("rows_failed")
        counted.expired = try row.integer("rows_expired")
        counted.suppressed = try row.integer("rows_suppressed") + cancelled
        counted.inDoubt = try row.integer("rows_in_doubt")
        return (try Self.pushWithProgress(row), counted)
    }

    static func push(_ row: PostgresRow) throws -> StoredPush {
        var ledger = Ledger()
        ledger.targeted = try row.integer("targeted")
        ledger.delivered = try row.integer("delivered")
        ledger.failed = try row.integer("failed")
        ledger.expired = try row.integer("expired")
        ledger.suppressed = try row.integer("suppressed")
        ledger.inDoubt = try row.integer("in_doubt")
        ledger.pending = try row.integer("pending")
        ledger.invalidTokens = try row.integer("invalid_tokens")
        let name = try row.text("status")
        guard let status = PushStatus(rawValue: name) else {
            throw StorageError(.corrupt, "a push is in the unknown state \(name)")
        }
        return StoredPush(
            id: try row.uuid("id"),
            app: try row.text("app"),
            eventSource: try row.text("event_source"),
            eventID: try row.text("event_id"),
            request: try row.json("request").object ?? [:],
            status: status,
            error: try row.textOrNil("error"),
            notes: try row.json("notes").object ?? [:],
            lane: try row.integer("lane"),
            ledger: ledger,
            confirmed: try row.integer("confirmed"),
            failures: FailureCounts.read(try row.jsonOrNil("failures")),
            expiresAt: try row.instantOrNil("expires_at"),
            releaseAt: try row.instantOrNil("release_at"),
            scheduleID: try row.integerOrNil("schedule_id"),
            createdAt: try row.instant("created_at"),
            updatedAt: try row.instant("updated_at"),
            finishedAt: try row.instantOrNil("finished_at")
        )
    }
}

/// Thrown if the maximum of an app's scheduled pushes is waiting already.
package struct TooManyScheduled: Error, Equatable, Sendable {
    package init() {}
}
