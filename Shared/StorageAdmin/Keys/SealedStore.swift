import Postgres
package import PushCore
import SecureStorage
package import Storage

/// One value that is sealed under a key of `CARILLON_MASTER_KEYS`.
package struct SealedValue: Sendable, Equatable {
    package enum Place: Sendable, Equatable {
        case appKey, masterKey
        case retiredKey(AppKeyKind, digest: [UInt8])
        case credential(Platform, name: String)
        case securePayload(id: String, identity: String)
        /// The client secret of a login of operators.
        case consoleLogin(name: String)
        /// The key of erasures, which belongs to no app.
        case erasureKey
    }

    package var app: String
    package var place: Place
    package var sealed: [UInt8]

    /// The context that it is sealed for.
    package var context: String {
        switch place {
        case .appKey: StoredApp.appKeyContext(app)
        case .masterKey: StoredApp.masterKeyContext(app)
        case .retiredKey(let kind, _): StoredApp.keyContext(app, kind)
        case .credential(let platform, let name):
            StoredCredential.context(app: app, platform: platform, name: name)
        case .securePayload(let id, let identity):
            SecurePayload.context(app: app, id: id, identity: identity)
        case .consoleLogin(let name): StoredConsoleLogin.context(app: app, name: name)
        case .erasureKey: ErasureKey.context
        }
    }

    /// Its name in messages, without its content.
    package var name: String {
        switch place {
        case .appKey: "the app key of \(app)"
        case .masterKey: "the master key of \(app)"
        case .retiredKey(let kind, _): "an older \(kind.rawValue) key of \(app)"
        case .credential(let platform, let name):
            "the \(platform.rawValue) credential \(name) of \(app)"
        case .securePayload(let id, _): "the secure payload \(id) of \(app)"
        case .consoleLogin(let name): "the client secret of the console login \(name) of \(app)"
        case .erasureKey: "the key of erased names"
        }
    }
}

/// All sealed values, in all tables, to seal them again under another key. Contents of secure payloads are
/// not in `all`: they are read in pages.
package struct SealedStore: Sendable {
    let database: Database

    /// Returns all sealed values, app by app. With hundreds of apps, there are some hundreds of
    /// values.
    package func all() async throws -> [SealedValue] {
        var values: [SealedValue] = []
        for app in try await AppStore(database: database).list() where !app.isClosed {
            values.append(SealedValue(app: app.id, place: .appKey, sealed: app.appKeySealed))
            values.append(SealedValue(app: app.id, place: .masterKey, sealed: app.masterKeySealed))
        }
        let retired = try await database.execute(
            "SELECT app, kind, digest, sealed FROM retired_keys ORDER BY app, kind, valid_until"
        )
        for row in retired.rows {
            guard let kind = AppKeyKind(rawValue: try row.text("kind")) else { continue }
            values.append(
                SealedValue(
                    app: try row.text("app"),
                    place: .retiredKey(kind, digest: try row.bytes("digest")),
                    sealed: try row.bytes("sealed")
                )
            )
        }
        values += try await CredentialStore(database: database).list().map { credential in
            SealedValue(
                app: credential.app,
                place: .credential(credential.platform, name: credential.name),
                sealed: credential.sealed
            )
        }
        values += try await ConsoleLoginStore(database: database).list().compactMap { login in
            login.clientSecretSealed.map { sealed in
                SealedValue(app: login.app, place: .consoleLogin(name: login.name), sealed: sealed)
            }
        }
        let erasureKey = try await database.execute("SELECT sealed FROM erasure_key")
        values += try erasureKey.rows.map { row in
            SealedValue(app: "", place: .erasureKey, sealed: try row.bytes("sealed"))
        }
        return values
    }

    /// Replaces a value by the same content, sealed under another key.
    ///
    /// - Returns: False if it was changed meanwhile: then it is already sealed under the current key.
    package func replace(_ value: SealedValue, by sealed: [UInt8]) async throws -> Bool {
        let (sql, parameters) = Self.replacement(of: value, by: sealed)
        return try await database.execute(sql, parameters).affectedRows == 1
    }

    static func replacement(
        of value: SealedValue,
        by sealed: [UInt8]
    ) -> (sql: String, parameters: [PostgresValue]) {
        let known: [PostgresValue] = [.text(value.app), .bytes(value.sealed), .bytes(sealed)]
        let (sql, more): (String, [PostgresValue]) =
            switch value.place {
            case .appKey:
                (
                    "UPDATE apps SET app_key_sealed = $3 WHERE id = $1 AND app_key_sealed = $2",
                    []
                )
            case .masterKey:
                (
                    """
                    UPDATE apps SET master_key_sealed = $3 WHERE id = $1 AND master_key_sealed = $2
                    """, []
                )
            case .retiredKey(let kind, let digest):
                (
                    """
                    UPDATE retired_keys SET sealed = $3
                    WHERE app = $1 AND sealed = $2 AND kind = $4 AND digest = $5
                    """, [.text(kind.rawValue), .bytes(digest)]
                )
            case .credential(let platform, let name):
                (
                    """
                    UPDATE credentials SET sealed = $3
                    WHERE app = $1 AND sealed = $2 AND provider = $4 AND name = $5
                    """, [.text(platform.rawValue), .text(name)]
                )
            case .securePayload(let id, _):
                (
                    """
                    UPDATE secure_payloads SET content = $3
                    WHERE app = $1 AND content = $2 AND id = $4
                    """, [.text(id)]
                )
            case .consoleLogin(let name):
                (
                    """
                    UPDATE console_logins SET client_secret_sealed = $3
                    WHERE app = $1 AND client_secret_sealed = $2 AND name = $4
                    """, [.text(name)]
                )
            case .erasureKey:
                (
                    """
                    UPDATE erasure_key SET sealed = $3 WHERE $1::text = '' AND sealed = $2
                    """, []
                )
            }
        return (sql, known + more)
    }
}
