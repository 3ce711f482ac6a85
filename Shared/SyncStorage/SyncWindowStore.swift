import JSON
import Postgres
package import PushCore
import Storage

/// The result of noting a change.
package enum SyncChangeResult: Int, Sendable {
    /// Subscribed devices will be notified at the end of its window.
    case noted = 0
    /// No device is subscribed, or all know the change.
    case silent = 1
    case unknownPool = 2
    /// The count is above the count of the records that are stored here.
    case tooHigh = 3
    /// The identity has as many datasets as it may.
    case tooMany = 4
}

/// Changes to be sent to devices: gathered in a window of each dataset, and sent at its end.
///
/// Authority: the first change creates the row of a window. The transaction that stores its push,
/// and for each device the notified count, deletes the row. So a crash repeats nothing and loses
/// nothing, and a device is never notified again of the same or a lower count.
package struct SyncWindowStore: Sendable {
    let database: Database

    /// Notes changes.
    ///
    /// - Parameters:
    ///   - changes: The changes in the order in which they were read.
    ///   - coalesce: The time for which the first change of a dataset waits for others.
    /// - Returns: The result of each.
    /// - Throws: `StorageError`; then nothing is noted.
    package func note(
        _ changes: [DatasetChange],
        coalesce: Duration
    ) async throws -> [SyncChangeResult] {
        guard !changes.isEmpty else { return [] }
        let parameters: [PostgresValue] = [
            .textArray(changes.map(\.pool)), .textArray(changes.map(\.identity)),
            .textArray(changes.map(\.dataset)), .integerArray(changes.map(\.syncCount)),
            .textArray(changes.map(\.device)), .booleanArray(changes.map(\.isOwn)),
        ]
        return try await database.transaction { transaction in
            let missing = try await transaction.execute(Self.missingSQL, parameters)
            var tooMany: Set<Int> = []
            for row in missing.rows {
                let number = try row.integer("number")
                let change = changes[number - 1]
                let owner = SyncIdentity(
                    pool: change.pool,
                    app: try row.text("app"),
                    identity: change.identity
                )
                do {
                    try await SyncDatasetStore.make(
                        SyncDatasetName(owner, change.dataset),
                        transaction
                    )
                } catch SyncRefusal.limit {
                    tooMany.insert(number)
                } catch SyncRefusal.unknownPool {
                    // The pool was unlinked meanwhile: found below.
                }
            }
            let milliseconds = PostgresValue.integer(Int(clamping: coalesce.wholeMilliseconds))
            let results = try await transaction.pipeline([
                (Self.lockSQL, Array(parameters.prefix(3))),
                (Self.judgeSQL, parameters + [milliseconds]),
            ])
            var verdicts = try results[1].rows.map { row in
                SyncChangeResult(rawValue: try row.integer("verdict")) ?? .silent
            }
            for number in tooMany { verdicts[number - 1] = .tooMany }
            if verdicts.contains(.noted) {
                try await NotifyChannel.syncWindows.notify(transaction)
            }
            return verdicts
        }
    }

    private static let heard = """
        unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::boolean[])
            WITH ORDINALITY AS h(pool, identity, dataset, sync_count, device, is_own, number)
        """

    /// Changes by other systems to datasets that do not exist. A deleted dataset is created again
    /// only by a count above its last.
    private static let missingSQL = """
        SELECT DISTINCT ON (h.pool, h.identity, h.dataset) h.number, p.app
        FROM \(heard) JOIN sync_pools p ON p.name = h.pool AND p.is_linked
        LEFT JOIN sync_datasets d ON d.pool = p.id AND d.identity = h.identity
            AND d.name = h.dataset
        WHERE NOT h.is_own AND (d.id IS NULL OR NOT d.is_there AND h.sync_count > d.deleted_count)
        ORDER BY h.pool, h.identity, h.dataset, h.sync_count DESC
        """

    /// The common lock order for several datasets: by number.
    private static let lockSQL = """
        SELECT d.id FROM sync_datasets d WHERE d.id IN (
            SELECT d.id FROM unnest($1::text[], $2::text[], $3::text[]) AS h(pool, identity, dataset)
            JOIN sync_pools p ON p.name = h.pool
            JOIN sync_datasets d ON d.pool = p.id AND d.identity = h.identity
                AND d.name = h.dataset)
        ORDER BY d.id FOR NO KEY UPDATE
        """

    /// The records decide a dataset's count. Without records, the highest reported count does. If a
    /// subscribed device was notified of a lower count, a window is opened.
    private static let judgeSQL = """
        WITH judged AS MATERIALIZED (
            SELECT h.number, h.sync_count, h.device, d.id AS dataset,
                p.is_pushing,
                CASE WHEN p.id IS NULL THEN \(SyncChangeResult.unknownPool.rawValue)
                    WHEN d.id IS NULL OR NOT d.is_there THEN \(SyncChangeResult.silent.rawValue)
                    WHEN h.sync_count > d.sync_count AND k.is_kept
                        THEN \(SyncChangeResult.tooHigh.rawValue)
                    WHEN NOT p.is_pushing OR NOT EXISTS (SELECT FROM sync_subscriptions s
                        WHERE s.dataset = d.id AND s.told < h.sync_count)
                        THEN \(SyncChangeResult.silent.rawValue)
                    ELSE \(SyncChangeResult.noted.rawValue) END AS verdict,
                d.sync_count < h.sync_count AND NOT k.is_kept AND d.is_there AS raises
            FROM \(heard)
            LEFT JOIN sync_pools p ON p.name = h.pool AND p.is_linked
            LEFT JOIN sync_datasets d ON d.pool = p.id AND d.identity = h.identity
                AND d.name = h.dataset
            LEFT JOIN LATERAL (SELECT h.is_own OR d.records > 0 OR d.tombstone_bytes > 0
                AS is_kept) k ON true
        ), raised AS (
            UPDATE sync_datasets d SET sync_count = j.sync_count, modified_at = now()
            FROM (SELECT dataset, max(sync_count) AS sync_count FROM judged WHERE raises
                GROUP BY dataset) j
            WHERE d.id = j.dataset
        ), opened AS (
            INSERT INTO sync_windows AS w (dataset, sync_count, changes, writer, due_at)
            SELECT dataset, max(sync_count), count(*),
                CASE WHEN count(*) = count(device) AND min(device) = max(device)
                    THEN min(device) END,
                clock_timestamp() + $7 * interval '1 millisecond'
            FROM judged WHERE verdict = \(SyncChangeResult.noted.rawValue)
            GROUP BY dataset ORDER BY dataset
            ON CONFLICT (dataset) DO UPDATE SET
                sync_count = greatest(w.sync_count, excluded.sync_count),
                changes = w.changes + excluded.changes,
                writer = CASE WHEN w.writer = excluded.writer THEN w.writer END
        )
        SELECT number, verdict FROM judged ORDER BY number
        """

    // MARK: Notifying

    /// The notification about one dataset.
    package struct WindowEnd: Sendable, Equatable {
        package var app: String
        package var pool: String
        package var identity: String
        package var dataset: String
        package var syncCount: Int
        /// The object ids of the installations.
        package var installations: [String]
        /// The pool's APNs topic of its app.
        package var apnsTopic: String?
        /// The start of the bulk publish that it is part of.
        package var bulkStartedAt: Instant?
    }

    /// The result of a round.
    package struct RoundResult: Sendable, Equatable {
        package var windows = 0
        /// Changes that were sent together with another.
        package var joined = 0
        /// Notified devices.
        package var pushed = 0
        /// Windows without a notified device: only their writers are subscribed, or the pool does not push any more.
        package var suppressed = 0
    }

    /// Ends due windows: stores their pushes.
    ///
    /// - Parameters:
    ///   - limit: The maximum of windows.
    ///   - records: Makes the records of the notifying push.
    /// - Returns: The counts.
    /// - Throws: `StorageError`; then nothing was done.
    package func endDueWindows(
        limit: Int,
        records: @escaping @Sendable (WindowEnd) -> [OutgoingRecord]
    ) async throws -> RoundResult {
        try await database.transaction { transaction in
            let due = try await transaction.execute(
                """
                SELECT dataset, changes FROM sync_windows WHERE due_at <= clock_timestamp()
                ORDER BY due_at LIMIT $1 FOR UPDATE SKIP LOCKED
                """,
                [.integer(limit)]
            ).rows
            guard !due.isEmpty else { return RoundResult() }
            let datasets = PostgresValue.integerArray(try due.map { try $0.integer("dataset") })
            let ended = try await transaction.execute(Self.endSQL, [datasets]).rows.map(
                Self.windowEnd
            )
            var statements: [(sql: String, parameters: [PostgresValue])] = [
                ("DELETE FROM sync_windows WHERE dataset = ANY ($1::bigint[])", [datasets])
            ]
            if !ended.isEmpty { statements += OutboxStore.appending(ended.flatMap(records)) }
            _ = try await transaction.pipeline(statements)
            var round = RoundResult(windows: due.count)
            round.joined = try due.reduce(0) { $0 + (try $1.integer("changes")) } - due.count
            round.pushed = ended.reduce(0) { $0 + $1.installations.count }
            round.suppressed = due.count - ended.count
            return round
        }
    }

    private static let endSQL = """
        WITH due AS MATERIALIZED (
            SELECT w.dataset, w.sync_count, w.writer, p.app, p.name AS pool, p.push_sync,
                d.identity, d.name
            FROM sync_windows w JOIN sync_datasets d ON d.id = w.dataset AND d.is_there
            JOIN sync_pools p ON p.id = d.pool AND p.is_linked AND p.is_pushing
            WHERE w.dataset = ANY ($1::bigint[])
        ), held AS MATERIALIZED (
            SELECT s.dataset, s.device, v.installation FROM due
            JOIN sync_subscriptions s ON s.dataset = due.dataset AND s.told < due.sync_count
            JOIN sync_devices v ON v.id = s.device
            WHERE due.writer IS NULL OR v.device_id <> due.writer
                AND v.installation <> due.writer
            ORDER BY s.dataset, s.device FOR NO KEY UPDATE OF s
        ), told AS (
            UPDATE sync_subscriptions s SET told = due.sync_count, told_at = clock_timestamp()
            FROM held JOIN due ON due.dataset = held.dataset
            WHERE s.dataset = held.dataset AND s.device = held.device
            RETURNING s.dataset, held.installation
        ), grouped AS (
            SELECT dataset, array_agg(DISTINCT installation) AS installations FROM told
            GROUP BY dataset
        )
        SELECT due.app, due.pool, due.identity, due.name, due.sync_count, due.push_sync,
            grouped.installations, NULL::timestamptz AS bulk_started_at, \(apnsTopics("due.app"))
        FROM due JOIN grouped ON grouped.dataset = due.dataset
        """

    /// Returns SQL for the topics that an app has credentials for at APNs.
    static func apnsTopics(_ app: String) -> String {
        """
        ARRAY(SELECT c.name FROM credentials c WHERE c.app = \(app) AND c.provider = 'apns')
            AS apns_topics
        """
    }

    static func windowEnd(_ row: PostgresRow) throws -> WindowEnd {
        let applications = try row.jsonOrNil("push_sync")?["ApplicationArns"]?.array ?? []
        return WindowEnd(
            app: try row.text("app"),
            pool: try row.text("pool"),
            identity: try row.text("identity"),
            dataset: try row.text("name"),
            syncCount: try row.integer("sync_count"),
            installations: try row.textArray("installations"),
            apnsTopic: apnsTopic(
                of: applications.compactMap(\.string),
                among: try row.textArray("apns_topics")
            ),
            bulkStartedAt: try row.instantOrNil("bulk_started_at")
        )
    }

    /// Returns the last part of a name like `arn:aws:sns:us-east-1:1:app/APNS/com.example.shop`, if
    /// it is one of the app's topics. The name may be any other, too: then the result is `nil`, and
    /// the app's only topic is used.
    private static func apnsTopic(of applications: [String], among topics: [String]) -> String? {
        for application in applications {
            let parts = application.split(separator: "/")
            guard parts.count == 3, ["APNS", "APNS_SANDBOX"].contains(parts[1]) else { continue }
            if let topic = topics.first(where: { $0 == parts[2] }) { return topic }
        }
        return nil
    }

    /// Returns the time until a window is due; `nil` if there is none.
    package func untilNext() async throws -> Duration? {
        try await database.execute(
            """
            SELECT (extract(epoch FROM min(due_at) - clock_timestamp()) * 1000)::bigint AS wait
            FROM sync_windows
            """
        ).first?.integerOrNil("wait").map { .milliseconds(max($0, 0)) }
    }

    /// Returns the age of the oldest window in seconds; 0 without a window.
    package func age() async throws -> Double {
        try await database.execute(
            """
            SELECT coalesce(extract(epoch FROM clock_timestamp() - min(opened_at)), 0)
                ::double precision AS age FROM sync_windows
            """
        ).first?.double("age") ?? 0
    }
}
