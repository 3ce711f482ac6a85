package import Cryptography
package import JSON
import Postgres
package import PushCore

/// An app's credential at a provider: sealed, with a summary that may be shown.
package struct StoredCredential: Sendable, Equatable {
    package var app: String
    package var platform: Platform
    /// APNs: the topic of the credential; empty for other providers.
    package var name: String
    package var sealed: [UInt8]
    /// Safe to list: key id, team id, client e-mail, end of validity.
    package var summary: JSONObject
    /// Whether this APNs topic is used if neither an installation nor a push names a topic. The
    /// only credential of an app is always used, whether it is marked or not.
    package var isDefault: Bool
    package var updatedAt: Instant

    package init(
        app: String,
        platform: Platform,
        name: String,
        sealed: [UInt8],
        summary: JSONObject,
        isDefault: Bool = false,
        updatedAt: Instant = .now()
    ) {
        self.app = app
        self.platform = platform
        self.name = name
        self.sealed = sealed
        self.summary = summary
        self.isDefault = isDefault
        self.updatedAt = updatedAt
    }

    /// Makes a credential from its secret, which is sealed under the key ring.
    package init(
        sealing secret: JSONObject,
        summary: JSONObject,
        app: String,
        platform: Platform,
        name: String,
        isDefault: Bool,
        by keys: KeyRing
    ) throws {
        let context = Self.context(app: app, platform: platform, name: name)
        self.init(
            app: app,
            platform: platform,
            name: name,
            sealed: try keys.seal(secret.bytes, context: context),
            summary: summary,
            isDefault: isDefault
        )
    }

    /// The expiry of the credential's certificate; `nil` without a certificate.
    package var end: Instant? { summary["notAfter"]?.string.flatMap(Instant.init(iso8601:)) }

    /// The context that it is sealed for (the cipher's associated data).
    package var context: String {
        Self.context(app: app, platform: platform, name: name)
    }

    package static func context(app: String, platform: Platform, name: String) -> String {
        "credential/\(app)/\(platform.rawValue)/\(name)"
    }
}

package struct CredentialStore: Sendable {
    let database: Database

    package init(
        database: Database
    ) {
        self.database = database
    }

    /// Stores a credential, replaces the one of that name, and notifies the dispatchers.
    ///
    /// A default credential replaces the previous default. Any other credential leaves the default
    /// as it is: after a second topic is added, devices that name no topic still use the first.
    ///
    /// - Returns: The stored credential: the first of its kind is the default.
    /// - Throws: `StorageError` of kind `database` with SQLSTATE 23503 if the app does not exist.
    @discardableResult
    package func set(_ credential: StoredCredential) async throws -> StoredCredential {
        try await database.transaction { transaction in
            let key: [PostgresValue] = [
                .text(credential.app), .text(credential.platform.rawValue), .text(credential.name),
            ]
            // Serialized, so that of two credentials set at once only one is the first.
            _ = try await transaction.execute(
                "SELECT FROM apps WHERE id = $1 FOR NO KEY UPDATE",
                [.text(credential.app)]
            )
            _ = try await transaction.execute(
                credential.isDefault
                    ? """
                    UPDATE credentials SET is_default = false
                    WHERE app = $1 AND provider = $2 AND name <> $3 AND is_default
                    """
                    : """
                    UPDATE credentials c SET is_default = true
                    WHERE app = $1 AND provider = $2 AND name <> $3 AND NOT is_default
                        AND NOT EXISTS (SELECT FROM credentials o
                            WHERE o.app = c.app AND o.provider = c.provider AND o.name <> c.name)
                    """,
                key
            )
            let kept = try await transaction.execute(
                """
                INSERT INTO credentials AS c (app, provider, name, sealed, summary, is_default)
                VALUES ($1, $2, $3, $4, $5, $6 OR NOT EXISTS (
                    SELECT FROM credentials o WHERE o.app = $1 AND o.provider = $2))
                ON CONFLICT (app, provider, name) DO UPDATE SET sealed = excluded.sealed,
                    summary = excluded.summary, is_default = c.is_default OR excluded.is_default,
                    updated_at = now()
                RETURNING \(Self.columns)
                """,
                key + [
                    .bytes(credential.sealed), .json(.object(credential.summary)),
                    .boolean(credential.isDefault),
                ]
            )
            try await notifyCredentialsChanged(credential.app, transaction)
            return try kept.first.map(Self.credential) ?? credential
        }
    }

    /// Makes an existing credential the default of its kind, and notifies the dispatchers.
    ///
    /// - Returns: Whether it exists.
    package func makeDefault(
        app: String,
        platform: Platform,
        name: String
    ) async throws -> Bool {
        try await database.transaction { transaction in
            let changed = try await transaction.execute(
                """
                UPDATE credentials SET is_default = (name = $3)
                WHERE app = $1 AND provider = $2 AND EXISTS (SELECT FROM credentials o
                    WHERE o.app = $1 AND o.provider = $2 AND o.name = $3)
                """,
                [.text(app), .text(platform.rawValue), .text(name)]
            ).affectedRows
            try await notifyCredentialsChanged(app, transaction)
            return changed > 0
        }
    }

    /// Removes a credential, and notifies the dispatchers. If one credential of its kind is left,
    /// that becomes the default.
    ///
    /// - Returns: Whether it existed.
    package func remove(app: String, platform: Platform, name: String) async throws -> Bool {
        try await database.transaction { transaction in
            let gone = try await transaction.execute(
                "DELETE FROM credentials WHERE app = $1 AND provider = $2 AND name = $3",
                [.text(app), .text(platform.rawValue), .text(name)]
            ).affectedRows
            _ = try await transaction.execute(
                """
                UPDATE credentials c SET is_default = true
                WHERE app = $1 AND provider = $2 AND NOT is_default
                    AND NOT EXISTS (SELECT FROM credentials o
                        WHERE o.app = c.app AND o.provider = c.provider AND o.name <> c.name)
                """,
                [.text(app), .text(platform.rawValue)]
            )
            try await notifyCredentialsChanged(app, transaction)
            return gone > 0
        }
    }

    private func notifyCredentialsChanged(_ app: String, _ transaction: PostgresTransaction)
        async throws
    {
        _ = try await transaction.execute(
            "SELECT pg_notify('\(NotifyChannel.credentials.rawValue)', $1)",
            [.text(app)]
        )
    }

    /// Returns all credentials, or those of one app, by app, platform and name.
    package func list(app: String? = nil) async throws -> [StoredCredential] {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM credentials c WHERE $1::text IS NULL OR app = $1 ORDER BY app, provider, name
            """,
            [.optional(text: app)]
        ).rows.map(Self.credential)
    }

    private static let columns =
        "c.app, c.provider, c.name, c.sealed, c.summary, c.is_default, c.updated_at"

    private static func credential(_ row: PostgresRow) throws -> StoredCredential {
        let provider = try row.text("provider")
        guard let platform = Platform(rawValue: provider) else {
            throw StorageError(.corrupt, "a credential is for the unknown provider \(provider)")
        }
        return StoredCredential(
            app: try row.text("app"),
            platform: platform,
            name: try row.text("name"),
            sealed: try row.bytes("sealed"),
            summary: try row.json("summary").object ?? [:],
            isDefault: try row.boolean("is_default"),
            updatedAt: try row.instant("updated_at")
        )
    }
}
