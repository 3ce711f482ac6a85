import Postgres
import PushCore
import Storage

/// The names of the templates that an app's devices have. A template send becomes one push for each
/// name.
package struct HubTemplateStore: Sendable {
    let database: Database

    /// Returns the names in alphabetical order.
    package func names(app: String) async throws -> [String] {
        try await database.execute(
            "SELECT name FROM hub_templates WHERE app = $1 ORDER BY name LIMIT $2",
            [.text(app), .integer(HubTemplate.maximumNames)]
        ).rows.map { try $0.text("name") }
    }

    /// Stores names before an installation that has them is saved.
    ///
    /// - Parameters:
    ///   - names: The names of one installation.
    ///   - app: The app's id.
    ///   - limit: The number of names that the app may have afterwards, if any of these is new.
    /// - Returns: `false` if the app would have too many names. Before that, names that were stored
    ///   over an hour ago and that no device has are deleted.
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
                // The other names are in use, and need not be checked for another hour.
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
