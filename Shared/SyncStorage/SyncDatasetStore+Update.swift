import JSON
import Postgres
package import PushCore
import Storage

/// Updates of records: all of a call's patches, or none.
extension SyncDatasetStore {
    /// Applies patches, each of another key.
    ///
    /// - Parameters:
    ///   - dataset: The dataset; created if it does not exist.
    ///   - patches: At least one.
    ///   - writer: The name of the writing device, as it names itself.
    ///   - record: Makes the record that reports the new count to other systems.
    /// - Returns: The updated records, in the order of the patches.
    /// - Throws: `SyncRefusal`; `StorageError`; then nothing is changed.
    package func update(
        _ dataset: SyncDatasetName,
        _ patches: [SyncPatch],
        by writer: String?,
        record: @escaping @Sendable (_ syncCount: Int) -> OutgoingRecord
    ) async throws -> [SyncRecord] {
        try await database.transaction { transaction in
            var (held, known) = try await Self.hold(dataset, patches, transaction)
            if held == nil {
                try await Self.make(dataset, transaction)
                (held, known) = try await Self.hold(dataset, patches, transaction)
            }
            guard let held else { throw StorageError(.corrupt, "a dataset was not made") }
            var change = DatasetUpdate(held)
            for patch in patches { try change.apply(patch, to: known[patch.key]) }
            try change.check()
            return try await change.write(by: writer, record, transaction)
        }
    }

    /// Locks an existing dataset, and reads its records of some keys.
    private static func hold(
        _ dataset: SyncDatasetName,
        _ patches: [SyncPatch],
        _ transaction: PostgresTransaction
    ) async throws -> (LockedDataset?, ExactStringMap<KnownRecord>) {
        let own = parameters(dataset)
        let found = try await transaction.pipeline([
            (
                """
                SELECT d.id, d.sync_count, d.records, d.bytes, d.tombstone_bytes,
                    clock_timestamp() AS now
                FROM sync_datasets d
                WHERE d.pool = (SELECT p.id FROM \(pool)) AND d.identity = $3 AND d.name = $4
                    AND d.is_there FOR NO KEY UPDATE
                """, own
            ),
            (
                """
                SELECT r.key, r.sync_count, octet_length(r.value) AS bytes
                FROM unnest($5::text[]) AS k(key)
                JOIN sync_records r ON hashtextextended(r.key, 0) = hashtextextended(k.key, 0)
                    AND r.key = k.key
                WHERE r.dataset = (SELECT d.id FROM sync_datasets d
                    WHERE d.pool = (SELECT p.id FROM \(pool)) AND d.identity = $3
                        AND d.name = $4)
                """, own + [.textArray(patches.map(\.key))]
            ),
        ])
        guard let row = found[0].first else { return (nil, [:]) }
        var known: ExactStringMap<KnownRecord> = [:]
        for row in found[1].rows {
            known[try row.text("key")] = KnownRecord(
                syncCount: try row.integer("sync_count"),
                valueBytes: try row.integerOrNil("bytes")
            )
        }
        return (try LockedDataset(row), known)
    }

    /// Creates a dataset that does not exist, or was deleted. Creations for one identity wait for
    /// each other.
    ///
    /// - Throws: `SyncRefusal.unknownPool`; `.limit` if the identity has the maximum of datasets.
    static func make(
        _ dataset: SyncDatasetName,
        _ transaction: PostgresTransaction
    ) async throws {
        let own = parameters(dataset)
        let owner = parameters(dataset.owner)
        let found = try await transaction.pipeline([
            (
                "SELECT pg_advisory_xact_lock(hashtextextended('sync ' || $1 || ' ' || $2, 0))",
                [owner[0], owner[2]]
            ),
            ("SELECT p.id FROM \(pool) FOR KEY SHARE", Array(own.prefix(2))),
            (
                """
                SELECT count(*) AS datasets, bool_or(d.name = $4) AS is_there FROM sync_datasets d
                WHERE d.pool = (SELECT p.id FROM \(pool)) AND d.identity = $3 AND d.is_there
                """, own
            ),
        ])
        guard let id = try found[1].first?.integer("id") else { throw SyncRefusal.unknownPool }
        if try found[2].first?.booleanOrNil("is_there") ?? false { return }
        guard try found[2].first?.integer("datasets") ?? 0 < SyncLimits.datasets else {
            throw SyncRefusal.limit("an identity may have \(SyncLimits.datasets) datasets")
        }
        _ = try await transaction.execute(
            """
            INSERT INTO sync_datasets (pool, identity, name) VALUES ($1, $2, $3)
            ON CONFLICT (pool, identity, name) DO UPDATE
                SET is_there = true, created_at = now(), modified_at = now()
            """,
            [.integer(id), owner[2], .text(dataset.name)]
        )
    }
}

/// A dataset whose row is locked.
struct LockedDataset {
    let id: Int
    let syncCount: Int
    var records: Int
    var bytes: Int
    var tombstoneBytes: Int
    let now: Int64

    init(_ row: PostgresRow) throws {
        id = try row.integer("id")
        syncCount = try row.integer("sync_count")
        records = try row.integer("records")
        bytes = try row.integer("bytes")
        tombstoneBytes = try row.integer("tombstone_bytes")
        now = try row.timestampMicroseconds("now")
    }
}

/// An existing record, or the tombstone of a removed one.
struct KnownRecord {
    let syncCount: Int
    /// `nil`: it was removed.
    let valueBytes: Int?
}

/// The changes of a call to a dataset, validated before anything is written.
struct DatasetUpdate {
    private var dataset: LockedDataset
    private var patches: [SyncPatch] = []
    private var changed: [SyncPatch] = []
    private var made: [SyncPatch] = []

    init(_ dataset: LockedDataset) { self.dataset = dataset }

    /// - Throws: `SyncRefusal.conflict` if the writer knows an older state of the record.
    mutating func apply(_ patch: SyncPatch, to known: KnownRecord?) throws(SyncRefusal) {
        let current = known?.syncCount ?? 0
        guard patch.syncCount == current else {
            throw .conflict(key: patch.key, current: current, sent: patch.syncCount)
        }
        let keyBytes = patch.key.utf8.count
        if let known {
            if let valueBytes = known.valueBytes {
                dataset.records -= 1
                dataset.bytes -= keyBytes + valueBytes
            } else {
                dataset.tombstoneBytes -= keyBytes
            }
            changed.append(patch)
        } else {
            made.append(patch)
        }
        if let value = patch.value {
            dataset.records += 1
            dataset.bytes += keyBytes + value.utf8.count
        } else {
            dataset.tombstoneBytes += keyBytes
        }
        patches.append(patch)
    }

    /// - Throws: `SyncRefusal.limit`.
    func check() throws(SyncRefusal) {
        guard dataset.records <= SyncLimits.records else {
            throw .limit("a dataset may have \(SyncLimits.records) records")
        }
        guard dataset.bytes + dataset.tombstoneBytes <= SyncLimits.bytes else {
            throw .limit("a dataset may have \(SyncLimits.bytes) bytes of keys and values")
        }
    }

    func write(
        by writer: String?,
        _ record: (Int) -> OutgoingRecord,
        _ transaction: PostgresTransaction
    ) async throws -> [SyncRecord] {
        let count = dataset.syncCount + 1
        var statements: [(sql: String, parameters: [PostgresValue])] = []
        for (sql, some) in [(Self.changing, changed), (Self.making, made)] where !some.isEmpty {
            statements.append(
                (
                    sql,
                    [
                        .integer(dataset.id), .integer(count), .timestamp(dataset.now),
                        .optional(text: writer), .textArray(some.map(\.key)),
                        .textArray(some.map(\.value)),
                        .timestampArray(some.map { $0.deviceModifiedAt?.microseconds }),
                    ]
                )
            )
        }
        statements.append(
            (
                """
                UPDATE sync_datasets SET sync_count = $2, modified_at = $3, modified_by = $4,
                    records = $5, bytes = $6, tombstone_bytes = $7 WHERE id = $1
                """,
                [
                    .integer(dataset.id), .integer(count), .timestamp(dataset.now),
                    .optional(text: writer), .integer(dataset.records), .integer(dataset.bytes),
                    .integer(dataset.tombstoneBytes),
                ]
            )
        )
        statements += OutboxStore.appending([record(count)])
        _ = try await transaction.pipeline(statements)
        return patches.map { patch in
            SyncRecord(
                key: patch.key,
                value: patch.value,
                syncCount: count,
                modifiedBy: writer,
                modifiedAt: Instant(microseconds: dataset.now),
                deviceModifiedAt: patch.deviceModifiedAt
            )
        }
    }

    private static let changing = """
        UPDATE sync_records r SET value = n.value, sync_count = $2, modified_at = $3,
            modified_by = $4, device_modified_at = n.device_at
        FROM unnest($5::text[], $6::text[], $7::timestamptz[]) AS n(key, value, device_at)
        WHERE r.dataset = $1 AND hashtextextended(r.key, 0) = hashtextextended(n.key, 0)
            AND r.key = n.key
        """
    private static let making = """
        INSERT INTO sync_records (dataset, key, value, sync_count, modified_at, modified_by,
            device_modified_at)
        SELECT $1, n.key, n.value, $2, $3, $4, n.device_at
        FROM unnest($5::text[], $6::text[], $7::timestamptz[]) AS n(key, value, device_at)
        """
}
