import Postgres
package import PushCore

/// A token with which a client publishes an app's templates, or only reads them.
package struct StoredConfigToken: Sendable, Equatable {
    package var app: String
    package var name: String
    /// SHA-256. The token itself is not stored.
    package var digest: [UInt8]
    package var isReadOnly: Bool
    package var createdAt: Instant

    package init(
        app: String,
        name: String,
        digest: [UInt8],
        isReadOnly: Bool,
        createdAt: Instant = .now()
    ) {
        self.app = app
        self.name = name
        self.digest = digest
        self.isReadOnly = isReadOnly
        self.createdAt = createdAt
    }

    static let columns = "app, name, digest, read_only, created_at"

    init(_ row: PostgresRow) throws {
        app = try row.text("app")
        name = try row.text("name")
        digest = try row.bytes("digest")
        isReadOnly = try row.boolean("read_only")
        createdAt = try row.instant("created_at")
    }
}

package struct ConfigTokenStore: Sendable {
    let database: Database

    /// The limit of an app's tokens.
    package static let maximumTokens = 100

    /// - Throws: `StorageError` of kind `conflict` if the app has a token of this name, the token
    ///   is in use, or the app has too many tokens.
    package func create(_ token: StoredConfigToken) async throws {
        do {
            try await database.transaction { transaction in
                let added = try await transaction.execute(
                    """
                    INSERT INTO config_tokens (\(StoredConfigToken.columns))
                    SELECT $1, $2, $3, $4, $5 WHERE (SELECT count(*) FROM config_tokens
                        WHERE app = $1) < \(Self.maximumTokens)
                    """,
                    [
                        .text(token.app), .text(token.name), .bytes(token.digest),
                        .boolean(token.isReadOnly), .timestamp(token.createdAt.microseconds),
                    ]
                )
                guard added.affectedRows == 1 else {
                    throw StorageError(
                        .conflict,
                        "the app has \(Self.maximumTokens) config tokens: remove some first"
                    )
                }
                try await notifyAppChanged(token.app, transaction)
            }
        } catch let error as StorageError where error.sqlState == "23505" {
            throw StorageError(
                .conflict,
                "the app has a config token of this name, or this token is in use",
                sqlState: error.sqlState
            )
        }
    }

    /// Whether any app has the token.
    package func isKnown(_ digest: [UInt8]) async throws -> Bool {
        try await database.execute(
            "SELECT 1 FROM config_tokens WHERE digest = $1",
            [.bytes(digest)]
        ).first != nil
    }

    /// Returns an app's tokens, by name.
    package func list(_ app: String) async throws -> [StoredConfigToken] {
        try await database.execute(
            "SELECT \(StoredConfigToken.columns) FROM config_tokens WHERE app = $1 ORDER BY name",
            [.text(app)]
        ).rows.map(StoredConfigToken.init)
    }

    /// - Returns: Whether the token existed.
    package func remove(_ app: String, name: String) async throws -> Bool {
        try await database.transaction { transaction in
            let removed = try await transaction.execute(
                "DELETE FROM config_tokens WHERE app = $1 AND name = $2",
                [.text(app), .text(name)]
            )
            try await notifyAppChanged(app, transaction)
            return removed.affectedRows > 0
        }
    }
}
