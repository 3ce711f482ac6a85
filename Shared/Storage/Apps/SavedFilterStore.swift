package import JSON
import Postgres
package import PushCore

/// A filter of a list of the console, by a name.
package struct SavedFilter: Sendable, Equatable {
    package let name: String
    /// The values of the page's form: strings.
    package let filter: JSONObject
    /// The name in the audit of the person who saved it.
    package let author: String
    package let createdAt: Instant
}

/// The saved filters of the console's lists.
package struct SavedFilterStore: Sendable {
    let database: Database

    /// The most filters of one page of an app.
    package static let maximum = 50

    /// Returns the filters of a page, by name.
    package func list(app: String, page: String) async throws -> [SavedFilter] {
        try await database.execute(
            """
            SELECT name, filter, author, created_at FROM saved_filters
            WHERE app = $1 AND page = $2 ORDER BY name LIMIT \(Self.maximum)
            """,
            [.text(app), .text(page)]
        ).rows.map { row in
            SavedFilter(
                name: try row.text("name"),
                filter: try row.json("filter").object ?? [:],
                author: try row.text("author"),
                createdAt: try row.instant("created_at")
            )
        }
    }

    /// Stores a filter, or replaces the one of that name.
    ///
    /// - Returns: `false` if the page has as many filters as it may have.
    package func save(
        _ name: String,
        _ filter: JSONObject,
        app: String,
        page: String,
        author: String
    ) async throws -> Bool {
        let results = try await database.transaction { transaction in
            try await transaction.pipeline([
                // Of two concurrent calls the second counts the first one's filter.
                ("SELECT FROM apps WHERE id = $1 FOR NO KEY UPDATE", [.text(app)]),
                (
                    """
                    INSERT INTO saved_filters AS f (app, page, name, filter, author)
                    SELECT $1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM saved_filters
                        WHERE app = $1 AND page = $2 AND name <> $3) < \(Self.maximum)
                    ON CONFLICT (app, page, name) DO UPDATE SET filter = excluded.filter,
                        author = excluded.author, created_at = now()
                    """,
                    [
                        .text(app), .text(page), .text(name), .json(.object(filter)),
                        .text(author),
                    ]
                ),
            ])
        }
        return results[1].affectedRows == 1
    }

    /// - Returns: Whether there was one.
    package func remove(_ name: String, app: String, page: String) async throws -> Bool {
        try await database.execute(
            "DELETE FROM saved_filters WHERE app = $1 AND page = $2 AND name = $3",
            [.text(app), .text(page), .text(name)]
        ).affectedRows > 0
    }
}
