import JSON
import Postgres
import Storage

package struct LoginStore: Sendable {
    let database: Database

    /// Sets a login, replacing the app's one for this issuer and audience, if there is one.
    ///
    /// - Parameters:
    ///   - login: The login to set.
    ///   - isDryRun: Only check whether it could be set.
    /// - Returns: Whether it replaces one.
    /// - Throws: `StorageError` of kind `conflict` if issuer and audience belong to another app,
    ///   the prefix does not fit beside those of the app's other logins, or there are too many.
    package func set(_ login: StoredLogin, isDryRun: Bool = false) async throws -> Bool {
        try await database.transaction { transaction in
            let known = try await Self.lock(login, transaction)
            let replaced = known.first {
                $0.isOf(issuer: login.issuer, audience: login.audience)
            }
            guard replaced.map({ $0.app == login.app }) ?? true else { throw Self.isOthers }
            let rest = known.filter { !$0.isOf(issuer: login.issuer, audience: login.audience) }
            guard rest.count < LoginLimits.loginsOfApp else {
                throw StorageError(
                    .conflict,
                    "the app has \(LoginLimits.loginsOfApp) logins: remove some first"
                )
            }
            if let problem = LoginPrefixes.problem(of: login, beside: rest, replacing: replaced) {
                throw StorageError(.conflict, problem)
            }
            if isDryRun { return replaced != nil }
            try await Self.write(login, transaction)
            try await Self.forgetUnused(transaction)
            try await notifyAppChanged(login.app, transaction)
            return replaced != nil
        }
    }

    private static let isOthers = StorageError(
        .conflict,
        "tokens of this issuer for this audience are another app's login"
    )

    /// Locks the app's row, so that of two concurrent calls the second sees the first one's login.
    ///
    /// - Returns: The app's logins, and the login of any app for the same issuer and audience.
    private static func lock(
        _ login: StoredLogin,
        _ transaction: PostgresTransaction
    ) async throws -> [StoredLogin] {
        let results = try await transaction.pipeline([
            ("SELECT id FROM apps WHERE id = $1 FOR NO KEY UPDATE", [.text(login.app)]),
            (
                """
                SELECT \(StoredLogin.columns) FROM logins
                WHERE app = $1 OR (issuer = $2 AND audience = $3)
                """,
                [.text(login.app), .text(login.issuer), .text(login.audience)]
            ),
        ])
        guard results[0].first != nil else {
            throw StorageError(.conflict, "there is no app \(login.app)")
        }
        return try results[1].rows.map(StoredLogin.init)
    }

    private static func write(
        _ login: StoredLogin,
        _ transaction: PostgresTransaction
    ) async throws {
        let (url, keys): (String?, JSONValue?) =
            switch login.keys {
            case .url(let url): (url, nil)
            case .fixed(let keys): (nil, keys)
            }
        let written = try await transaction.execute(
            """
            INSERT INTO logins AS l (app, issuer, audience, jwks_url, jwks, identity_claim,
                identity_prefix)
            VALUES ($1, $2, $3, $4, $5, $6, $7)
            ON CONFLICT (issuer, audience) DO UPDATE SET jwks_url = EXCLUDED.jwks_url,
                jwks = EXCLUDED.jwks, identity_claim = EXCLUDED.identity_claim,
                identity_prefix = EXCLUDED.identity_prefix
                WHERE l.app = EXCLUDED.app
            """,
            [
                .text(login.app), .text(login.issuer), .text(login.audience),
                .optional(text: url), .optional(json: keys), .text(login.identityClaim),
                .text(login.identityPrefix),
            ]
        )
        guard written.affectedRows == 1 else { throw isOthers }
    }

    /// Deletes the keys that no login uses any more.
    private static func forgetUnused(_ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(JWKSStore.forgetUnused)
    }

    /// Returns an app's logins, by issuer and audience.
    package func list(_ app: String) async throws -> [StoredLogin] {
        try await database.execute(
            """
            SELECT \(StoredLogin.columns) FROM logins WHERE app = $1 ORDER BY issuer, audience
            """,
            [.text(app)]
        ).rows.map(StoredLogin.init)
    }

    /// Returns all apps' logins, by app, issuer and audience.
    package func list() async throws -> [StoredLogin] {
        try await database.execute(
            "SELECT \(StoredLogin.columns) FROM logins ORDER BY app, issuer, audience"
        ).rows.map(StoredLogin.init)
    }

    /// Returns the apps that have a login for an issuer and one of these audiences.
    package func apps(issuer: String, audiences: [String]) async throws -> [String] {
        try await database.execute(
            """
            SELECT DISTINCT app FROM logins WHERE issuer = $1 AND audience = ANY ($2::text[])
            ORDER BY app LIMIT 2
            """,
            [.text(issuer), .textArray(audiences)]
        ).rows.map { try $0.text("app") }
    }

    /// - Returns: Whether there was such a login.
    package func remove(_ app: String, issuer: String, audience: String) async throws -> Bool {
        try await database.transaction { transaction in
            let removed = try await transaction.execute(
                "DELETE FROM logins WHERE app = $1 AND issuer = $2 AND audience = $3",
                [.text(app), .text(issuer), .text(audience)]
            )
            try await Self.forgetUnused(transaction)
            try await notifyAppChanged(app, transaction)
            return removed.affectedRows > 0
        }
    }
}
