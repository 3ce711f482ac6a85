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
