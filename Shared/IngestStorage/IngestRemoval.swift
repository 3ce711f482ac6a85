package import Postgres
import PushCore
package import Storage

/// The deletion of an app's device data, with the app.
package struct IngestRemoval: Sendable {
    let database: Database
    let app: String

    package init(
        database: Database,
        app: String
    ) {
        self.database = database
        self.app = app
    }

    private static let rowsAtOnce = 5000
    /// The number of pages of a partition from which one statement deletes the app's rows.
    private static let pagesAtOnce = 2000

    /// Closes the app: from here on nothing is stored for it.
    package static func close(_ app: String, _ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(
            "UPDATE ingest_streams SET is_closed = true WHERE app = $1",
            [.text(app)]
        )
    }

    /// Deletes in batches. An interrupted call must be repeated: the streams, by which all rows are found, are
    /// deleted last.
    ///
    /// - Returns: The number of objects.
    package func run() async throws -> Int {
        let streams = try await database.execute(
            """
            SELECT s.number, s.type, s.view, t.app IS NULL AS built_in
            FROM ingest_streams s JOIN ingest_types t ON t.number = s.type
            WHERE s.app = $1 ORDER BY s.number
            """,
            [.text(app)]
        ).rows
        var objects = 0
        for row in streams {
            let (stream, table) = (
                try row.integer("number"), IngestTable(number: try row.integer("type"))
            )
            if let view = try row.textOrNil("view") {
                try await script("DROP VIEW IF EXISTS \(quotedIdentifier(view)) CASCADE")
            }
            for partition in try await table.partitions(in: database) {
                if try row.boolean("built_in") {
                    objects += try await deleteRows(of: partition)
                } else {
                    objects +=
                        try await database.execute(
                            "SELECT count(*) AS rows FROM \(quotedIdentifier(partition))"
                        ).first?.integer("rows") ?? 0
                    // An empty partition need not be dropped, and new days are dropped with the table.
                    try await script("DROP TABLE IF EXISTS \(quotedIdentifier(partition))")
                }
            }
            if try !row.boolean("built_in") {
                try await script("DROP TABLE IF EXISTS \(table.name)")
            }
            try await repeatedly(
                """
                DELETE FROM ingest_keys WHERE stream = $1 AND id IN (
                    SELECT id FROM ingest_keys WHERE stream = $1 ORDER BY id LIMIT $2 FOR UPDATE)
                """,
                .integer(stream)
            )
        }
        try await repeatedly(
            """
            DELETE FROM push_receipts WHERE app = $1 AND (target, kind, who) IN (
                SELECT target, kind, who FROM push_receipts WHERE app = $1
                ORDER BY target, kind, who LIMIT $2 FOR UPDATE)
            """,
            .text(app)
        )
        try await database.transaction { transaction in
            _ = try await transaction.execute(
                "DELETE FROM ingest_streams WHERE app = $1",
                [.text(app)]
            )
            _ = try await transaction.execute(
                "DELETE FROM ingest_types WHERE app = $1",
                [.text(app)]
            )
            _ = try await transaction.execute(
                "SELECT pg_notify('\(NotifyChannel.ingestTypes.rawValue)', $1)",
                [.text(app)]
            )
        }
        return objects
    }

    /// Deletes page by page, each once: there is no index by app.
    private func deleteRows(of partition: String) async throws -> Int {
        let name = quotedIdentifier(partition)
        let pages =
            try await database.execute(
                """
                SELECT pg_relation_size(to_regclass($1)) / current_setting('block_size')::bigint AS pages
                """,
                [.text(name)]
            ).first?.integerOrNil("pages") ?? 0
        var deleted = 0
        for page in stride(from: 0, to: pages, by: Self.pagesAtOnce) {
            deleted += try await database.execute(
                """
                DELETE FROM \(name) WHERE app = $1 AND ctid >= '(\(page),0)'::tid
                    AND ctid < '(\(page + Self.pagesAtOnce),0)'::tid
                """,
                [.text(app)]
            ).affectedRows
        }
        return deleted
    }

    private func repeatedly(_ sql: String, _ key: PostgresValue) async throws {
        while try await database.execute(sql, [key, .integer(Self.rowsAtOnce)]).affectedRows > 0 {}
    }

    private func script(_ sql: String) async throws {
        try await database.transaction { transaction in
            _ = try await transaction.execute("SET LOCAL lock_timeout = '10s'")
            try await transaction.script(sql)
        }
    }
}
