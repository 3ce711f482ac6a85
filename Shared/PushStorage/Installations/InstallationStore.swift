import JSON
import Postgres
package import PushCore

/// The installations of all apps.
///
/// Saves are written by the batch (`InstallationSaves`); what a save means is its rule's to say
/// (`SaveRule`).
package struct InstallationStore: Sendable {
    let database: Database
    let saves: InstallationSaves

    package func find(app: String, objectID: String) async throws -> Installation? {
        try await database.execute(
            "SELECT \(InstallationRow.columns) FROM installations WHERE app = $1 AND object_id = $2",
            [.text(app), .text(objectID)]
        ).first.map(InstallationRow.read)
    }

    /// Saves an installation that names no object id: `rule` says which one is meant, if there is
    /// one. However many save one token at once, from wherever: one row, one object id.
    ///
    /// `make` gets the installation that is meant, or `nil`, and returns the one to keep; it may be
    /// called again. It runs on the database's loop and must not block.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - keys: Of the body alone.
    ///   - rule: Of the surface that it came in by.
    ///   - fields: What it is the first to use, of the app's own fields.
    ///   - make: Makes the installation.
    /// - Returns: What is kept.
    /// - Throws: What `make` throws; `InstallationError` for what the rule forbids; `StorageError`.
    package func save(
        app: String,
        keys: Installation.Keys,
        rule: SaveRule = .leanCloud,
        fields: NewFields? = nil,
        make: @escaping @Sendable (Installation?) throws -> Installation
    ) async throws -> SavedInstallation {
        let request = SaveRequest(rule: rule, keys: keys)
        let saved = try await saves.save(
            InstallationSave(app: app, request: request, fields: fields, change: make)
        )
        guard let saved else {
            throw StorageError(.corrupt, "a save without an object id named one")
        }
        return saved
    }

    /// Changes the installation of an object id; the rule may say that another one is meant.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - objectID: The object that the caller names.
    ///   - keys: Of the body alone; `nil`: it names none.
    ///   - rule: Of the surface that it came in by.
    ///   - condition: Must hold of the installation as it is before the change.
    ///   - fields: What it is the first to use, of the app's own fields.
    ///   - change: May be called again. Runs on the database's loop and must not block.
    /// - Returns: What is kept, or `nil` where there is none of that id.
    /// - Throws: What `change` throws; `InstallationError` for what the rule forbids, with code 305
    ///   where the condition does not hold; `WhereError`; `StorageError`.
    package func update(
        app: String,
        objectID: String,
        keys: Installation.Keys? = nil,
        rule: SaveRule = .leanCloud,
        condition: Where? = nil,
        fields: NewFields? = nil,
        change: @escaping @Sendable (inout Installation) throws -> Void
    ) async throws -> Installation? {
        let request = SaveRequest(rule: rule, objectID: objectID, keys: keys ?? .none)
        let save = InstallationSave(
            app: app,
            request: request,
            condition: condition,
            fields: fields
        ) { existing in
            guard var installation = existing else {
                throw StorageError(.corrupt, "an installation went away under its lock")
            }
            try change(&installation)
            return installation
        }
        return try await saves.save(save)?.installation
    }

    /// - Returns: How many there were.
    package func delete(app: String, objectIDs: [String]) async throws -> Int {
        let parameters: [PostgresValue] = [
            .text(app), .textArray(TextSet(objectIDs).sorted()),
        ]
        return try await database.transaction { transaction in
            try await transaction.pipeline([
                (IndexPlan.sql, []), (Self.lockNamedSQL, parameters),
                (
                    """
                    DELETE FROM installations
                    WHERE app = $1 AND object_id = ANY ($2::text[])
                    """, parameters
                ),
            ])[2].affectedRows
        }
    }

    /// Locks those of the ids that there are, in the order that all who lock installations keep.
    static let lockNamedSQL = """
        SELECT count(*) FROM (
            SELECT id FROM unnest($2::text[]) AS named(id) ORDER BY id COLLATE "C" OFFSET 0) AS o
        CROSS JOIN LATERAL (
            SELECT FROM installations i
            WHERE i.app = $1 AND i.object_id = o.id FOR UPDATE) AS held
        """
}
