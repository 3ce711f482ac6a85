import JSON
import Postgres
package import PushCore
import Storage

extension InstallationStore {
    /// Returns the existing installations of the ids.
    package func find(app: String, objectIDs: [String]) async throws -> [Installation] {
        try await database.execute(
            """
            SELECT \(InstallationRow.columns) FROM installations
            WHERE app = $1 AND object_id = ANY ($2::text[]) ORDER BY object_id
            """,
            [.text(app), .textArray(ExactStringSet(objectIDs).sorted())]
        ).rows.map(InstallationRow.read)
    }

    /// - Returns: How many of the ids matched and were deleted.
    package func delete(
        app: String,
        objectIDs: [String],
        where condition: Where
    ) async throws -> Int {
        let named: [PostgresValue] = [.text(app), .textArray(ExactStringSet(objectIDs).sorted())]
        var compiler = WhereCompiler(app: app, parameters: named)
        let matches = try compiler.installations(condition, as: "n")
        let (sql, parameters) = (
            """
            DELETE FROM installations n
            WHERE n.app = $1 AND n.object_id = ANY ($2::text[]) AND \(matches)
            """, compiler.parameters
        )
        return try await database.transaction { transaction in
            try await transaction.pipeline([
                (IndexPlan.sql, []), (Self.lockNamedSQL, named), (sql, parameters),
            ])[2].affectedRows
        }
    }

    /// Whether an installation with any of the ids exists.
    package func isAny(app: String, of objectIDs: [String]) async throws -> Bool {
        try await database.execute(
            """
            SELECT 1 AS found FROM installations
            WHERE app = $1 AND object_id = ANY ($2::text[]) LIMIT 1
            """,
            [.text(app), .textArray(ExactStringSet(objectIDs).sorted())]
        ).first != nil
    }

    /// Returns the installations with one of these tokens, or one of these `installationId`s. Their
    /// `fields` are not read: the list may be long.
    package func find(
        app: String,
        platform: Platform,
        tokens: [String],
        installationIDs: [String] = []
    ) async throws -> [Installation] {
        try await database.execute(
            """
            SELECT \(InstallationRow.columns.replacing(" fields,", with: " '{}'::jsonb AS fields,"))
            FROM installations
            WHERE app = $1 AND (provider = $2 AND token_hash = ANY (ARRAY(
                    SELECT sha256(convert_to(named.token, 'UTF8'))
                    FROM unnest($3::text[]) AS named(token)))
                OR installation_id = ANY ($4::text[]))
            ORDER BY object_id
            """,
            [
                .text(app), .text(platform.rawValue), .textArray(tokens),
                .textArray(installationIDs),
            ]
        ).rows.map(InstallationRow.read)
    }
}
