import Postgres
package import PushCore
import Storage

/// Datasets of identities, and their records.
///
/// A change locks the dataset's row until it is committed. So counts rise by one, and the state
/// with which a patch is compared is the state that it changes.
package struct SyncDatasetStore: Sendable {
    let database: Database

    static let columns = """
        d.identity, d.name, d.sync_count, d.records, d.bytes, d.modified_by, d.created_at, d.modified_at
        """

    static func dataset(_ row: PostgresRow) throws -> SyncDataset {
        SyncDataset(
            identity: try row.text("identity"),
            name: try row.text("name"),
            syncCount: try row.integer("sync_count"),
            records: try row.integer("records"),
            bytes: try row.integer("bytes"),
            modifiedBy: try row.textOrNil("modified_by"),
            createdAt: try row.instant("created_at"),
            modifiedAt: try row.instant("modified_at")
        )
    }

    static func record(_ row: PostgresRow) throws -> SyncRecord {
        SyncRecord(
            key: try row.text("key"),
            value: try row.textOrNil("value"),
            syncCount: try row.integer("sync_count"),
            modifiedBy: try row.textOrNil("modified_by"),
            modifiedAt: try row.instant("modified_at"),
            deviceModifiedAt: try row.instantOrNil("device_modified_at")
        )
    }

    static func parameters(_ dataset: SyncDatasetName) -> [PostgresValue] {
        parameters(dataset.owner) + [.text(dataset.name)]
    }

    static func parameters(_ owner: SyncIdentity) -> [PostgresValue] {
        [.text(owner.pool), .text(owner.app), .text(owner.identity)]
    }

    /// The pool of `$1`, while it is linked to the app `$2`.
    static let pool = "sync_pools p WHERE p.name = $1 AND p.app = $2 AND p.is_linked"
    static let isLinked = "SELECT EXISTS (SELECT FROM \(pool)) AS is_linked"

    // MARK: Reading

    /// Returns records whose counts are above one, by count and key.
    ///
    /// - Parameters:
    ///   - dataset: The dataset; one that does not exist has no records.
    ///   - count: The count that the caller has already.
    ///   - cursor: The end of the previous page.
    ///   - limit: The maximum.
    /// - Returns: The page; empty if the dataset does not exist.
    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`.
    package func records(
        of dataset: SyncDatasetName,
        above count: Int,
        after cursor: SyncCursor?,
        limit: Int
    ) async throws -> SyncPage {
        // The dataset is read first. If its count is older than the records, the next call corrects
        // that.
        let results = try await database.transaction(of: [
            (
                """
                SELECT d.is_there, d.sync_count, d.deleted_count, d.modified_by
                FROM (SELECT p.id FROM \(Self.pool)) p
                LEFT JOIN sync_datasets d ON d.pool = p.id AND d.identity = $3 AND d.name = $4
                """, Self.parameters(dataset)
            ),
            (
                """
                SELECT r.key, r.value, r.sync_count, r.modified_by, r.modified_at,
                    r.device_modified_at
                FROM (SELECT p.id FROM \(Self.pool)) p
                JOIN sync_datasets d ON d.pool = p.id AND d.identity = $3 AND d.name = $4
                JOIN sync_records r ON r.dataset = d.id
                WHERE r.sync_count > $5 AND r.sync_count >= $6 AND (r.sync_count, r.key) > ($6, $7)
                ORDER BY r.sync_count, r.key LIMIT $8
                """,
                Self.parameters(dataset) + [
                    .integer(count), .integer(cursor?.syncCount ?? 0), .text(cursor?.key ?? ""),
                    .integer(limit + 1),
                ]
            ),
        ])
        guard let row = results[0].first else { throw SyncRefusal.unknownPool }
        var page = SyncPage()
        page.deletedCount = try row.integerOrNil("deleted_count") ?? 0
        guard try row.booleanOrNil("is_there") ?? false else { return page }
        page.exists = true
        page.syncCount = try row.integer("sync_count")
        page.modifiedBy = try row.textOrNil("modified_by")
        page.records = try results[1].rows.prefix(limit).map(Self.record)
        page.hasMore = results[1].rows.count > limit
        return page
    }

    /// Returns an identity's datasets, by name.
    ///
    /// - Returns: At most `limit`, and whether there are more.
    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`.
    package func datasets(
        of owner: SyncIdentity,
        after name: String?,
        limit: Int
    ) async throws -> (datasets: [SyncDataset], hasMore: Bool) {
        let rows = try await database.execute(
            """
            SELECT p.id IS NOT NULL AS is_linked, d.id, \(Self.columns)
            FROM (SELECT p.id FROM \(Self.pool)) p
            LEFT JOIN sync_datasets d ON d.pool = p.id AND d.identity = $3 AND d.is_there
                AND d.name > $4
            ORDER BY d.name LIMIT $5
            """,
            Self.parameters(owner) + [.text(name ?? ""), .integer(limit + 1)]
        ).rows
        guard let first = rows.first else { throw SyncRefusal.unknownPool }
        guard try first.integerOrNil("id") != nil else { return ([], false) }
        return (try rows.prefix(limit).map(Self.dataset), rows.count > limit)
    }

    /// Returns a pool's datasets, by identity and name.
    ///
    /// - Parameters:
    ///   - pool: The pool.
    ///   - app: The app.
    ///   - after: The identity and name of the previous page's last dataset; nil: the first page.
    ///   - limit: The maximum.
    /// - Returns: At most `limit`, and whether there are more; empty if the pool is not linked to the app.
    /// - Throws: `StorageError`.
    package func list(
        pool: String,
        app: String,
        after: (identity: String, name: String)?,
        limit: Int
    ) async throws -> (datasets: [SyncDataset], hasMore: Bool) {
        let rows = try await database.execute(
            """
            SELECT \(Self.columns) FROM sync_datasets d
            WHERE d.pool = (SELECT p.id FROM \(Self.pool)) AND d.is_there
                AND (d.identity, d.name) > ($3, $4)
            ORDER BY d.identity, d.name LIMIT $5
            """,
            [
                .text(pool), .text(app), .text(after?.identity ?? ""), .text(after?.name ?? ""),
                .integer(limit + 1),
            ]
        ).rows
        return (try rows.prefix(limit).map(Self.dataset), rows.count > limit)
    }

    /// - Throws: `SyncRefusal.unknownPool`, `.unknownDataset`; `StorageError`.
    package func find(_ dataset: SyncDatasetName) async throws -> SyncDataset {
        let row = try await database.execute(
            """
            SELECT d.is_there, \(Self.columns) FROM (SELECT p.id FROM \(Self.pool)) p
            LEFT JOIN sync_datasets d ON d.pool = p.id AND d.identity = $3 AND d.name = $4
            """,
            Self.parameters(dataset)
        ).first
        guard let row else { throw SyncRefusal.unknownPool }
        guard try row.booleanOrNil("is_there") ?? false else { throw SyncRefusal.unknownDataset }
        return try Self.dataset(row)
    }

    /// Returns the storage used by an identity; zeros if it has no dataset.
    ///
    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`.
    package func usage(of owner: SyncIdentity) async throws -> SyncUsage {
        let row = try await database.execute(
            """
            SELECT count(d.id) AS datasets, coalesce(sum(d.bytes), 0)::bigint AS bytes,
                max(d.modified_at) AS modified_at, p.id AS pool
            FROM (SELECT p.id FROM \(Self.pool)) p
            LEFT JOIN sync_datasets d ON d.pool = p.id AND d.identity = $3 AND d.is_there
            GROUP BY p.id
            """,
            Self.parameters(owner)
        ).first
        guard let row else { throw SyncRefusal.unknownPool }
        return SyncUsage(
            datasets: try row.integer("datasets"),
            bytes: try row.integer("bytes"),
            modifiedAt: try row.instantOrNil("modified_at")
        )
    }

    // MARK: Deleting

    /// Deletes a dataset, with its records and subscriptions. Its count stays stored.
    ///
    /// - Returns: The dataset before its deletion.
    /// - Throws: `SyncRefusal.unknownPool`, `.unknownDataset`; `StorageError`.
    package func delete(_ dataset: SyncDatasetName) async throws -> SyncDataset {
        try await database.transaction { transaction in
            let found = try await transaction.pipeline([
                (Self.isLinked, Array(Self.parameters(dataset).prefix(2))),
                (
                    """
                    SELECT d.id, \(Self.columns) FROM sync_datasets d
                    WHERE d.pool = (SELECT p.id FROM \(Self.pool)) AND d.identity = $3
                        AND d.name = $4 AND d.is_there FOR UPDATE
                    """, Self.parameters(dataset)
                ),
            ])
            guard try found[0].first?.boolean("is_linked") == true else {
                throw SyncRefusal.unknownPool
            }
            guard let row = found[1].first else { throw SyncRefusal.unknownDataset }
            let id: [PostgresValue] = [.integer(try row.integer("id"))]
            _ = try await transaction.pipeline([
                ("DELETE FROM sync_records WHERE dataset = $1", id),
                ("DELETE FROM sync_windows WHERE dataset = $1", id),
                ("DELETE FROM sync_subscriptions WHERE dataset = $1", id),
                (
                    """
                    UPDATE sync_datasets SET is_there = false, deleted_count = sync_count,
                        records = 0, bytes = 0, tombstone_bytes = 0, modified_by = NULL,
                        modified_at = now()
                    WHERE id = $1
                    """, id
                ),
            ])
            return try Self.dataset(row)
        }
    }
}

/// The storage used by an identity's datasets.
package struct SyncUsage: Sendable, Equatable {
    package var datasets: Int
    /// The bytes, counted as in `SyncDataset.bytes`.
    package var bytes: Int
    /// `nil` if it has no dataset.
    package var modifiedAt: Instant?
}
