import Postgres
import Storage

/// A version that an app instance fetched.
package struct ConfigFetchRecord: Sendable, Equatable {
    package var app: String
    package var appInstanceID: String
    package var version: Int

    package init(app: String, appInstanceID: String, version: Int) {
        self.app = app
        self.appInstanceID = appInstanceID
        self.version = version
    }
}

/// The latest version that each installation fetched: it need not be notified of that one.
package struct ConfigFetchStore: Sendable {
    let database: Database

    /// Counts the installations of an app whose fetches are known. It reads a row of each.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - version: The current version.
    /// - Returns: How many have fetched this version or a later one, and how many only an older one.
    /// - Throws: `StorageError`; `isStatementTimeout` if it takes too long.
    package func counts(
        of app: String,
        _ version: Int
    ) async throws -> (current: Int, stale: Int) {
        let row = try await database.execute(
            """
            SELECT count(*) FILTER (WHERE version >= $2) AS current,
                count(*) FILTER (WHERE version < $2) AS stale
            FROM config_fetched WHERE app = $1
            """,
            [.text(app), .integer(version)]
        ).first
        return (try row?.integer("current") ?? 0, try row?.integer("stale") ?? 0)
    }

    /// Records fetched versions by the `installationId` of installations. Ids without an installation are ignored.
    package func note(_ notes: [ConfigFetchRecord]) async throws {
        guard !notes.isEmpty else { return }
        _ = try await database.execute(
            """
            INSERT INTO config_fetched AS f (app, installation, version)
            SELECT i.app, i.object_id, max(n.version)
            FROM unnest($1::text[], $2::text[], $3::bigint[]) AS n(app, instance, version)
            JOIN installations i ON i.app = n.app AND i.installation_id = n.instance
            GROUP BY i.app, i.object_id ORDER BY i.app, i.object_id
            ON CONFLICT (app, installation) DO UPDATE
                SET version = EXCLUDED.version, fetched_at = now()
                WHERE f.version < EXCLUDED.version
            """,
            [
                .textArray(notes.map(\.app)), .textArray(notes.map(\.appInstanceID)),
                .integerArray(notes.map(\.version)),
            ]
        )
    }
}
