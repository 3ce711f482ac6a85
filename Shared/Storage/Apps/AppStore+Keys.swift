import Postgres
package import PushCore

/// One of an app's two keys. The raw values are those of the `retired_keys` table, and of
/// `carillon app rotate-key --key`.
package enum AppKeyKind: String, Sendable, CaseIterable {
    case app, master
}

/// A replaced key, accepted beside its successor until it expires.
package struct RetiredKey: Sendable, Equatable {
    package var kind: AppKeyKind
    package var sealed: [UInt8]
    package var validUntil: Instant
}

/// A key that replaces another.
package struct ReplacementKey: Sendable {
    package var kind: AppKeyKind
    package var sealed: [UInt8]
    /// SHA-256.
    package var digest: [UInt8]

    package init(kind: AppKeyKind, sealed: [UInt8], digest: [UInt8]) {
        self.kind = kind
        self.sealed = sealed
        self.digest = digest
    }
}

extension StoredApp {
    /// Returns the context that a key is sealed for.
    package static func keyContext(_ app: String, _ kind: AppKeyKind) -> String {
        switch kind {
        case .app: appKeyContext(app)
        case .master: masterKeyContext(app)
        }
    }
}

/// Rotation of an app's keys. At each moment the old key or the new key is accepted.
extension AppStore {
    /// The limit of retired keys of one kind that are accepted beside the current one.
    package static let maximumRetiredKeys = 4

    /// Returns the keys of an app that are still accepted beside the current ones.
    package func retiredKeys(_ id: String) async throws -> [RetiredKey] {
        try await database.execute(
            """
            SELECT kind, sealed, valid_until FROM retired_keys
            WHERE app = $1 AND valid_until > now() ORDER BY valid_until
            """,
            [.text(id)]
        ).rows.map { row in
            let name = try row.text("kind")
            guard let kind = AppKeyKind(rawValue: name) else {
                throw StorageError(.corrupt, "a retired key is of the unknown kind \(name)")
            }
            return RetiredKey(
                kind: kind,
                sealed: try row.bytes("sealed"),
                validUntil: try row.instant("valid_until")
            )
        }
    }

    /// Replaces the current key, which stays accepted until `oldValidUntil`, and notifies the
    /// services.
    ///
    /// - Parameters:
    ///   - id: The app.
    ///   - key: The new key.
    ///   - oldValidUntil: The end of the old key's validity; `nil`: it is refused at once.
    /// - Returns: Whether the app exists.
    /// - Throws: `StorageError` of kind `conflict` if the key is already a key of this app or, for
    ///   an app key, of another app; or if too many older keys are still accepted.
    package func rotate(
        _ id: String,
        to key: ReplacementKey,
        oldValidUntil: Instant?
    ) async throws -> Bool {
        do {
            return try await database.transaction { transaction in
                let found = try await transaction.execute(
                    """
                    SELECT \(Self.columns), (SELECT count(*) FROM retired_keys r
                        WHERE r.app = id AND r.kind = $2 AND r.valid_until > now()) AS retired
                    FROM apps WHERE id = $1 FOR UPDATE
                    """,
                    [.text(id), .text(key.kind.rawValue)]
                )
                guard let row = found.first else { return false }
                let app = try Self.app(row)
                guard !app.isClosed else {
                    throw StorageError(
                        .conflict,
                        "the app is being deleted: carillon app delete finishes it"
                    )
                }
                guard ![app.appKeyDigest, app.masterKeyDigest].contains(key.digest) else {
                    throw StorageError(.conflict, "this is a key of the app already")
                }
                let retired = try row.integer("retired")
                guard oldValidUntil == nil || retired < Self.maximumRetiredKeys else {
                    throw StorageError(
                        .conflict,
                        "\(Self.maximumRetiredKeys) older keys are still accepted: end them first,"
                            + " with --finish"
                    )
                }
                try await Self.replace(key, of: app, oldValidUntil, transaction)
                return true
            }
        } catch let error as StorageError where error.sqlState == "23505" {
            throw StorageError(
                .conflict,
                "this is a key of another app",
                sqlState: error.sqlState
            )
        }
    }

    private static func replace(
        _ key: ReplacementKey,
        of app: StoredApp,
        _ oldValidUntil: Instant?,
        _ transaction: PostgresTransaction
    ) async throws {
        // A retired key that is set again is not retired any more; a retired key of another app
        // belongs to that app until it expires.
        let others = try await transaction.pipeline([
            (
                "DELETE FROM retired_keys WHERE app = $1 AND kind = $2 AND digest = $3",
                [.text(app.id), .text(key.kind.rawValue), .bytes(key.digest)]
            ),
            ("DELETE FROM retired_keys WHERE valid_until <= now()", []),
            (
                "SELECT app FROM retired_keys WHERE kind = 'app' AND kind = $1 AND digest = $2",
                [.text(key.kind.rawValue), .bytes(key.digest)]
            ),
        ])
        guard others[2].isEmpty else {
            throw StorageError(.conflict, "this is a key of another app")
        }
        let (sealed, digest, column) =
            switch key.kind {
            case .app: (app.appKeySealed, app.appKeyDigest, "app_key")
            case .master: (app.masterKeySealed, app.masterKeyDigest, "master_key")
            }
        if let oldValidUntil {
            _ = try await transaction.execute(
                """
                INSERT INTO retired_keys (app, kind, digest, sealed, valid_until)
                VALUES ($1, $2, $3, $4, $5)
                """,
                [
                    .text(app.id), .text(key.kind.rawValue), .bytes(digest), .bytes(sealed),
                    .timestamp(oldValidUntil.microseconds),
                ]
            )
        }
        _ = try await transaction.pipeline([
            (
                "UPDATE apps SET \(column)_sealed = $2, \(column)_digest = $3 WHERE id = $1",
                [.text(app.id), .bytes(key.sealed), .bytes(key.digest)]
            ), notice(app.id),
        ])
    }

    /// Expires all older keys of one kind, and notifies the services.
    ///
    /// - Returns: How many older keys were still accepted.
    package func finishRotation(_ id: String, _ kind: AppKeyKind) async throws -> Int {
        try await database.transaction { transaction in
            let results = try await transaction.pipeline([
                (
                    """
                    DELETE FROM retired_keys WHERE app = $1 AND kind = $2
                    RETURNING valid_until > now() AS accepted
                    """, [.text(id), .text(kind.rawValue)]
                ), Self.notice(id),
            ])
            return try results[0].rows.count { try $0.boolean("accepted") }
        }
    }

    private static func notice(_ id: String) -> (sql: String, parameters: [PostgresValue]) {
        ("SELECT pg_notify('\(NotifyChannel.credentials.rawValue)', $1)", [.text(id)])
    }
}
