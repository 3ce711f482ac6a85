import Postgres
package import PushCore

/// Whether types of objects have what they need, for whoever looks after them.
package struct IngestStateStore: Sendable {
    let database: Database

    /// What the views of an app's objects are called, by the numbers of their types.
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

    /// Those of the names that no table or view has.
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

    /// Partitions of a table, by day, that ended so many days ago and one more, which whoever drops
    /// them may take.
    ///
    /// - Returns: How many there are, and when the oldest of them ended; `nil`: none.
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
