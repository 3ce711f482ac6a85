import Postgres
import Storage

/// The hashes of identities' secrets, as `PasswordHash` writes them. The secrets themselves are not
/// stored.
package struct IdentitySecretStore: Sendable {
    let database: Database

    /// Sets an identity's secret; the previous one becomes invalid.
    ///
    /// - Throws: `StorageError` with SQLSTATE 23503 if the app does not exist.
    package func set(app: String, identity: String, stored: String) async throws {
        _ = try await database.execute(
            """
            INSERT INTO identity_secrets (app, identity, stored) VALUES ($1, $2, $3)
            ON CONFLICT (app, identity) DO UPDATE
                SET stored = excluded.stored, updated_at = excluded.updated_at
            """,
            [.text(app), .text(identity), .text(stored)]
        )
    }

    /// Returns the stored hash of a secret; `nil` if the identity has none.
    package func find(app: String, identity: String) async throws -> String? {
        guard !identity.utf8.contains(0) else { return nil }
        return try await database.execute(
            "SELECT stored FROM identity_secrets WHERE app = $1 AND identity = $2",
            [.text(app), .text(identity)]
        ).first?.text("stored")
    }

    /// Whether any identity of an app has a secret, or the app has a login: without either no client can
    /// authenticate.
    package func hasProofs(app: String) async throws -> Bool {
        try await database.execute(
            """
            SELECT EXISTS (SELECT FROM identity_secrets WHERE app = $1)
                OR EXISTS (SELECT FROM logins WHERE app = $1) AS has
            """,
            [.text(app)]
        ).first?.boolean("has") ?? false
    }

    /// - Returns: Whether it had one.
    package func remove(app: String, identity: String) async throws -> Bool {
        guard !identity.utf8.contains(0) else { return false }
        return try await database.execute(
            "DELETE FROM identity_secrets WHERE app = $1 AND identity = $2",
            [.text(app), .text(identity)]
        ).affectedRows == 1
    }
}
