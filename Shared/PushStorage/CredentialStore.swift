package import JSON
import Postgres
package import PushCore

/// An app's credential at a provider: sealed, with what may be shown of it.
package struct StoredCredential: Sendable, Equatable {
    package var app: String
    package var platform: Platform
    /// APNs: the topic that it is for; empty for the others.
    package var name: String
    package var sealed: [UInt8]
    /// Safe to list: key id, team id, client e-mail, end of validity.
    package var summary: JSONObject
    package var updatedAt: Instant

    package init(
        app: String,
        platform: Platform,
        name: String,
        sealed: [UInt8],
        summary: JSONObject,
        updatedAt: Instant = .now()
    ) {
        self.app = app
        self.platform = platform
        self.name = name
        self.sealed = sealed
        self.summary = summary
        self.updatedAt = updatedAt
    }

    /// What it is sealed for (the cipher's associated data).
    package var context: String {
        Self.context(app: app, platform: platform, name: name)
    }

    package static func context(app: String, platform: Platform, name: String) -> String {
        "credential/\(app)/\(platform.rawValue)/\(name)"
    }
}

package struct CredentialStore: Sendable {
    let database: PushDatabase

    /// Puts a credential in the place of the one of that name, and tells the dispatchers.
    ///
    /// - Throws: `StorageError` of kind `database` with SQLSTATE 23503 where there is no such app.
    package func set(_ credential: StoredCredential) async throws {
        _ = try await database.execute(
            """
            WITH stored AS (
                INSERT INTO credentials (app, provider, name, sealed, summary)
                VALUES ($1, $2, $3, $4, $5)
                ON CONFLICT (app, provider, name) DO UPDATE SET sealed = excluded.sealed,
                    summary = excluded.summary, updated_at = now()
                RETURNING app)
            SELECT pg_notify('\(StorageChannel.credentials.rawValue)', app) FROM stored
            """,
            [
                .text(credential.app), .text(credential.platform.rawValue),
                .text(credential.name), .bytes(credential.sealed),
                .json(.object(credential.summary)),
            ]
        )
    }

    /// All credentials, or those of one app, by app, platform and name.
    package func list(app: String? = nil) async throws -> [StoredCredential] {
        try await database.execute(
            """
            SELECT app, provider, name, sealed, summary, updated_at FROM credentials
            WHERE $1::text IS NULL OR app = $1 ORDER BY app, provider, name
            """,
            [.optional(text: app)]
        ).rows.map { row in
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
                updatedAt: try row.instant("updated_at")
            )
        }
    }
}

/// What is told by NOTIFY. A notification is a hint to look: whoever waits for one also looks now
/// and then by himself.
package enum StorageChannel: String, Sendable, CaseIterable {
    /// A credential or a setting was changed; the payload is the app.
    case credentials = "carillon_credentials"
    /// A row was put into the outbox.
    case outbox = "carillon_outbox"
    /// A push waits to be planned.
    case planning = "carillon_planning"
    /// A push waits for its time.
    case scheduled = "carillon_scheduled"
    /// Shards of a broadcast wait for a sender.
    case shards = "carillon_shards"
    /// A push was cancelled; the payload is its id.
    case cancelled = "carillon_cancelled"
}

extension PushDatabase {
    /// Calls `handler` on each notification, and with an empty text after every reconnect, when
    /// some may have been missed. It ends with the database.
    package func onNotification(
        _ channel: StorageChannel,
        _ handler: @escaping @Sendable (String) -> Void
    ) async throws {
        do {
            _ = try await pool.listen(channel.rawValue, handler)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
    }
}
