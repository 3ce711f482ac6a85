import JSON
import Postgres
import PushCore

/// What devices have sent that is about a subject: objects whose type says by which property, and what its
/// installations have reported of pushes. The ids of objects stay known, so that none comes again.
enum SubjectIngest {
    private static let rowsAtOnce = 2000

    /// A table, and a property by which its objects name whom they are about.
    struct Place: Sendable {
        let type: String
        let table: String
        let subject: String

        /// SQL: the objects `o` of the app `$1` that name one of `$2`.
        fileprivate var own: String {
            let value = "o.object->>\(quotedLiteral(subject))"
            return """
                FROM unnest($2::text[]) AS n(name) JOIN \(table) o ON \(value) = n.name
                WHERE \(value) IS NOT NULL AND o.app = $1
                """
        }
    }

    static func places(of subject: Subject, in database: Database) async throws -> [Place] {
        try await database.execute(
            """
            SELECT t.number, t.name, s.subject FROM ingest_types t
                CROSS JOIN LATERAL unnest(t.subjects) WITH ORDINALITY AS s(subject, place)
            WHERE t.app = $1 OR t.app IS NULL ORDER BY t.number, s.place
            """,
            [.text(subject.app)]
        ).rows.map { row in
            Place(
                type: try row.text("name"),
                table: IngestTable(number: try row.integer("number")).name,
                subject: try row.text("subject")
            )
        }
    }

    /// Those whose names a note has, and that were received until it was begun; says whether there are more.
    static func erasePortion(
        of subject: Subject,
        at place: Place,
        _ note: inout ErasureNotes.Note,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        try await IndexPlan.require(transaction)
        let count = try await transaction.execute(
            """
            DELETE FROM \(place.table) WHERE (tableoid, ctid) IN (
                SELECT o.tableoid, o.ctid \(place.own)
                    AND o.received_at < $3::timestamptz + \(ErasedNames.clockDifference) LIMIT $4)
            """,
            [
                .text(subject.app), .textArray(note.names.texts.sorted()),
                .timestamp(note.until), .integer(rowsAtOnce),
            ],
            isPrepared: false
        ).affectedRows
        note.counts["ingestObjects"] += count
        return count == rowsAtOnce
    }

    /// - Returns: Whether there is more.
    static func eraseReceipts(
        of subject: Subject,
        _ note: inout ErasureNotes.Note,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        let count = try await transaction.execute(
            """
            DELETE FROM push_receipts WHERE app = $1 AND (target, kind, who) IN (
                SELECT target, kind, who FROM push_receipts
                WHERE app = $1 AND who = ANY ($2::text[]) AND at <= $3 LIMIT $4)
            """,
            [
                .text(subject.app), .textArray(note.names.texts.sorted()),
                .timestamp(note.until), .integer(rowsAtOnce),
            ]
        ).affectedRows
        note.counts["pushReceipts"] += count
        return count == rowsAtOnce
    }

    /// What an erasure would count.
    static func count(
        of subject: Subject,
        _ names: SubjectNames,
        _ counts: inout ErasureCounts,
        in database: Database
    ) async throws {
        let own: [PostgresValue] = [.text(subject.app), .textArray(names.texts.sorted())]
        for (table, places) in byTable(try await places(of: subject, in: database)) {
            // An object may name the same subject twice.
            let rows = places.map { "SELECT o.tableoid, o.ctid \($0.own)" }
            counts["ingestObjects"] += try await planned(in: database) { transaction in
                try await transaction.execute(
                    "SELECT count(*) AS number FROM (\(rows.joined(separator: " UNION "))) AS of_\(table)",
                    own,
                    isPrepared: false
                ).first?.integer("number") ?? 0
            }
        }
        counts["pushReceipts"] +=
            try await database.execute(
                "SELECT count(*) AS number FROM push_receipts WHERE app = $1 AND who = ANY ($2::text[])",
                own
            ).first?.integer("number") ?? 0
    }

    /// Objects as they are stored, the oldest of each type first, as far as an export goes.
    static func export(
        of subject: Subject,
        _ names: SubjectNames,
        limit: Int,
        bytes: Int,
        into export: inout SubjectExport,
        _ database: Database
    ) async throws {
        var left = bytes
        for (_, places) in byTable(try await places(of: subject, in: database)) {
            let rows = places.map {
                "SELECT o.id, o.received_at, o.schema_version, o.object \($0.own)"
            }
            var last: (at: Int64, id: String) = (0, "")
            var count = Self.exportedAtOnce
            while count == Self.exportedAtOnce {
                let after = last
                let page = try await planned(in: database) { transaction in
                    try await transaction.execute(
                        """
                        SELECT DISTINCT ON (received_at, id) * FROM (
                            \(rows.joined(separator: " UNION ALL "))) o
                        WHERE (o.received_at, o.id) > ($3::timestamptz, $4)
                        ORDER BY received_at, id LIMIT \(Self.exportedAtOnce)
                        """,
                        [
                            .text(subject.app), .textArray(names.texts.sorted()),
                            .timestamp(after.at), .text(after.id),
                        ],
                        isPrepared: false
                    )
                }
                for row in page.rows {
                    let object = try row.json("object")
                    left -= object.bytes.count
                    guard left >= 0, export.ingestObjects.count < limit else {
                        export.isTruncated = true
                        return
                    }
                    export.ingestObjects.append([
                        "type": .string(places[0].type),
                        "receivedAt": .string(try row.instant("received_at").iso8601),
                        "schemaVersion": JSONValue(try row.integer("schema_version")),
                        "object": object,
                    ])
                    last = (try row.timestampMicroseconds("received_at"), try row.text("id"))
                }
                count = page.rows.count
            }
        }
        try await exportReceipts(of: subject, names, limit: limit, into: &export, database)
    }

    private static let exportedAtOnce = 500

    private static func exportReceipts(
        of subject: Subject,
        _ names: SubjectNames,
        limit: Int,
        into export: inout SubjectExport,
        _ database: Database
    ) async throws {
        let rows = try await database.execute(
            """
            SELECT target, kind, who, at FROM push_receipts
            WHERE app = $1 AND who = ANY ($2::text[]) ORDER BY at, target, kind LIMIT $3
            """,
            [.text(subject.app), .textArray(names.texts.sorted()), .integer(limit + 1)]
        ).rows
        if rows.count > limit { export.isTruncated = true }
        export.pushReceipts = try rows.prefix(limit).map { row in
            [
                "push": .string(try row.text("target")),
                "kind": .string(
                    try row.integer("kind") == SinkReceipt.Kind.opened.rawValue
                        ? "opened" : "received"
                ),
                "installation": .string(try row.text("who")),
                "at": .string(try row.instant("at").iso8601),
            ]
        }
    }

    private static func byTable(_ places: [Place]) -> [(table: String, places: [Place])] {
        var groups: [(table: String, places: [Place])] = []
        for place in places {
            if groups.last?.table == place.table {
                groups[groups.count - 1].places.append(place)
            } else {
                groups.append((place.table, [place]))
            }
        }
        return groups
    }

    private static func planned<Value: Sendable>(
        in database: Database,
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        try await database.transaction { transaction in
            try await IndexPlan.require(transaction)
            return try await body(transaction)
        }
    }
}
