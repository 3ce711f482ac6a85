import Postgres
package import PushCore
import Storage

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
