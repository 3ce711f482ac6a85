package import Cryptography
package import JSON
package import Postgres
package import PushCore

/// An app as it is stored. Its keys are sealed; readers open them with the key ring.
package struct StoredApp: Sendable, Equatable {
    package var id: String
    package var appKeySealed: [UInt8]
    /// SHA-256 of the app key, by which the app is found.
    package var appKeyDigest: [UInt8]
    package var masterKeySealed: [UInt8]
    package var masterKeyDigest: [UInt8]
    package var settings: JSONObject
    package var createdAt: Instant
    /// The number of dropped fields.
    package var fieldsVersionNumber = 0

    package init(
        id: String,
        appKeySealed: [UInt8],
        appKeyDigest: [UInt8],
        masterKeySealed: [UInt8],
        masterKeyDigest: [UInt8],
        settings: JSONObject = [:],
        createdAt: Instant = .now()
    ) {
        self.id = id
        self.appKeySealed = appKeySealed
        self.appKeyDigest = appKeyDigest
        self.masterKeySealed = masterKeySealed
        self.masterKeyDigest = masterKeyDigest
        self.settings = settings
        self.createdAt = createdAt
    }

    /// Makes a new app with these keys, which are sealed under the key ring.
    package init(id: String, appKey: String, masterKey: String, by keys: KeyRing) throws {
        let (appBytes, masterBytes) = (Array(appKey.utf8), Array(masterKey.utf8))
        self.init(
            id: id,
            appKeySealed: try keys.seal(appBytes, context: Self.appKeyContext(id)),
            appKeyDigest: sha256(appBytes),
            masterKeySealed: try keys.seal(masterBytes, context: Self.masterKeyContext(id)),
            masterKeyDigest: sha256(masterBytes)
        )
    }

    package var fieldsVersion: FieldsVersion {
        FieldsVersion(createdAt: createdAt, number: fieldsVersionNumber)
    }

    /// Whether it is being deleted (`AppStore.delete`): it has no keys any more, authenticates no
    /// client and sends nothing.
    package var isClosed: Bool { appKeySealed.isEmpty }

    /// Returns the context that the key is sealed for (the cipher's associated data); it opens with
    /// no other context.
    package static func appKeyContext(_ app: String) -> String { "app/\(app)/app-key" }
    package static func masterKeyContext(_ app: String) -> String { "app/\(app)/master-key" }
}

package struct AppStore: Sendable {
    package let database: Database

    package init(
        database: Database
    ) {
        self.database = database
    }

    static let columns = """
        id, app_key_sealed, app_key_digest, master_key_sealed, master_key_digest, settings,
        created_at, fields_version
        """

    package func list() async throws -> [StoredApp] {
        try await database.execute("SELECT \(Self.columns) FROM apps ORDER BY id").rows
            .map(Self.app)
    }

    package func find(_ id: String) async throws -> StoredApp? {
        try await database.execute(
            "SELECT \(Self.columns) FROM apps WHERE id = $1",
            [.text(id)]
        ).first.map(Self.app)
    }

    /// Sets some settings of an app, leaves its others, and notifies the dispatchers.
    ///
    /// - Returns: The changed app; `nil` if it does not exist.
    /// - Throws: `StorageError` of kind `conflict` if another app, or the app's stored payloads, forbid the change.
    package func change(_ id: String, settings: JSONObject) async throws -> StoredApp? {
        try await database.transaction { transaction in
            try await Self.checkSecure(id, settings, transaction)
            let changed = try await transaction.execute(
                """
                UPDATE apps SET settings = settings || $2::jsonb WHERE id = $1
                RETURNING \(Self.columns)
                """,
                [.text(id), .json(.object(settings))]
            )
            guard let app = try changed.first.map(Self.app) else { return nil }
            try await notifyAppChanged(id, transaction)
            return app
        }
    }

    /// Returns the app for callers of secure payloads that name no app.
    package func secureUnnamed() async throws -> StoredApp? {
        try await database.execute(
            "SELECT \(Self.columns) FROM apps WHERE \(Self.isUnnamed)"
        ).first.map(Self.app)
    }

    /// Whether an app lets in devices with tokens of Atlas today.
    package func hasRealmRescue() async throws -> Bool {
        let day = "settings->>'\(AppSettings.realmRescueName)'"
        return try await database.execute(
            """
            SELECT id FROM apps WHERE \(day) > to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD')
                AND \(day) <> 'off' LIMIT 1
            """
        ).first != nil
    }

    private static let isUnnamed = """
        settings->'\(AppSettings.secureUnnamedName)' = 'true'::jsonb
        """

    /// Checks a change for conflicts: another app may already be the one for callers that name no
    /// app, and stored payloads may have ids of the other form.
    private static func checkSecure(
        _ id: String,
        _ change: JSONObject,
        _ transaction: PostgresTransaction
    ) async throws {
        if change[AppSettings.secureUnnamedName]?.bool == true {
            let other = try await transaction.execute(
                "SELECT id FROM apps WHERE \(isUnnamed) AND id <> $1",
                [.text(id)]
            ).first?.text("id")
            if let other {
                throw StorageError(
                    .conflict,
                    "\(AppSettings.secureUnnamedName) is on for \(other), and one app only can be meant"
                )
            }
        }
        guard let form = change[AppSettings.secureIDsName] else { return }
        // This lock serializes the change with writers of payloads: either the next statement sees
        // the payload, or the writer sees the new form.
        let known = try await transaction.execute(
            "SELECT settings FROM apps WHERE id = $1 FOR UPDATE",
            [.text(id)]
        ).first?.json("settings").object
        guard let known, form.string != AppSettings(known).secureIDs.rawValue else { return }
        let keeps = try await transaction.execute(
            "SELECT EXISTS (SELECT FROM secure_payloads WHERE app = $1) AS keeps",
            [.text(id)]
        ).first?.boolean("keeps")
        guard keeps != true else {
            throw StorageError(
                .conflict,
                "\(AppSettings.secureIDsName) only changes while \(id) keeps no secure payload, not even"
                    + " the bare row of an expired one"
            )
        }
    }

    /// Returns the app with this SHA-256 of its app key: the current one, or a retired one that is still accepted.
    package func find(appKeyDigest: [UInt8]) async throws -> StoredApp? {
        try await database.execute(
            """
            SELECT \(Self.columns) FROM apps WHERE app_key_digest = $1
            UNION ALL
            SELECT \(Self.columns) FROM apps WHERE id IN (SELECT app FROM retired_keys
                WHERE kind = 'app' AND digest = $1 AND valid_until > now())
            LIMIT 1
            """,
            [.bytes(appKeyDigest)]
        ).first.map(Self.app)
    }

    /// Returns the ids that belong to apps which are not being deleted.
    package func known(among ids: Set<String>) async throws -> Set<String> {
        let result = try await database.execute(
            "SELECT id FROM apps WHERE id = ANY ($1::text[]) AND app_key_sealed <> ''",
            [.textArray(ids.sorted())]
        )
        return Set(try result.rows.map { try $0.text("id") })
    }

    static func app(_ row: PostgresRow) throws -> StoredApp {
        var app = StoredApp(
            id: try row.text("id"),
            appKeySealed: try row.bytes("app_key_sealed"),
            appKeyDigest: try row.bytes("app_key_digest"),
            masterKeySealed: try row.bytes("master_key_sealed"),
            masterKeyDigest: try row.bytes("master_key_digest"),
            settings: try row.json("settings").object ?? [:],
            createdAt: try row.instant("created_at")
        )
        app.fieldsVersionNumber = try row.integer("fields_version")
        return app
    }
}

/// Makes services reload the app.
package func notifyAppChanged(_ app: String, _ transaction: PostgresTransaction) async throws {
    _ = try await transaction.execute(
        "SELECT pg_notify('\(NotifyChannel.credentials.rawValue)', $1)",
        [.text(app)]
    )
}

extension PostgresRow {
    package func instant(_ column: PostgresColumn) throws(PostgresError) -> Instant {
        Instant(microseconds: try timestampMicroseconds(column))
    }

    package func instantOrNil(_ column: PostgresColumn) throws(PostgresError) -> Instant? {
        try timestampMicrosecondsOrNil(column).map(Instant.init(microseconds:))
    }
}
