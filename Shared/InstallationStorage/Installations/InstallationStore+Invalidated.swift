import Postgres
package import PushCore
import Storage

/// The number of an app's installations that providers' answers made invalid, for one reason.
package struct InvalidatedInstallations: Sendable, Equatable {
    package var app: String
    package var reason: String
    package var count: Int
}

extension InstallationStore {
    /// Returns the numbers of installations that `restore` would find, by reason.
    package func invalidated(
        since: Instant,
        app: String? = nil
    ) async throws -> [InvalidatedInstallations] {
        try await database.execute(
            """
            SELECT app, invalid_reason AS reason, count(*) AS count FROM installations
            WHERE invalidated_at >= $1 AND NOT valid AND invalid_reason IS NOT NULL
                AND ($2::text IS NULL OR app = $2)
            GROUP BY app, invalid_reason ORDER BY app, invalid_reason LIMIT 1000
            """,
            [.timestamp(since.microseconds), .optional(text: app)]
        ).rows.map { row in
            InvalidatedInstallations(
                app: try row.text("app"),
                reason: try row.text("reason"),
                count: try row.integer("count")
            )
        }
    }
}
