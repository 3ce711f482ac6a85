import Cryptography
import Glibc
import JSON
import PushCore
import PushProviders
import ServiceKit
import Storage

// Commands that list, check and remove an app's stored credentials.

extension Command {
    static let credentialsList = Command(
        "credentials list [<app>]",
        "List the credentials of all apps or of one, without secrets"
    ) { arguments, context in
        let database = try await context.database()
        let app = arguments.operands.first
        if let app { _ = try await existing(app, database) }
        return Listing(
            try await database.credentials.list(app: app),
            columns: [
                .members(shownCredential), .cell("APP", \.app),
                .cell("PROVIDER", \.platform.rawValue), .cell("FOR", label),
                .cell("ENVIRONMENT") { environment($0) ?? "-" },
                .cell("DEFAULT") { $0.platform == .apns && $0.isDefault ? "default" : "-" },
                .cell("SET", \.updatedAt.iso8601), .cell("WITH", words),
            ],
            empty: "no credentials yet: carillon credentials set apns|fcm|wns|mpns <app> …"
        ).say(arguments)
    }

    static func shownCredential(_ credential: StoredCredential) -> JSONObject {
        var object: JSONObject = [
            "app": .string(credential.app), "provider": .string(credential.platform.rawValue),
            "name": .string(credential.name), "summary": .object(credential.summary),
            "updatedAt": .string(credential.updatedAt.iso8601),
        ]
        if credential.platform == .apns { object["default"] = .bool(credential.isDefault) }
        object["environment"] = environment(credential).map(JSONValue.string)
        return object
    }

    /// Returns the topic, the project or the client.
    private static func label(_ credential: StoredCredential) -> String {
        let names = ["topic", "projectID", "clientID", "subject"]
        return names.compactMap { credential.summary[$0]?.string }.first ?? "-"
    }

    /// Returns the environments. APNs accepts a key, and current certificates, in both
    /// environments; each installation names the environment that it uses.
    private static func environment(_ credential: StoredCredential) -> String? {
        switch credential.platform {
        case .apns: "production, sandbox"
        case .fcm, .wns, .mpns, .connection: nil
        }
    }

    /// Returns the rest of the summary: `keyID ABCDE12345, teamID FGHIJ67890`.
    private static func words(_ credential: StoredCredential) -> String {
        let rest = credential.summary.filter { $0.value.string != label(credential) }
        return rest.map { "\($0.key) \($0.value.string ?? $0.value.text)" }.joined(separator: ", ")
    }

    // MARK: Check

    static let credentialsCheck = Command(
        "credentials check <app>",
        "Check an app's credentials with the providers; exit 1 if one is rejected"
    ) { arguments, context in
        let keys = try context.masterKeys()
        let configuration = try context.providers()
        let (database, app) = try await context.existingApp(arguments)
        let credentials = try await database.credentials.list(app: app)
        guard !credentials.isEmpty else {
            throw CommandFailure(
                "\(app) has no credentials: carillon credentials set apns|fcm|wns|mpns \(app) …"
            )
        }
        let providers = try ProviderClients(configuration, on: context.loop)
        var checked: [(credential: StoredCredential, verdict: CredentialCheckResult)] = []
        for credential in credentials {
            checked.append((credential, await verdict(on: credential, keys, providers)))
        }
        providers.close()
        let isOK = checked.allSatisfy(\.verdict.isTaken)
        let listing = Listing(
            checked,
            columns: [
                .members { shownCredential($0.credential) },
                .text("status") { $0.verdict.isTaken ? "ok" : "failed" },
                .cell { $0.credential.platform.rawValue }, .cell { label($0.credential) },
                .text("detail", \.verdict.detail),
            ]
        )
        return arguments.answer(
            ["ok": .bool(isOK), "checks": listing.json],
            listing.table(),
            exitCode: isOK ? 0 : 1
        )
    }

    private static func verdict(
        on credential: StoredCredential,
        _ keys: KeyRing,
        _ providers: ProviderClients
    ) async -> CredentialCheckResult {
        do {
            if let end = credential.end, end <= .now() {
                return CredentialCheckResult(
                    isTaken: false,
                    detail: "its certificate ended \(end.iso8601)"
                )
            }
            return await providers.check(
                app: credential.app,
                credential.platform,
                name: credential.name,
                secret: try credential.opened(by: keys)
            )
        } catch {
            return CredentialCheckResult(isTaken: false, detail: "\(error)")
        }
    }

    // MARK: Remove

    static let credentialsRemove = Command(
        "credentials remove <app> <provider>",
        "Remove a credential",
        options: [
            .value("--topic", "<bundle id>", "which of several, of APNs"),
            .flag("--yes", "skip the confirmation"), json,
        ]
    ) { arguments, context in
        let name = try arguments.operand(1, "provider")
        guard let platform = Platform(rawValue: name) else {
            throw ArgumentsError("unknown provider \"\(name)\"; use apns, fcm, wns or mpns")
        }
        let topic = arguments.value("--topic")
        guard topic == nil || platform == .apns else {
            throw ArgumentsError("--topic goes with apns alone")
        }
        let (database, app) = try await context.existingApp(arguments)
        let all = try await database.credentials.list(app: app).filter { $0.platform == platform }
        let meant = topic.map { topic in all.filter { $0.name == topic } } ?? all
        guard let credential = meant.first else {
            throw CommandFailure(
                "\(app) has no \(name) credential" + (topic.map { " for \($0)" } ?? "")
            )
        }
        guard meant.count == 1 else {
            throw ArgumentsError(
                "--topic says which: \(meant.map(\.name).joined(separator: ", "))"
            )
        }
        let words = "the \(name) credential of \(app) for \(label(credential))"
        if !arguments.has("--yes") {
            guard isatty(STDIN_FILENO) == 1 else {
                throw ArgumentsError(
                    "credentials remove needs confirmation: run it in a terminal or pass --yes"
                )
            }
            Terminal.write("Remove \(words)? [y/N] ")
            guard ["y", "yes"].contains(readLine()?.lowercased()) else { return 1 }
        }
        guard
            try await database.credentials.remove(
                app: app,
                platform: platform,
                name: credential.name
            )
        else { throw CommandFailure("\(words) is gone already") }
        try await context.audit("credentials remove", app, ["\(name) \(credential.name)"])
        let next = "carillon credentials set apns \(app) --topic … --default"
        let note =
            credential.isDefault && all.count > 2 ? "\nno topic is the default now: \(next)" : ""
        return arguments.answer(shownCredential(credential), "removed \(words)\(note)")
    }
}

extension StoredCredential {
    func opened(by keys: KeyRing) throws -> JSONObject {
        let opened = try keys.open(sealed, context: context)
        guard let secret = try JSONValue.parse(opened).object else {
            throw CommandFailure("the stored credential is corrupt: not a JSON object")
        }
        return secret
    }
}
