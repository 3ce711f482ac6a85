import Cryptography
import JSON
import Logins
import PushCore
import ServiceKit

extension Command {
    static let loginSet = Command(
        "login set <app>",
        "Set a JWT issuer for an app's identities after fetching its keys",
        options: loginOptions + [
            .value("--jwks-url", "<url>", "where the issuer publishes its keys, over https"),
            .value("--jwks-file", "<file>", "the issuer's keys, if it does not publish them"),
            .value("--identity-claim", "<name>", "the claim that holds the identity; default sub"),
            .value(
                "--identity-prefix",
                "<text>",
                "the text before the identity; each login except an app's first needs a prefix of its own"
            ),
            .flag("--dry-run", "look for the keys and say what would be; change nothing"), json,
        ]
    ) { arguments, context in
        var login = try login(arguments, of: try arguments.operand(0, "app"))
        let database = try await context.database()
        _ = try await open(login.app, database)
        // Conflicts are reported before the issuer is called.
        _ = try await database.logins.set(login, isDryRun: true)
        let fetched = try await keys(arguments, context)
        if login.url == nil { login.keys = .fixed(fetched.set.json) }
        let isDryRun = arguments.has("--dry-run")
        let replaces = try await database.logins.set(login, isDryRun: isDryRun)
        if !isDryRun {
            // Then the services need not fetch them first.
            if let url = login.url {
                try await database.jwks.keep(url, fetched.set.json, freshFor: fetched.freshFor)
            }
            try await context.audit("login set", login.app, login.targets)
        }
        var object = login.json
        object["replaced"] = .bool(replaces)
        object["dryRun"] = .bool(isDryRun)
        object["keys"] = .array(fetched.set.keys.map(\.summary))
        object["passedOver"] = .array(fetched.set.passedOver.map { .string($0) })
        let done = isDryRun ? "would set" : "set"
        let rest = replaces ? ", replacing the previous one" : ""
        return arguments.answer(
            object,
            "\(done) the login \(login.shown)\(rest)\n\(fetched.set.shown)"
        )
    }

    static let loginList = Command(
        "login list <app>",
        "List the JWT issuers of an app"
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        return Listing(
            try await database.logins.list(app),
            columns: [
                .members(\.json), .cell { $0.issuer }, .cell { $0.audience },
                .cell { login in
                    let (prefix, claim) = (login.identityPrefix, login.identityClaim)
                    return prefix.isEmpty ? claim : "\(prefix)<\(claim)>"
                },
                .cell { $0.url ?? "stored with its keys" },
            ],
            empty: "no login yet: carillon login set \(app)"
        ).say(arguments)
    }

    static let loginRemove = Command(
        "login remove <app>",
        "Remove a JWT issuer from an app",
        options: loginOptions + [json]
    ) { arguments, context in
        let (issuer, audience) = try issuerAndAudience(arguments)
        let (database, app) = try await context.existingApp(arguments)
        let known = try await database.logins.list(app)
        guard
            try await database.logins.remove(app, issuer: issuer, audience: audience),
            let login = known.first(where: { $0.isOf(issuer: issuer, audience: audience) })
        else {
            throw CommandFailure(
                "\(app) has no login of \(Terminal.short(issuer, 80)) for"
                    + " \(Terminal.short(audience, 80))"
                    + didYouMean(issuer, among: known.map(\.issuer))
            )
        }
        try await context.audit("login remove", app, login.targets)
        return arguments.answer(login.json, "removed the login \(login.shown)")
    }

    static let loginCheck = Command(
        "login check <app>",
        "Verify a token; print its identity, or why it is rejected",
        options: [.value("--token-file", "<file>", "a file that holds the token"), json]
    ) { arguments, context in
        let path = try arguments.required("--token-file")
        let token = try context.line(ofFile: path, "--token-file")
        let (database, app) = try await context.existingApp(arguments)
        let directory = LoginCache(
            database,
            JWKSSource(try context.jwks(), on: context.loop),
            on: context.loop
        )
        let refusal: (name: String, text: String)
        do {
            let reader = try await directory.reader(of: token, app: app)
            return arguments.answer(
                ["app": .string(app), "identity": .string(reader.identity)],
                "it proves the identity \(Terminal.short(reader.identity, 512))"
            )
        } catch let error as LoginRefusal {
            refusal =
                switch error {
                case .refused(let fault): (fault.metricLabel, fault.text)
                case .unavailable:
                    ("unavailable", "the issuer's keys are unavailable; see carillon doctor")
                }
        }
        guard arguments.has("--json") else {
            throw CommandFailure("\(app) rejects the token: \(refusal.text)")
        }
        Terminal.printLine([
            "app": .string(app), "refusal": .string(refusal.name), "reason": .string(refusal.text),
        ])
        return 1
    }

    // MARK: Shared

    private static let loginOptions: [Arguments.Option] = [
        .value("--issuer", "<text>", "the issuer: the claim iss of its tokens"),
        .value(
            "--audience",
            "<text>",
            "the audience: the claim aud of the tokens, or one of its values"
        ),
    ]

    private static func issuerAndAudience(
        _ arguments: Arguments
    ) throws -> (issuer: String, audience: String) {
        func text(_ name: String, _ bytes: Int) throws -> String {
            let text = try arguments.required(name)
            guard LoginLimits.isUsable(text, 1...bytes) else {
                throw ArgumentsError("\(name) takes 1 to \(bytes) bytes without control characters")
            }
            return text
        }
        return (
            try text("--issuer", LoginLimits.issuerBytes),
            try text("--audience", LoginLimits.audienceBytes)
        )
    }

    private static func login(_ arguments: Arguments, of app: String) throws -> StoredLogin {
        let (issuer, audience) = try issuerAndAudience(arguments)
        let claim = arguments.value("--identity-claim") ?? "sub"
        guard LoginLimits.isUsable(claim, 1...LoginLimits.claimBytes) else {
            throw ArgumentsError("--identity-claim takes 1 to \(LoginLimits.claimBytes) bytes")
        }
        let prefix = arguments.value("--identity-prefix") ?? ""
        guard LoginLimits.isUsable(prefix, 0...LoginLimits.prefixBytes) else {
            throw ArgumentsError(
                "--identity-prefix takes at most \(LoginLimits.prefixBytes) bytes without control"
                    + " characters"
            )
        }
        let (url, file) = (arguments.value("--jwks-url"), arguments.value("--jwks-file"))
        guard (url == nil) != (file == nil) else {
            throw ArgumentsError("one of --jwks-url and --jwks-file is to be given")
        }
        if let url, url.utf8.count > LoginLimits.urlBytes {
            throw ArgumentsError("--jwks-url takes at most \(LoginLimits.urlBytes) bytes")
        }
        return StoredLogin(
            app: app,
            issuer: issuer,
            audience: audience,
            keys: url.map { .url($0) } ?? .fixed(.null),
            identityClaim: claim,
            identityPrefix: prefix
        )
    }

    /// Fetches the issuer's keys, or reads them from the file.
    private static func keys(
        _ arguments: Arguments,
        _ context: CommandContext
    ) async throws -> FetchedKeys {
        if let path = arguments.value("--jwks-file") {
            let text = try context.file(path, "--jwks-file")
            switch JWKSSource.keys(in: Array(text.utf8)) {
            case .success(let set): return FetchedKeys(set: set, freshFor: .zero)
            case .failure(let fault):
                throw CommandFailure("--jwks-file cannot be used: \(fault.ofFile)")
            }
        }
        let url = arguments.value("--jwks-url") ?? ""
        switch await JWKSSource(try context.jwks(), on: context.loop).fetch(url) {
        case .success(let fetched): return fetched
        case .failure(let fault):
            throw CommandFailure("no keys from \(Terminal.short(url, 200)): \(fault.text)")
        }
    }
}

extension JWKSFault {
    /// The text for a file, which was not fetched.
    fileprivate var ofFile: String {
        switch self {
        case .noSet(let reason): "it holds no JWK set: \(reason)"
        case .noKeys(let reasons):
            "it holds no key for signatures" + (reasons.first.map { ": \($0)" } ?? "")
        case .notAllowed, .redirect, .status, .tooLarge, .timeout, .unreachable: text
        }
    }
}

extension StoredLogin {
    /// The audit's targets: the issuer and the audience, and nothing else.
    fileprivate var targets: [String] { ["issuer:\(issuer)", "audience:\(audience)"] }

    fileprivate var shown: String {
        "of \(Terminal.short(issuer, 120)) for \(Terminal.short(audience, 120)) to \(app)"
    }

    fileprivate var json: JSONObject {
        var object: JSONObject = [
            "app": .string(app), "issuer": .string(issuer), "audience": .string(audience),
            "identityClaim": .string(identityClaim), "identityPrefix": .string(identityPrefix),
            "createdAt": .string(createdAt.iso8601),
        ]
        if let url { object["jwksUrl"] = .string(url) }
        return object
    }
}

extension JWKSet.Key {
    fileprivate var summary: JSONValue {
        ["kid": kid.map { .string($0) } ?? .null, "alg": .string(key.algorithm.rawValue)]
    }
}

extension JWKSet {
    /// The accepted keys, and the ignored ones.
    fileprivate var shown: String {
        let found = keys.map { key in
            "\(key.key.algorithm.rawValue) \(key.kid.map { Terminal.short($0, 60) } ?? "without a name")"
        }
        var text = "\(keys.count) key(s): " + found.joined(separator: ", ")
        if !passedOver.isEmpty {
            text += "\n\(passedOver.count) passed over: " + passedOver.joined(separator: "; ")
        }
        return text
    }
}
