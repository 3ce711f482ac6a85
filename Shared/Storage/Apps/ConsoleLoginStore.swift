package import JSON
import Postgres
package import PushCore

/// The rights of an operator in the console. Each role has the rights of those before it.
package enum OperatorRole: String, Sendable, CaseIterable {
    case viewer, sender, admin
}

/// An OIDC issuer through which operators sign in to one app's console.
package struct StoredConsoleLogin: Sendable, Equatable {
    /// A segment of the console's addresses, unique over all apps.
    package var name: String
    package var app: String
    /// The text of its link on the sign-in page.
    package var title: String
    /// The `iss` of its tokens.
    package var issuer: String
    /// The `aud` of its tokens.
    package var clientID: String
    /// Sealed under the key ring; `nil` for a public client.
    package var clientSecretSealed: [UInt8]?
    /// Whether the secret is sent by HTTP Basic; otherwise it is sent in the form.
    package var isSecretInHeader: Bool
    package var authorizationURL: String
    package var tokenURL: String
    package var jwksURL: String
    /// The scopes to request, separated by blanks.
    package var scope: String
    /// The claim that has the values of `roles`.
    package var roleClaim: String
    /// The role of each value of the claim.
    package var roles: [String: OperatorRole]
    /// The claim that names the person in the audit; `nil`: the verified email, else `sub`.
    package var nameClaim: String?
    /// Whether the sign-in page shows its link. Its address works anyway.
    package var isListed: Bool
    /// A UUID: a new one each time the login is set.
    package var stamp: String
    package var createdAt: Instant

    package init(
        name: String,
        app: String,
        title: String,
        issuer: String,
        clientID: String,
        clientSecretSealed: [UInt8]? = nil,
        isSecretInHeader: Bool = true,
        authorizationURL: String,
        tokenURL: String,
        jwksURL: String,
        scope: String = ConsoleLoginLimits.usualScope,
        roleClaim: String = ConsoleLoginLimits.usualRoleClaim,
        roles: [String: OperatorRole],
        nameClaim: String? = nil,
        isListed: Bool = true,
        stamp: String = "",
        createdAt: Instant = .now()
    ) {
        self.name = name
        self.app = app
        self.title = title
        self.issuer = issuer
        self.clientID = clientID
        self.clientSecretSealed = clientSecretSealed
        self.isSecretInHeader = isSecretInHeader
        self.authorizationURL = authorizationURL
        self.tokenURL = tokenURL
        self.jwksURL = jwksURL
        self.scope = scope
        self.roleClaim = roleClaim
        self.roles = roles
        self.nameClaim = nameClaim
        self.isListed = isListed
        self.stamp = stamp
        self.createdAt = createdAt
    }

    /// The context that its secret is sealed for (the cipher's associated data).
    package static func context(app: String, name: String) -> String {
        "console-logins/\(app)/\(name)"
    }

    package var context: String { Self.context(app: app, name: name) }

    static let columns = """
        name, app, title, issuer, client_id, client_secret_sealed, is_secret_in_header,
        authorization_url, token_url, jwks_url, scope, role_claim, roles, name_claim, is_listed,
        stamp::text AS stamp, created_at
        """

    init(_ row: PostgresRow) throws {
        name = try row.text("name")
        app = try row.text("app")
        title = try row.text("title")
        issuer = try row.text("issuer")
        clientID = try row.text("client_id")
        clientSecretSealed = try row.bytesOrNil("client_secret_sealed")
        isSecretInHeader = try row.boolean("is_secret_in_header")
        authorizationURL = try row.text("authorization_url")
        tokenURL = try row.text("token_url")
        jwksURL = try row.text("jwks_url")
        scope = try row.text("scope")
        roleClaim = try row.text("role_claim")
        roles = Self.roles(in: try row.json("roles"))
        nameClaim = try row.textOrNil("name_claim")
        isListed = try row.boolean("is_listed")
        stamp = try row.text("stamp")
        createdAt = try row.instant("created_at")
    }

    /// A role of a later version gives no rights.
    private static func roles(in json: JSONValue) -> [String: OperatorRole] {
        var roles: [String: OperatorRole] = [:]
        for (value, role) in json.object ?? [:] {
            roles[value] = role.string.flatMap(OperatorRole.init(rawValue:))
        }
        return roles
    }

    /// The roles as a JSON object, in the order of the values.
    package var rolesJSON: JSONValue {
        .object(
            JSONObject(
                roles.sorted { $0.key < $1.key }.map { ($0.key, .string($0.value.rawValue)) }
            )
        )
    }
}

/// Limits of a login of operators.
package enum ConsoleLoginLimits {
    package static let usualScope = "openid email profile"
    package static let usualRoleClaim = "carillon_role"
    package static let logins = 1000
    package static let titleBytes = 80
    package static let scopeBytes = 512
    package static let roles = 100

    /// Whether it is a name: 1 to 40 lower-case letters, digits and hyphens, beginning with a
    /// letter or a digit.
    package static func isName(_ text: String) -> Bool {
        (1...40).contains(text.utf8.count) && text.utf8.first != UInt8(ascii: "-")
            && text.utf8.allSatisfy { byte in
                (UInt8(ascii: "a")...UInt8(ascii: "z")).contains(byte)
                    || (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte)
                    || byte == UInt8(ascii: "-")
            }
    }
}

package struct ConsoleLoginStore: Sendable {
    let database: Database

    package init(database: Database) { self.database = database }

    /// Sets a login, replacing the app's one of this name, if there is one.
    ///
    /// - Returns: Whether it replaces one.
    /// - Throws: `StorageError` of kind `conflict` if the name belongs to another app, there is no
    ///   such app, or there are too many logins.
    package func set(_ login: StoredConsoleLogin, isDryRun: Bool = false) async throws -> Bool {
        try await database.transaction { transaction in
            // Of two concurrent calls the second sees the first one's login.
            let results = try await transaction.pipeline([
                ("SELECT id FROM apps WHERE id = $1 FOR NO KEY UPDATE", [.text(login.app)]),
                ("SELECT app FROM console_logins WHERE name = $1", [.text(login.name)]),
                ("SELECT count(*)::bigint AS count FROM console_logins", []),
            ])
            guard results[0].first != nil else {
                throw StorageError(.conflict, "there is no app \(login.app)")
            }
            let owner = try results[1].first?.text("app")
            guard owner == nil || owner == login.app else {
                throw StorageError(.conflict, "another app has a console login of this name")
            }
            let count = try results[2].first?.integer("count") ?? 0
            guard owner != nil || count < ConsoleLoginLimits.logins else {
                throw StorageError(
                    .conflict,
                    "there are \(ConsoleLoginLimits.logins) console logins: remove some first"
                )
            }
            if isDryRun { return owner != nil }
            try await Self.write(login, transaction)
            try await notifyAppChanged(login.app, transaction)
            return owner != nil
        }
    }

    private static func write(
        _ login: StoredConsoleLogin,
        _ transaction: PostgresTransaction
    ) async throws {
        let written = try await transaction.execute(
            """
            INSERT INTO console_logins AS l (name, app, title, issuer, client_id,
                client_secret_sealed, is_secret_in_header, authorization_url, token_url, jwks_url,
                scope, role_claim, roles, name_claim, is_listed, stamp, created_at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15,
                gen_random_uuid(), $16)
            ON CONFLICT (name) DO UPDATE SET title = EXCLUDED.title, issuer = EXCLUDED.issuer,
                client_id = EXCLUDED.client_id,
                client_secret_sealed = EXCLUDED.client_secret_sealed,
                is_secret_in_header = EXCLUDED.is_secret_in_header,
                authorization_url = EXCLUDED.authorization_url, token_url = EXCLUDED.token_url,
                jwks_url = EXCLUDED.jwks_url, scope = EXCLUDED.scope,
                role_claim = EXCLUDED.role_claim, roles = EXCLUDED.roles,
                name_claim = EXCLUDED.name_claim, is_listed = EXCLUDED.is_listed,
                stamp = EXCLUDED.stamp, created_at = EXCLUDED.created_at
            WHERE l.app = EXCLUDED.app
            """,
            [
                .text(login.name), .text(login.app), .text(login.title), .text(login.issuer),
                .text(login.clientID), .optional(bytes: login.clientSecretSealed),
                .boolean(login.isSecretInHeader), .text(login.authorizationURL),
                .text(login.tokenURL), .text(login.jwksURL), .text(login.scope),
                .text(login.roleClaim), .json(login.rolesJSON), .optional(text: login.nameClaim),
                .boolean(login.isListed),
                .timestamp(login.createdAt.microseconds),
            ]
        )
        guard written.affectedRows == 1 else {
            throw StorageError(.conflict, "another app has a console login of this name")
        }
    }

    /// Returns all logins, by name: at most `ConsoleLoginLimits.logins`.
    package func list() async throws -> [StoredConsoleLogin] {
        try await database.execute(
            "SELECT \(StoredConsoleLogin.columns) FROM console_logins ORDER BY name"
        ).rows.map(StoredConsoleLogin.init)
    }

    /// Returns an app's logins, by name.
    package func list(_ app: String) async throws -> [StoredConsoleLogin] {
        try await database.execute(
            "SELECT \(StoredConsoleLogin.columns) FROM console_logins WHERE app = $1 ORDER BY name",
            [.text(app)]
        ).rows.map(StoredConsoleLogin.init)
    }

    /// - Returns: Whether there was such a login.
    package func remove(_ app: String, name: String) async throws -> Bool {
        try await database.transaction { transaction in
            let removed = try await transaction.execute(
                "DELETE FROM console_logins WHERE app = $1 AND name = $2",
                [.text(app), .text(name)]
            )
            try await notifyAppChanged(app, transaction)
            return removed.affectedRows > 0
        }
    }
}
