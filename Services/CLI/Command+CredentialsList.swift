import Cryptography
import Glibc
import JSON
import PushCore
import PushProviders
import PushStorage
import ServiceKit

// What is kept of an app's credentials, whether it works, and how it goes away.

extension Command {
    static let credentialsList = Command(
        words: ["credentials", "list"],
        summary: "lists the credentials of all apps, or of one, without their secrets",
        operands: ["app"],
        options: [json]
    ) { arguments, context in
        let database = try await context.database()
        let app = arguments.operands.first
        if let app { _ = try await existing(app, database) }
        let credentials = try await database.credentials.list(app: app)
        if arguments.has("--json") {
            Terminal.say(.array(credentials.map { .object(shownCredential($0)) }))
        } else if credentials.isEmpty {
            Terminal.say("no credentials yet: carillon credentials set apns|fcm|wns|mpns <app> …")
        } else {
            var rows = [["APP", "PROVIDER", "FOR", "ENVIRONMENT", "DEFAULT", "SET", "WITH"]]
            for credential in credentials {
                rows.append([
                    credential.app, credential.platform.rawValue, label(credential),
                    environment(credential) ?? "-",
                    credential.platform == .apns && credential.isDefault ? "default" : "-",
                    credential.updatedAt.iso8601, words(credential),
                ])
            }
            Terminal.say(Terminal.table(rows))
        }
        return 0
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

    /// The topic, the project or the client.
    private static func label(_ credential: StoredCredential) -> String {
        let names = ["topic", "projectID", "clientID", "subject"]
        return names.compactMap { credential.summary[$0]?.string }.first ?? "-"
    }

    /// APNs takes a key, and today's certificates, in both; each installation says in which it is.
    private static func environment(_ credential: StoredCredential) -> String? {
        switch credential.platform {
        case .apns: "production, sandbox"
        case .fcm, .wns, .mpns: nil
        }
    }

    /// The rest of the summary: `keyID ABCDE12345, teamID FGHIJ67890`.
    private static func words(_ credential: StoredCredential) -> String {
        let rest = credential.summary.filter { $0.value.string != label(credential) }
        return rest.map { "\($0.key) \($0.value.string ?? $0.value.text)" }.joined(separator: ", ")
    }

    // MARK: Check

    static let credentialsCheck = Command(
        words: ["credentials", "check"],
        summary: "asks the providers whether they take an app's credentials; 1 where one does not",
        operands: ["app"],
        requiredOperands: 1,
        options: [json]
    ) { arguments, context in
        let keys = try context.masterKeys()
        let configuration = try context.providers()
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        let credentials = try await database.credentials.list(app: app)
        guard !credentials.isEmpty else {
            throw CommandFailure(
                "\(app) has no credentials: carillon credentials set apns|fcm|wns|mpns \(app) …"
            )
        }
        let providers = try ProviderDirectory(configuration, on: context.loop)
        var checked: [(credential: StoredCredential, verdict: CredentialVerdict)] = []
        for credential in credentials {
            checked.append((credential, await verdict(on: credential, keys, providers)))
        }
        providers.close()
        let isOK = checked.allSatisfy(\.verdict.isTaken)
        if arguments.has("--json") {
            let list = checked.map { credential, verdict -> JSONValue in
                var object = shownCredential(credential)
                object["status"] = verdict.isTaken ? "ok" : "failed"
                object["detail"] = .string(verdict.detail)
                return .object(object)
            }
            Terminal.say(["ok": .bool(isOK), "checks": .array(list)])
        } else {
            Terminal.say(
                Terminal.table(
                    checked.map { credential, verdict in
                        [
                            verdict.isTaken ? "ok" : "failed", credential.platform.rawValue,
                            label(credential), verdict.detail,
                        ]
                    }
                )
            )
        }
        return isOK ? 0 : 1
    }

    private static func verdict(
        on credential: StoredCredential,
        _ keys: KeyRing,
        _ providers: ProviderDirectory
    ) async -> CredentialVerdict {
        do {
            if let end = credential.end, end <= .now() {
                return CredentialVerdict(
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
            return CredentialVerdict(isTaken: false, detail: "\(error)")
        }
    }

    // MARK: Remove

    static let credentialsRemove = Command(
        words: ["credentials", "remove"],
        summary: "removes a credential: nothing is sent with it any more",
        operands: ["app", "provider"],
        requiredOperands: 2,
        options: [
            .value("--topic", "<bundle id>", "which of several, of APNs"),
            .flag("--yes", "do not ask"), json,
        ]
    ) { arguments, context in
        let name = try arguments.operand(1, "provider")
        guard let platform = Platform(rawValue: name) else {
            throw ArgumentsError("\"\(name)\" is no provider: apns, fcm, wns or mpns")
        }
        let topic = arguments.value("--topic")
        guard topic == nil || platform == .apns else {
            throw ArgumentsError("--topic goes with apns alone")
        }
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
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
                throw ArgumentsError("--yes is missing, and there is nobody to ask")
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
        try await context.audit(
            "credentials remove",
            app: app,
            targets: ["\(name) \(credential.name)"]
        )
        if arguments.has("--json") {
            Terminal.say(.object(shownCredential(credential)))
        } else {
            Terminal.say("removed \(words)")
            if credential.isDefault, all.count > 2 {
                Terminal.say(
                    "no topic is the default now: carillon credentials set apns \(app) --topic …"
                        + " --default"
                )
            }
        }
        return 0
    }
}

extension StoredCredential {
    /// When its certificate ends, where it has one.
    var end: Instant? { summary["notAfter"]?.string.flatMap(Instant.init(iso8601:)) }

    func opened(by keys: KeyRing) throws -> JSONObject {
        let opened = try keys.open(sealed, context: context)
        guard let secret = try JSONValue.parse(opened).object else {
            throw CommandFailure("what was sealed is no object")
        }
        return secret
    }
}
