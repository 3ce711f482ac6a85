import Postgres
package import PushCore
import Storage

extension InstallationStore {
    /// The rows that a list of Azure's registrations shows.
    package enum RegistrationSelection: Sendable {
        case all
        /// The rows with one of these tokens, however many share it.
        case channel([Platform], [String])
        case condition(Where)
    }

    /// Returns a page of rows, registrations and installations, in the order of their object ids.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - selection: The rows.
    ///   - objectID: The first object id that may be in the page.
    ///   - limit: The most rows.
    /// - Returns: At most `limit` rows.
    /// - Throws: `WhereError` for a condition that is too large; `StorageError`.
    package func registrations(
        app: String,
        _ selection: RegistrationSelection,
        from objectID: String,
        limit: Int
    ) async throws -> [Installation] {
        var parameters: [PostgresValue] = [.text(app), .text(objectID), .integer(limit)]
        var conditions = ""
        switch selection {
        case .all: break
        case .channel(let platforms, let tokens):
            parameters += [.textArray(platforms.map(\.rawValue)), .textArray(tokens)]
            conditions = """
                 AND n.object_id IN (
                    SELECT i.object_id FROM unnest($4::text[]) AS p(provider)
                    CROSS JOIN unnest($5::text[]) AS t(token)
                    JOIN installations i ON i.app = $1 AND i.provider = p.provider
                        AND i.token_hash = sha256(convert_to(t.token, 'UTF8'))
                    UNION ALL
                    SELECT i.object_id FROM unnest($5::text[]) AS t(token)
                    JOIN installations i ON i.app = $1 AND i.template_only AND i.token IS NOT NULL
                        AND hashtextextended(i.token, 0) = hashtextextended(t.token, 0)
                        AND i.token = t.token AND i.provider = ANY ($4::text[]))
                """
        case .condition(let condition):
            var compiler = WhereCompiler(app: app, parameters: parameters)
            conditions = " AND " + (try compiler.installations(condition, as: "n"))
            parameters = compiler.parameters
        }
        return try await database.ask(
            """
            SELECT \(InstallationRow.columns) FROM installations n
            WHERE n.app = $1 AND n.object_id >= $2\(conditions)
            ORDER BY n.object_id LIMIT $3
            """,
            parameters
        ).rows.map(InstallationRow.read)
    }
}
