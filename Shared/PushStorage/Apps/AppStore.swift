package import JSON
import Postgres
package import PushCore

/// An app as it is stored. Its keys are sealed; who must read one opens it with the key ring.
package struct StoredApp: Sendable, Equatable {
    package var id: String
    package var appKeySealed: [UInt8]
    /// SHA-256: finds an app by its key alone.
    package var appKeyDigest: [UInt8]
    package var masterKeySealed: [UInt8]
    package var masterKeyDigest: [UInt8]
    package var settings: JSONObject
    package var createdAt: Instant
    /// Counts the fields that were dropped.
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

    package var fieldsVersion: FieldsVersion {
        FieldsVersion(createdAt: createdAt, number: fieldsVersionNumber)
    }

    /// Whether it is being deleted (`AppStore.delete`): it has no keys any more, takes nobody in and
    /// sends nothing.
    package var isClosed: Bool { appKeySealed.isEmpty }

    /// What the keys are sealed for (the cipher's associated data): they open nowhere else.
    package static func appKeyContext(_ app: String) -> String { "app/\(app)/app-key" }
    package static func masterKeyContext(_ app: String) -> String { "app/\(app)/master-key" }
}

package struct AppStore: Sendable {
    let database: Database

    static let columns = """
        id, app_key_sealed, app_key_digest, master_key_sealed, master_key_digest, settings,
        created_at, fields_version
        """

    /// - Throws: `StorageError` of kind `conflict` where the id (without case) or the app key is
    ///   another app's, or the id is another's linked project.
    package func create(_ app: StoredApp) async throws {
        do {
            try await database.transaction { transaction in
                _ = try await transaction.execute(AppLinkStore.lock)
                let linked = try await transaction.execute(
                    "SELECT app FROM app_links WHERE kind = $1 AND name = $2",
                    [.text(AppLinkKind.fcmProject.rawValue), .text(app.id)]
                ).first?.text("app")
                if let linked {
                    throw StorageError(
                        .conflict,
                        "\(app.id) is the name of a project that is linked to the app \(linked)"
                    )
                }
                try await Self.insert(app, transaction)
                try await IngestTypeStore.makeBuiltInViews(of: app.id, transaction)
            }
        } catch let error as StorageError where error.sqlState == "23505" {
            throw Self.exists(sqlState: error.sqlState)
        }
    }

    private static func insert(
        _ app: StoredApp,
        _ transaction: PostgresTransaction
    ) async throws {
        let created = try await transaction.execute(
            """
            INSERT INTO apps (id, id_folded, app_key_sealed, app_key_digest, master_key_sealed,
                master_key_digest, settings, created_at)
            SELECT $1::text, $2::text, $3::bytea, $4::bytea, $5::bytea, $6::bytea, $7::jsonb,
                $8::timestamptz
            WHERE NOT EXISTS (SELECT FROM retired_keys
                WHERE kind = 'app' AND digest = $4 AND valid_until > now())
            """,
            [
                .text(app.id), .text(AppID.folded(app.id)), .bytes(app.appKeySealed),
                .bytes(app.appKeyDigest), .bytes(app.masterKeySealed),
                .bytes(app.masterKeyDigest), .json(.object(app.settings)),
                .timestamp(app.createdAt.microseconds),
            ]
        )
        guard created.affectedRows == 1 else { throw exists(sqlState: nil) }
    }

    private static func exists(sqlState: String?) -> StorageError {
        StorageError(
            .conflict,
            "an app with this id (case does not count) or this app key exists already",
            sqlState: sqlState
        )
    }

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

    /// Sets some settings of an app, leaves its others, and tells the dispatchers.
    ///
    /// - Returns: The app as it is then; `nil` where there is none.
    /// - Throws: `StorageError` of kind `conflict` for what another app, or what the app keeps, forbids.
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
            _ = try await transaction.execute(
                "SELECT pg_notify('\(StorageChannel.credentials.rawValue)', $1)",
                [.text(id)]
            )
            return app
        }
    }

    /// The app that callers of secure payloads mean who name none.
    package func secureUnnamed() async throws -> StoredApp? {
        try await database.execute(
            "SELECT \(Self.columns) FROM apps WHERE \(Self.isUnnamed)"
        ).first.map(Self.app)
    }

    private static let isUnnamed = """
        settings->'\(AppSettings.secureUnnamedName)' = 'true'::jsonb
        """

    /// What a setting must not change under: another app that is meant already, and payloads whose
    /// ids are of the other form.
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
        // Held against who keeps a payload: the next statement sees what he kept, or he sees the form.
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
                    + " the bare row of one that is over"
            )
        }
    }

    /// The app whose app key this is the SHA-256 of: the one in use, or one that is still accepted.
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

    /// Those of the ids that are apps, and not about to be deleted.
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

extension PostgresRow {
    func instant(_ column: PostgresColumn) throws(PostgresError) -> Instant {
        Instant(microseconds: try timestampMicroseconds(column))
    }

    func instantOrNil(_ column: PostgresColumn) throws(PostgresError) -> Instant? {
        try timestampMicrosecondsOrNil(column).map(Instant.init(microseconds:))
    }
}
