import JSON
import Postgres
package import PushCore
import Storage

/// The installations of all apps.
///
/// `SaveBatcher` writes the saves in batches. The rule of a save (`SaveRule`) decides which
/// installation the save changes.
package struct InstallationStore: Sendable {
    let database: Database
    let saves: SaveBatcher

    package func find(app: String, objectID: String) async throws -> Installation? {
        try await database.execute(
            "SELECT \(InstallationRow.columns) FROM installations WHERE app = $1 AND object_id = $2",
            [.text(app), .text(objectID)]
        ).first.map(InstallationRow.read)
    }

    /// Saves an installation without a given object id: `rule` decides which existing one it
    /// changes, if any. Concurrent saves of one token, even in several processes, result in one row
    /// with one object id.
    ///
    /// `make` gets that installation, or `nil`, and returns the one to store; it may be called again.
    /// It runs on the database's loop and must not block.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - keys: The keys that the body contains.
    ///   - rule: The rule of the surface.
    ///   - fields: The app's own fields that this save is the first to use.
    ///   - make: Makes the installation.
    /// - Returns: The stored installation.
    /// - Throws: The errors of `make`; `InstallationError` if the rule forbids the save;
    ///   `StorageError`.
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

    /// Changes the installation with an object id. The rule may select another installation
    /// instead.
    ///
    /// - Parameters:
    ///   - app: The app's id.
    ///   - objectID: The object that the caller names.
    ///   - keys: The keys that the body contains; `nil` if it contains none.
    ///   - rule: The rule of the surface.
    ///   - condition: A condition on the installation before the change.
    ///   - fields: The app's own fields that this save is the first to use.
    ///   - change: May be called again. Runs on the database's loop and must not block.
    /// - Returns: The stored installation, or `nil` if no object has that id.
    /// - Throws: The errors of `change`; `InstallationError` if the rule forbids the save, with
    ///   code 305 if the installation does not meet the condition; `WhereError`; `StorageError`.
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

    /// - Returns: The number of installations that existed.
    package func delete(app: String, objectIDs: [String]) async throws -> Int {
        let parameters: [PostgresValue] = [
            .text(app), .textArray(ExactStringSet(objectIDs).sorted()),
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

    /// Locks the existing installations of the ids, in the order in which all transactions lock them.
    static let lockNamedSQL = """
        SELECT count(*) FROM (
            SELECT id FROM unnest($2::text[]) AS named(id) ORDER BY id COLLATE "C" OFFSET 0) AS o
        CROSS JOIN LATERAL (
            SELECT FROM installations i
            WHERE i.app = $1 AND i.object_id = o.id FOR UPDATE) AS held
        """
}
