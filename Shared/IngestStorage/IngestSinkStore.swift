import Postgres
package import PushCore
import PushStorage
import Storage

/// An object's report about a push.
package struct SinkReceipt: Sendable, Equatable {
    package var kind: ReceiptKind
    /// The id of a push, or `event/` and an event's id.
    package var target: String
    /// An object id, or LeanCloud's own `installationId`; `nil`: each object counts.
    package var installation: String?

    package init(_ kind: ReceiptKind, of target: String, installation: String?) {
        self.kind = kind
        self.target = target
        self.installation = installation
    }
}

/// An object to be stored.
package struct SinkObject: Sendable {
    /// The number of its type.
    package var type: Int
    package var app: String
    /// The form of `IngestID.canonical`.
    package var id: String
    package var receivedAt: Instant
    package var schemaVersion: Int
    /// JSON, unchanged.
    package var object: [UInt8]
    /// Its subjects: the values of the properties that its type names.
    package var subjects: [String]
    package var receipt: SinkReceipt?

    package init(
        type: Int,
        app: String,
        id: String,
        receivedAt: Instant,
        schemaVersion: Int,
        object: [UInt8],
        subjects: [String] = [],
        receipt: SinkReceipt? = nil
    ) {
        self.type = type
        self.app = app
        self.id = id
        self.receivedAt = receivedAt
        self.schemaVersion = schemaVersion
        self.object = object
        self.subjects = subjects
        self.receipt = receipt
    }
}

/// The result of a batch.
package struct SinkCounts: Sendable, Equatable {
    package var stored = 0
    /// Objects with a known id, in the batch or from before.
    package var repeated = 0
    /// Objects about a subject that was erased after they were received.
    package var erased = 0
    /// The positions in the batch of objects whose app has no such type any more: they are not stored.
    package var unknown: [Int] = []

    package init() {}
}

/// The final store of objects: each id of an app's type once, even if it is sent again.
package struct IngestSinkStore: Sendable {
    let database: Database

    /// The limit of names; longer ones cannot match.
    private static let maximumNameBytes = 512

    private struct Stream: Hashable {
        var type: Int
        var app: String
    }

    private struct Key: Hashable {
        var stream: Int
        /// Hexadecimal digits.
        var id: String
    }

    /// Stores a batch in one transaction: all of it, or nothing. A repeat is recognised, also if the
    /// result of the first is unknown.
    ///
    /// - Throws: `StorageError`; `isOfTheValues` if one of the objects is rejected for its values.
    package func store(_ objects: [SinkObject]) async throws -> SinkCounts {
        guard !objects.isEmpty else { return SinkCounts() }
        let wanted = Set(objects.map { Stream(type: $0.type, app: $0.app) })
        let (counts, missing) = try await store(objects, wanted)
        guard !missing.isEmpty else { return counts }
        // Built-in types of an app that was created by an older version.
        let types = IngestTypeStore(database: database)
        for app in Set(missing.map(\.app)).sorted() {
            try await types.makeBuiltInViews(of: app)
        }
        return try await store(objects, wanted, isLast: true).counts
    }

    private func store(
        _ objects: [SinkObject],
        _ wanted: Set<Stream>,
        isLast: Bool = false
    ) async throws -> (counts: SinkCounts, missing: Set<Stream>) {
        let key = try await database.erasureKey.bytes(in: database)
        return try await database.transaction { transaction in
            let apps = Set(objects.map(\.app)).sorted()
            let first = try await transaction.pipeline([
                ErasureFence.passBarrier(of: apps),
                Self.streams(wanted),
                ErasureFence.fencedApps(of: apps),
            ])
            var streams: [Stream: Int] = [:]
            for row in first[1].rows {
                let stream = Stream(type: try row.integer("type"), app: try row.text("app"))
                streams[stream] = try row.integer("number")
            }
            let missing = wanted.filter { streams[$0] == nil }
            // An app's built-in types may be created; nothing was written yet.
            if !isLast, missing.contains(where: { $0.type <= IngestTable.lastBuiltIn }) {
                return (SinkCounts(), missing)
            }
            let erased = try await ErasureFence.erased(
                Self.names(in: objects),
                in: first[2].rows,
                key: key,
                transaction
            )
            var counts = SinkCounts()
            var places: [Key: Int] = [:]
            var keys: [Key] = []
            for (place, object) in objects.enumerated() {
                guard let stream = streams[Stream(type: object.type, app: object.app)] else {
                    counts.unknown.append(place)
                    continue
                }
                guard !erased.contains(place) else {
                    counts.erased += 1
                    continue
                }
                let key = Key(stream: stream, id: object.id.filter { $0 != "-" })
                guard places[key] == nil else {
                    counts.repeated += 1
                    continue
                }
                places[key] = place
                keys.append(key)
            }
            guard !keys.isEmpty else { return (counts, []) }
            let fresh = try await Self.take(keys, transaction)
            counts.repeated += keys.count - fresh.count
            let chosen = fresh.compactMap { places[$0] }.sorted()
            counts.stored = chosen.count
            try await Self.copy(chosen.map { objects[$0] }, transaction)
            try await Self.note(chosen.map { objects[$0] }, transaction)
            return (counts, [])
        }
    }

    /// Locks the streams until the end of the transaction: deleting an app waits for it.
    private static func streams(_ wanted: Set<Stream>) -> (String, [PostgresValue]) {
        let wanted = wanted.sorted { ($0.type, $0.app) < ($1.type, $1.app) }
        return (
            """
            SELECT s.number, s.type, s.app FROM ingest_streams s
            JOIN unnest($1::integer[], $2::text[]) AS w(type, app) ON s.type = w.type AND s.app = w.app
            WHERE NOT s.is_closed ORDER BY s.number FOR SHARE OF s
            """,
            [.integerArray(wanted.map(\.type)), .textArray(wanted.map(\.app))]
        )
    }

    private static func names(in objects: [SinkObject]) -> [ErasureFence.Candidate] {
        objects.enumerated().flatMap { place, object in
            object.subjects.map { name in
                ErasureFence.Candidate(
                    place: place,
                    app: object.app,
                    name: name,
                    atMicroseconds: object.receivedAt.microseconds
                )
            }
        }
    }

    /// Inserts keys in one order, so that transactions cannot deadlock. Usually all of them are new,
    /// and need not be returned one by one.
    ///
    /// - Returns: The new keys.
    private static func take(
        _ keys: [Key],
        _ transaction: PostgresTransaction
    ) async throws -> [Key] {
        let parameters: [PostgresValue] = [
            .integerArray(keys.map(\.stream)), .textArray(keys.map(\.id)),
        ]
        let taken = try await transaction.execute(
            """
            INSERT INTO ingest_keys (stream, id)
            SELECT k.stream, decode(k.id, 'hex')
            FROM unnest($1::integer[], $2::text[]) AS k(stream, id) ORDER BY 1, 2
            ON CONFLICT DO NOTHING
            """,
            parameters
        ).affectedRows
        if taken == keys.count { return keys }
        guard taken > 0 else { return [] }
        // The row of an existing key is of an earlier transaction.
        return try await transaction.execute(
            """
            SELECT w.stream, w.id FROM unnest($1::integer[], $2::text[]) AS w(stream, id)
            JOIN ingest_keys k ON k.stream = w.stream AND k.id = decode(w.id, 'hex')
            WHERE k.xmin = pg_current_xact_id()::xid AND k.stored_at = now()
            """,
            parameters
        ).rows.map { Key(stream: try $0.integer("stream"), id: try $0.text("id")) }
    }

    private static func copy(
        _ objects: [SinkObject],
        _ transaction: PostgresTransaction
    ) async throws {
        var rows: [Int: CopyRows] = [:]
        for object in objects {
            rows[object.type, default: CopyRows(columns: 6)].append { cells in
                cells.text(object.app)
                cells.date(object.receivedAt.microseconds)
                cells.text(object.id)
                cells.timestamp(object.receivedAt.microseconds)
                cells.integer(object.schemaVersion)
                cells.jsonb(object.object)
            }
        }
        for (type, rows) in rows.sorted(by: { $0.key < $1.key }) {
            _ = try await transaction.copyIn(
                table: IngestTable(number: type).name,
                columns: ["app", "day", "id", "received_at", "schema_version", "object"],
                rows
            )
        }
    }

    /// Stores the reports in objects, by the object ids of the known installations.
    private static func note(
        _ objects: [SinkObject],
        _ transaction: PostgresTransaction
    ) async throws {
        let reports = objects.compactMap { object -> (object: SinkObject, receipt: SinkReceipt)? in
            guard let receipt = object.receipt,
                receipt.target.utf8.count <= maximumNameBytes,
                (receipt.installation ?? "").utf8.count <= maximumNameBytes
            else { return nil }
            return (object, receipt)
        }
        guard !reports.isEmpty else { return }
        _ = try await transaction.execute(
            """
            WITH noted AS (
                INSERT INTO push_receipts (app, target, kind, who)
                SELECT DISTINCT r.app, r.target, r.kind, CASE WHEN r.installation IS NULL THEN r.id
                    ELSE coalesce(
                        (SELECT i.object_id FROM installations i
                            WHERE i.app = r.app AND i.object_id = r.installation),
                        (SELECT i.object_id FROM installations i
                            WHERE i.app = r.app AND i.installation_id = r.installation
                            ORDER BY i.object_id LIMIT 1),
                        r.installation) END
                FROM unnest($1::text[], $2::text[], $3::smallint[], $4::text[], $5::text[])
                    AS r(app, target, kind, installation, id)
                ORDER BY 1, 2, 3, 4 ON CONFLICT DO NOTHING RETURNING app, target, kind
            ), \(ReceiptFigures.counting("noted"))
            SELECT count(*) FROM noted
            """,
            [
                .textArray(reports.map(\.object.app)), .textArray(reports.map(\.receipt.target)),
                .integerArray(reports.map(\.receipt.kind.rawValue)),
                .textArray(reports.map(\.receipt.installation)),
                .textArray(reports.map(\.object.id)),
            ]
        )
    }
}
