import IngestStorage
import JSON
import Postgres
import PushCore
package import Storage

extension AppStore {
    /// - Throws: `StorageError` of kind `conflict` if another app has the id (in any case) or the
    ///   app key, or if a project, or an app of Atlas, of this name is linked to another app.
    package func create(_ app: StoredApp) async throws {
        do {
            try await database.transaction { transaction in
                _ = try await transaction.execute(AppLinkStore.lock)
                let linked = try await transaction.execute(
                    "SELECT app FROM app_links WHERE kind = ANY ($1::text[]) AND name = $2",
                    [
                        .textArray([AppLinkKind.fcmProject, .atlasApp].map(\.rawValue)),
                        .text(app.id),
                    ]
                ).first?.text("app")
                if let linked {
                    throw StorageError(
                        .conflict,
                        "\(app.id) is a name that is linked to the app \(linked)"
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
}
