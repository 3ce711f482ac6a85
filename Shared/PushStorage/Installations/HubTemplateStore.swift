import Postgres
import PushCore

/// The names of the templates that an app's devices hold: a send becomes one push for each.
package struct HubTemplateStore: Sendable {
    let database: Database

    /// In the order of the alphabet.
    package func names(app: String) async throws -> [String] {
        try await database.execute(
            "SELECT name FROM hub_templates WHERE app = $1 ORDER BY name LIMIT $2",
            [.text(app), .integer(HubTemplate.maximumNames)]
        ).rows.map { try $0.text("name") }
    }

    /// Writes names down before an installation that holds them is saved.
    ///
    /// - Parameters:
    ///   - names: Of one installation.
    ///   - app: The app's id.
    ///   - limit: How many the app may have afterwards, where any of them is new.
    /// - Returns: `false` where the app has too many; those that no device holds, an hour after they
    ///   were written down, make room first.
    /// - Throws: `StorageError`.
    package func know(
        _ names: Set<String>,
        app: String,
        limit: Int = HubTemplate.maximumNames
    ) async throws -> Bool {
        let sorted = names.sorted()
        let known = try await database.execute(
            "SELECT count(*) AS count FROM hub_templates WHERE app = $1 AND name = ANY ($2::text[])",
            [.text(app), .textArray(sorted)]
        )
        if try known.first?.integer("count") == sorted.count { return true }
        return try await database.transaction { transaction in
            _ = try await transaction.execute(
                """
                SELECT pg_advisory_xact_lock(
                    hashtextextended(current_schema() || ' hub templates ' || $1, 0))
                """,
                [.text(app)]
            )
            if try await Self.total(with: sorted, app, transaction) > limit {
                _ = try await transaction.execute(
                    """
                    DELETE FROM hub_templates h
                    WHERE h.app = $1 AND h.known_at < now() - interval '1 hour'
                        AND NOT EXISTS (SELECT FROM installations n
                            WHERE n.app = h.app AND n.fields @> jsonb_build_object('_azure',
                                jsonb_build_object('templateNames', jsonb_build_array(h.name))))
                    """,
                    [.text(app)]
                )
                // The others are held, and for another hour nobody need look.
                _ = try await transaction.execute(
                    """
                    UPDATE hub_templates SET known_at = now()
                    WHERE app = $1 AND known_at < now() - interval '1 hour'
                    """,
                    [.text(app)]
                )
                guard try await Self.total(with: sorted, app, transaction) <= limit else {
                    return false
                }
            }
            _ = try await transaction.execute(
                """
                INSERT INTO hub_templates (app, name) SELECT $1, unnest($2::text[])
                ON CONFLICT (app, name) DO UPDATE SET known_at = now()
                """,
                [.text(app), .textArray(sorted)]
            )
            return true
        }
    }

    private static func total(
        with names: [String],
        _ app: String,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        try await transaction.execute(
            """
            SELECT count(*) AS count FROM (
                SELECT name FROM hub_templates WHERE app = $1 UNION SELECT unnest($2::text[])) u
            """,
            [.text(app), .textArray(names)]
        ).first?.integer("count") ?? 0
    }
}
