import Cryptography
import JSON
import Logins
import PushCore
import ServiceKit
import Storage

/// Logins of operators in the console, through OIDC issuers.
extension Command {
    static let consoleLoginSet = Command(
        "console login set <app> <name>",
        "Set an OIDC issuer for operators of the console",
        options: [
            .value("--issuer", "<url>", "the issuer: the claim iss of its tokens, over https"),
            .value("--client-id", "<id>", "the console's client id at the issuer"),
            .value(
                "--client-secret-file",
                "<file>",
                "its secret, one line; /dev/stdin reads it from the standard input"
            ),
            .values(
                "--role",
                "<role>=<value>",
                "a role (viewer, sender, admin) and the claim's value that gives it; default: each role's own name"
            ),
            .value(
                "--role-claim",
                "<name>",
                "the claim that holds the values; default carillon_role"
            ),
            .value(
                "--name-claim",
                "<name>",
                "the claim that names the person in the audit; default: email, else sub"
            ),
            .value("--scope", "<text>", "the scopes to request; default openid email profile"),
            .value(
                "--title",
                "<text>",
                "the text of the link on the sign-in page; default: the name"
            ),
            .flag("--unlisted", "show no link on the sign-in page; /console/sign-in/<name> works"),
            .flag("--dry-run", "ask the issuer and say what would be; change nothing"), json,
        ]
    ) { arguments, context in
        var login = try consoleLogin(arguments)
        let database = try await context.database()
        _ = try await open(login.app, database)
        if let path = arguments.value("--client-secret-file") {
            let secret = try context.line(ofFile: path, "--client-secret-file")
            login.clientSecretSealed = try context.masterKeys()
                .seal(Array(secret.utf8), context: login.context)
        }
        // Conflicts are reported before the issuer is called.
        _ = try await database.consoleLogins.set(login, isDryRun: true)
        let fetched = try await discover(&login, context)
        let isDryRun = arguments.has("--dry-run")
        let replaces = try await database.consoleLogins.set(login, isDryRun: isDryRun)
        if !isDryRun {
            // Then the service need not fetch them first.
            try await database.jwks.keep(
                login.jwksURL,
                fetched.set.json,
                freshFor: fetched.freshFor
            )
            try await context.audit("console login set", login.app, login.targets)
        }
        var object = login.json
        object["replaced"] = .bool(replaces)
        object["dryRun"] = .bool(isDryRun)
        let done = isDryRun ? "would set" : "set"
        let rest = replaces ? ", replacing the previous one and ending its sessions" : ""
        return arguments.answer(
            object,
            """
            \(done) the console login \(login.shown)\(rest)
            the redirect URI for the issuer is CONSOLE_URL and \(login.returnPath)
            """
        )
    }

    static let consoleLoginList = Command(
        "console login list <app>",
        "List the OIDC issuers for an app's console"
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        return Listing(
            try await database.consoleLogins.list(app),
            columns: [
                .members(\.json), .cell { $0.name }, .cell { $0.issuer }, .cell { $0.clientID },
                .cell { login in
                    let roles = login.roles.map { "\($0.value.rawValue)=\($0.key)" }.sorted()
                    return "\(login.roleClaim): \(roles.joined(separator: " "))"
                },
            ],
            empty: "no console login yet: carillon console login set \(app) <name>"
        ).say(arguments)
    }

    static let consoleLoginRemove = Command(
        "console login remove <app> <name>",
        "Remove an OIDC issuer from an app's console, and end its sessions"
    ) { arguments, context in
        let name = try arguments.operand(1, "name")
        let (database, app) = try await context.existingApp(arguments)
        let known = try await database.consoleLogins.list(app)
        guard try await database.consoleLogins.remove(app, name: name),
            let login = known.first(where: { $0.name == name })
        else {
            throw CommandFailure(
                "\(app) has no console login \(Terminal.short(name, 80))"
                    + didYouMean(name, among: known.map(\.name))
            )
        }
        try await context.audit("console login remove", app, login.targets)
        return arguments.answer(login.json, "removed the console login \(login.shown)")
    }

    // MARK: Options

    private static func consoleLogin(_ arguments: Arguments) throws -> StoredConsoleLogin {
        let name = try arguments.operand(1, "name")
        guard ConsoleLoginLimits.isName(name) else {
            throw ArgumentsError(
                "name takes 1 to 40 lower-case letters, digits and hyphens; it begins with no hyphen"
            )
        }
        func text(_ option: String, _ bytes: Int, default usual: String? = nil) throws -> String {
            let text = try usual.map { arguments.value(option) ?? $0 } ?? arguments.required(option)
            guard LoginLimits.isUsable(text, 1...bytes) else {
                throw ArgumentsError(
                    "\(option) takes 1 to \(bytes) bytes without control characters"
                )
            }
            return text
        }
        let issuer = try text("--issuer", LoginLimits.issuerBytes)
        guard issuer.hasPrefix("https://"), !issuer.contains(where: { "?#\\ ".contains($0) }) else {
            throw ArgumentsError("--issuer takes an https address without a query")
        }
        let scope = try text(
            "--scope",
            ConsoleLoginLimits.scopeBytes,
            default: ConsoleLoginLimits.usualScope
        )
        guard scope.split(separator: " ").contains("openid") else {
            throw ArgumentsError("--scope takes scopes of which one is openid")
        }
        let nameClaim =
            arguments.has("--name-claim") ? try text("--name-claim", LoginLimits.claimBytes) : nil
        return StoredConsoleLogin(
            name: name,
            app: try arguments.operand(0, "app"),
            title: try text("--title", ConsoleLoginLimits.titleBytes, default: name),
            issuer: issuer,
            clientID: try text("--client-id", LoginLimits.audienceBytes),
            authorizationURL: "",
            tokenURL: "",
            jwksURL: "",
            scope: scope,
            roleClaim: try text(
                "--role-claim",
                LoginLimits.claimBytes,
                default: ConsoleLoginLimits.usualRoleClaim
            ),
            roles: try roles(arguments.values("--role")),
            nameClaim: nameClaim,
            isListed: !arguments.has("--unlisted")
        )
    }

    private static func roles(_ texts: [String]) throws -> [String: OperatorRole] {
        guard !texts.isEmpty else {
            return Dictionary(
                uniqueKeysWithValues: OperatorRole.allCases.map { ($0.rawValue, $0) }
            )
        }
        guard texts.count <= ConsoleLoginLimits.roles else {
            throw ArgumentsError("--role may be given \(ConsoleLoginLimits.roles) times")
        }
        var roles: [String: OperatorRole] = [:]
        for text in texts {
            let parts = text.split(separator: "=", maxSplits: 1).map(String.init)
            guard parts.count == 2, let role = OperatorRole(rawValue: parts[0]),
                LoginLimits.isUsable(parts[1], 1...LoginLimits.claimBytes)
            else {
                throw ArgumentsError(
                    "--role takes viewer=<value>, sender=<value> or admin=<value>, not"
                        + " \(Terminal.short(text, 80))"
                )
            }
            guard roles.updateValue(role, forKey: parts[1]) == nil else {
                throw ArgumentsError("--role has the value \(Terminal.short(parts[1], 80)) twice")
            }
        }
        return roles
    }

    /// Asks the issuer for its addresses and its keys.
    private static func discover(
        _ login: inout StoredConsoleLogin,
        _ context: CommandContext
    ) async throws -> FetchedKeys {
        let jwks = try context.jwks()
        let issuer = Terminal.short(login.issuer, 200)
        switch await IssuerClient(jwks, on: context.loop).discover(login.issuer) {
        case .failure(let fault):
            throw CommandFailure("no addresses from \(issuer): \(fault.text)")
        case .success(let endpoints):
            login.authorizationURL = endpoints.authorizationURL
            login.tokenURL = endpoints.tokenURL
            login.jwksURL = endpoints.jwksURL
            login.isSecretInHeader = endpoints.isSecretInHeader
        }
        guard JWKSSource.permits(login.tokenURL, jwks) else {
            throw CommandFailure(
                "the token endpoint of \(issuer) may not be asked: add it to JWKS_HOSTS, here and"
                    + " at registration"
            )
        }
        switch await JWKSSource(jwks, on: context.loop).fetch(login.jwksURL) {
        case .success(let fetched): return fetched
        case .failure(let fault):
            throw CommandFailure(
                "no keys from \(Terminal.short(login.jwksURL, 200)): \(fault.text)"
            )
        }
    }
}

extension StoredConsoleLogin {
    /// The audit's targets: the name, the issuer and the client, and nothing else.
    fileprivate var targets: [String] {
        ["login:\(name)", "issuer:\(issuer)", "client:\(clientID)"]
    }

    fileprivate var shown: String {
        "\(name) of \(Terminal.short(issuer, 120)) for \(Terminal.short(clientID, 120)) to \(app)"
    }

    fileprivate var returnPath: String { "/console/sign-in/\(name)/return" }

    fileprivate var json: JSONObject {
        [
            "app": .string(app), "name": .string(name), "title": .string(title),
            "issuer": .string(issuer), "clientId": .string(clientID),
            "hasSecret": .bool(clientSecretSealed != nil),
            "authorizationUrl": .string(authorizationURL), "tokenUrl": .string(tokenURL),
            "jwksUrl": .string(jwksURL), "scope": .string(scope), "roleClaim": .string(roleClaim),
            "roles": rolesJSON, "nameClaim": nameClaim.map { .string($0) } ?? .null,
            "listed": .bool(isListed), "returnPath": .string(returnPath),
            "createdAt": .string(createdAt.iso8601),
        ]
    }
}
