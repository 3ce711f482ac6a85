import Postgres

/// What identities prove themselves by with a password: hashes as `PasswordHash` writes them. The secrets
/// are kept nowhere.
package struct IdentitySecretStore: Sendable {
    let database: Database

    /// Sets an identity's secret; the one before is void.
    ///
    /// - Throws: `StorageError` with SQLSTATE 23503 where there is no such app.
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

    /// What a secret is compared with; `nil` where the identity has none.
    package func find(app: String, identity: String) async throws -> String? {
        guard !identity.utf8.contains(0) else { return nil }
        return try await database.execute(
            "SELECT stored FROM identity_secrets WHERE app = $1 AND identity = $2",
            [.text(app), .text(identity)]
        ).first?.text("stored")
    }

    /// Whether anybody of an app has one, or it has a login: without either nobody proves himself.
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
