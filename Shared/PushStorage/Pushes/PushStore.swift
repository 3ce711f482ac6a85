package import JSON
import Postgres
package import PushCore

/// A push's record.
package struct StoredPush: Sendable, Equatable {
    package var id: String
    package var app: String
    package var eventSource: String
    package var eventID: String
    /// As it came.
    package var request: JSONObject
    package var status: PushStatus
    /// Why it failed as a whole.
    package var error: String?
    /// `unknownFields`: what the request held beyond the contract; `notificationId`: its label.
    package var notes: JSONObject
    /// 0: devices named one by one; 1: a broadcast.
    package var lane: Int
    package var ledger: Ledger
    /// How many readers of the secure payload that it rings for have read it. Beside the balance: who
    /// reads may have heard of it otherwise.
    package var confirmed = 0
    /// What devices have reported of it, where somebody asked (`ReceiptStore.added`); beside the balance.
    package var receipts = ReceiptCounts()
    /// Why deliveries failed, the most frequent first; fewer than `failed` where a dispatcher of an
    /// older version took part.
    package var failures: [FailureCount] = []
    /// How far a broadcast is; `nil` where nobody asked, or there are no shards.
    package var progress: ShardProgress?
    package var expiresAt: Instant?
    /// When it is released, or was; `nil` where it did not wait for a time.
    package var releaseAt: Instant?
    /// What LeanCloud's clients name a scheduled push by.
    package var scheduleID: Int?
    /// When it came in.
    package var createdAt: Instant
    package var updatedAt: Instant
    package var finishedAt: Instant?
}

/// How far the shards of a broadcast are, in members. They are counted as planning goes on.
package struct ShardProgress: Sendable, Equatable {
    package var shards: Int
    /// Those that are over, or were cancelled.
    package var finishedShards: Int
    package var expected: Int
    /// Those that were sent to, and written down.
    package var recorded: Int
}

package struct PushStore: Sendable {
    let database: Database

    static let columns = """
        id, app, event_source, event_id, request, status, error, notes, lane, targeted, delivered,
        failed, expired, suppressed, in_doubt, pending, invalid_tokens, confirmed, failures,
        expires_at, release_at,
        schedule_id, coalesce(accepted_at, created_at) AS created_at, updated_at, finished_at
        """

    /// Keeps a push that came over HTTP and the record that will carry it to Kafka, in one
    /// transaction: accepted means kept.
    ///
    /// A request key of the last five minutes names a push that was accepted then: the same again is
    /// a repeat, and is not sent.
    ///
    /// - Returns: The push's record. Where the id, or the request key, is known already it is that of
    ///   the first time.
    /// - Throws: `TooManyWaiting` where it would have to wait for its time, beside as many others of
    ///   the app as may.
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
                throw TooManyWaiting()
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

    /// - Returns: `nil` where the id is known already.
    static func insert(
        _ push: NewPush,
        _ record: OutgoingRecord,
        _ transaction: PostgresTransaction
    ) async throws -> StoredPush? {
        let results = try await transaction.pipeline([
            ErasedNames.passBarrier(of: [push.app]), insertion(of: push),
        ])
        guard let row = results[1].first else { return nil }
        try await OutboxStore.append([record], transaction)
        return try Self.push(row)
    }

    /// SQL that keeps a push, and gives its row; none where the id is known already.
    static func insertion(of push: NewPush) -> (sql: String, parameters: [PostgresValue]) {
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

    /// Makes the request key the push's.
    ///
    /// - Returns: The push that has it already.
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

    /// Beside the sources that events name, in the table that keeps their keys.
    private static let requestKeySource = "carillon/req_id"

    /// How many pushes of an app wait for their time. Who asks keeps others from adding to them
    /// until his transaction ends.
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

    /// A push, with the progress of its shards.
    package func find(_ id: String) async throws -> StoredPush? {
        guard PushIdentity.isUUID(id) else { return nil }
        return try await database.execute(
            "SELECT \(Self.columns), \(Self.shardColumns) \(Self.withShards) WHERE p.id = $1",
            [.uuid(id)]
        ).first.map(Self.pushWithProgress)
    }

    private static let shardColumns = "shards, shards_finished, shards_expected, shards_recorded"

    // What a shard counts beyond its rows: those that it has still to record, or that were cancelled.
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

    /// Pushes whose ids begin so, by their ids.
    package func find(beginning: String, limit: Int) async throws -> [StoredPush] {
        guard let range = PushIdentity.range(beginning: beginning) else { return [] }
        return try await database.execute(
            "SELECT \(Self.columns) FROM all_pushes WHERE id BETWEEN $1 AND $2 ORDER BY id LIMIT $3",
            [.uuid(range.first), .uuid(range.last), .integer(limit)]
        ).rows.map(Self.push)
    }

    /// The pushes that an event became: more than one where several apps or sources use the id.
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

    /// The latest of an app.
    package func list(app: String, limit: Int = 100, skip: Int = 0) async throws -> [StoredPush] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM all_pushes p WHERE app = $1
            ORDER BY p.created_at DESC, id LIMIT $2 OFFSET $3
            """,
            [.text(app), .integer(min(max(limit, 0), 1000)), .integer(max(skip, 0))]
        ).rows.map(Self.push)
    }

    /// Those of the ids that there are: what a claimed delivery is rendered from.
    package func find(_ ids: Set<String>) async throws -> [String: StoredPush] {
        let rows = try await database.execute(
            "SELECT \(Self.columns) FROM all_pushes WHERE id = ANY ($1::uuid[])",
            [.uuidArray(ids.sorted())]
        ).rows
        return Dictionary(try rows.map(Self.push).map { ($0.id, $0) }) { first, _ in first }
    }

    /// Ends a push that cannot be sent at all. What was planned of it and not sent yet becomes
    /// suppressed, as when it is cancelled.
    ///
    /// - Parameters:
    ///   - id: Which push.
    ///   - error: Why; for its record.
    ///   - planner: The session that plans it: nothing is changed where it is another's by now.
    /// - Throws: `StorageError`.
    package func fail(_ id: String, error: String, planner: Int? = nil) async throws {
        let day = try await database.transaction { transaction in
            try await IndexPlan.require(transaction)
            // Before the push, as in a checkpoint.
            _ = try await transaction.execute(
                """
                SELECT shard FROM shards WHERE push_id = $1 AND NOT finished
                ORDER BY shard FOR UPDATE
                """,
                [.uuid(id)]
            )
            let failed = try await PushBooks.fail(id, error: error, planner: planner, transaction)
            guard let day = failed else { return String?.none }
            try await PushLedger.endUnfinished(of: id, transaction)
            _ = try await transaction.execute(
                "SELECT pg_notify('\(StorageChannel.cancelled.rawValue)', $1)",
                [.text(id)]
            )
            return day
        }
        if let day { try await suppressRows(of: id, day) }
    }

    /// A push with its rows counted, and the members of its shards that have none, all at one moment:
    /// what the books are held against. `invalidTokens` is no sum of rows and stays 0 in the count.
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

/// As many scheduled pushes as an app may have wait already.
package struct TooManyWaiting: Error, Equatable, Sendable {
    package init() {}
}
