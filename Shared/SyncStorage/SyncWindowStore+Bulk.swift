import Postgres
package import PushCore
import Storage

/// Bulk publishes: every subscription of a pool is notified of its dataset's current count.
extension SyncWindowStore {
    /// Continues a bulk publish: processes some more datasets, and stores its position. Any replica
    /// may call it at any time; each continues another bulk publish.
    ///
    /// - Parameters:
    ///   - limit: The maximum of datasets.
    ///   - records: Makes the records of the notifying push.
    /// - Returns: The number of notified devices; `nil` if no bulk publish is running.
    /// - Throws: `StorageError`; then nothing was done.
    package func resumeBulk(
        limit: Int,
        records: @escaping @Sendable (WindowEnd) -> [OutgoingRecord]
    ) async throws -> Int? {
        try await database.transaction { transaction in
            let found = try await transaction.execute(
                """
                SELECT b.pool, b.cursor, p.is_linked AND p.is_pushing AS is_pushing
                FROM sync_bulk b JOIN sync_pools p ON p.id = b.pool
                WHERE b.status = $1 ORDER BY b.started_at LIMIT 1 FOR UPDATE OF b SKIP LOCKED
                """,
                [.text(SyncBulk.Status.inProgress.rawValue)]
            ).first
            guard let found else { return nil }
            let pool = try found.integer("pool")
            guard try found.boolean("is_pushing") else {
                try await Self.end(pool, .failed, "push sync was switched off", transaction)
                return 0
            }
            let ended = try await transaction.execute(
                Self.bulkSQL,
                [.integer(pool), .integer(try found.integer("cursor")), .integer(limit)]
            ).rows
            guard let last = ended.last else {
                try await Self.end(pool, .succeeded, nil, transaction)
                return 0
            }
            let pushes = try ended.map(Self.windowEnd)
            let devices = pushes.reduce(0) { $0 + $1.installations.count }
            _ = try await transaction.pipeline(
                [
                    (
                        "UPDATE sync_bulk SET cursor = $2, told = told + $3 WHERE pool = $1",
                        [.integer(pool), .integer(try last.integer("id")), .integer(devices)]
                    )
                ] + OutboxStore.appending(pushes.flatMap(records))
            )
            return devices
        }
    }

    private static let bulkSQL = """
        WITH part AS MATERIALIZED (
            SELECT d.id, d.identity, d.name, d.sync_count FROM sync_datasets d
            WHERE d.pool = $1 AND d.id > $2 AND d.is_there
                AND EXISTS (SELECT FROM sync_subscriptions s WHERE s.dataset = d.id)
            ORDER BY d.id LIMIT $3
        ), held AS MATERIALIZED (
            SELECT s.dataset, s.device, v.installation FROM part
            JOIN sync_subscriptions s ON s.dataset = part.id
            JOIN sync_devices v ON v.id = s.device
            ORDER BY s.dataset, s.device FOR NO KEY UPDATE OF s
        ), told AS (
            UPDATE sync_subscriptions s SET told = greatest(s.told, part.sync_count),
                told_at = clock_timestamp()
            FROM held JOIN part ON part.id = held.dataset
            WHERE s.dataset = held.dataset AND s.device = held.device
            RETURNING s.dataset, held.installation
        ), grouped AS (
            SELECT dataset, array_agg(DISTINCT installation) AS installations FROM told
            GROUP BY dataset
        )
        SELECT part.id, p.app, p.name AS pool, part.identity, part.name, part.sync_count,
            p.push_sync, coalesce(g.installations, '{}') AS installations,
            b.started_at AS bulk_started_at, \(apnsTopics("p.app"))
        FROM part JOIN sync_pools p ON p.id = $1 JOIN sync_bulk b ON b.pool = p.id
        LEFT JOIN grouped g ON g.dataset = part.id ORDER BY part.id
        """

    private static func end(
        _ pool: Int,
        _ status: SyncBulk.Status,
        _ failure: String?,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            UPDATE sync_bulk SET status = $2, failure = $3, completed_at = clock_timestamp()
            WHERE pool = $1
            """,
            [.integer(pool), .text(status.rawValue), .optional(text: failure)]
        )
    }
}
