import Postgres
import PushCore
import Storage

/// The retention of datasets.
package struct SyncRetention: Sendable {
    let database: Database

    /// Deletes tombstones of this age. Afterwards, their keys are like keys that were never used.
    /// Any replica may call it at any time; each processes other datasets.
    ///
    /// - Returns: The number of deleted tombstones; 0 if none is left, except those that other
    ///   processes have locked.
    package func forgetTombstones(
        olderThan retention: Duration,
        limit: Int = 1000
    ) async throws -> Int {
        try await database.execute(
            """
            WITH old AS MATERIALIZED (
                SELECT DISTINCT dataset FROM (SELECT dataset FROM sync_records
                    WHERE value IS NULL AND modified_at < now() - $1 * interval '1 millisecond'
                    ORDER BY modified_at LIMIT $2) o
            ), held AS MATERIALIZED (
                SELECT d.id FROM sync_datasets d WHERE d.id IN (SELECT dataset FROM old)
                ORDER BY d.id FOR NO KEY UPDATE SKIP LOCKED
            ), gone AS (
                DELETE FROM sync_records r USING held
                WHERE r.dataset = held.id AND r.value IS NULL
                    AND r.modified_at < now() - $1 * interval '1 millisecond'
                RETURNING r.dataset, octet_length(r.key) AS bytes
            ), books AS (
                UPDATE sync_datasets d SET tombstone_bytes = d.tombstone_bytes - g.bytes
                FROM (SELECT dataset, sum(bytes) AS bytes FROM gone GROUP BY dataset) g
                WHERE d.id = g.dataset
            )
            SELECT count(*) AS gone FROM gone
            """,
            [.integer(Int(clamping: retention.wholeMilliseconds)), .integer(limit)]
        ).first?.integer("gone") ?? 0
    }
}
