import JSON
import Postgres
package import PushCore
import Storage

/// A view of an app's objects of one type.
package struct StoredIngestView: Sendable, Equatable {
    package struct Column: Sendable, Equatable {
        package var name: String
        /// The property of the objects that it shows.
        package var property: String
        package var type: IngestColumnType
    }

    package var name: String
    /// The columns of properties, besides the four that every view has.
    package var columns: [Column]
}

/// The checks whether types of objects have their tables and views, for the operator.
package struct IngestStateStore: Sendable {
    let database: Database

    /// Returns the names of the views of an app's objects, by the numbers of their types.
    package func views(of app: String) async throws -> [Int: String] {
        let result = try await database.execute(
            "SELECT type, view FROM ingest_streams WHERE app = $1 AND view IS NOT NULL",
            [.text(app)]
        )
        return Dictionary(
            try result.rows.map { (try $0.integer("type"), try $0.text("view")) },
            uniquingKeysWith: { $1 }
        )
    }

    /// Returns the view of an app's objects of one type; `nil` if there is none.
    package func view(ofType number: Int, app: String) async throws -> StoredIngestView? {
        let row = try await database.execute(
            """
            SELECT view, columns FROM ingest_streams
            WHERE type = $1 AND app = $2 AND view IS NOT NULL
            """,
            [.integer(number), .text(app)]
        ).first
        guard let row else { return nil }
        let columns = (try row.json("columns").array ?? []).compactMap(IngestView.Column.init)
        return StoredIngestView(
            name: try row.text("view"),
            columns: columns.map {
                StoredIngestView.Column(name: $0.name, property: $0.property, type: $0.type)
            }
        )
    }

    /// Returns the estimated numbers of objects in the tables of types, as Postgres' statistics know
    /// them, without those that were never analyzed.
    ///
    /// - Parameter numbers: Declared types: the table of a built-in one has the objects of all apps.
    /// - Returns: The numbers of objects by the numbers of types.
    /// - Throws: `StorageError`.
    package func estimatedCounts(of numbers: [Int]) async throws -> [Int: Int] {
        guard !numbers.isEmpty else { return [:] }
        let names = numbers.map { IngestTable(number: $0).name }
        let rows = try await database.execute(
            """
            SELECT t.number, sum(greatest(c.reltuples, 0))::bigint AS count
            FROM unnest($1::bigint[], $2::text[]) AS t(number, name)
            JOIN pg_inherits i ON i.inhparent = to_regclass(t.name)
            JOIN pg_class c ON c.oid = i.inhrelid
            GROUP BY t.number HAVING max(c.reltuples) >= 0
            """,
            [.integerArray(numbers), .textArray(names)]
        ).rows
        return Dictionary(
            try rows.map { (try $0.integer("number"), try $0.integer("count")) },
            uniquingKeysWith: { $1 }
        )
    }

    /// Returns the names without a table or view.
    package func missing(among names: Set<String>) async throws -> Set<String> {
        let result = try await database.execute(
            """
            SELECT name FROM unnest($1::text[]) AS name
            WHERE to_regclass(quote_ident(name)) IS NULL
            """,
            [.textArray(names.sorted())]
        )
        return Set(try result.rows.map { try $0.text("name") })
    }

    /// Finds partitions of a table, by day, that ended one day more than this number of days ago,
    /// as maintenance may need that day to drop them.
    ///
    /// - Returns: Their number, and when the oldest of them ended; `nil` if there are none.
    package func overdue(
        in table: String,
        keptDays: Int
    ) async throws -> (count: Int, since: Instant)? {
        let row = try await database.execute(
            """
            SELECT count(*) AS count, min(upper) AS since FROM (
                SELECT (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \\(''([^'']+)''\\)'))[1]
                    ::timestamptz AS upper
                FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                WHERE i.inhparent = to_regclass(quote_ident($1))) p
            WHERE upper < now() - ($2 + 1) * interval '1 day'
            """,
            [.text(table), .integer(keptDays)]
        ).first
        guard let row, let since = try row.instantOrNil("since") else { return nil }
        return (try row.integer("count"), since)
    }
}

extension PushDatabase {
    package var ingestState: IngestStateStore { IngestStateStore(database: database) }
}
