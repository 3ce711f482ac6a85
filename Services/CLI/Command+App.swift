import Cryptography
import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let appCreate = Command(
        words: ["app", "create"],
        summary: "creates an app and prints its keys, this once",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            .value("--app-key-file", "<file>", "the app key that shipped clients carry"),
            .value("--master-key-file", "<file>", "the master key that backends carry"),
            json,
        ]
    ) { arguments, context in
        let id = try arguments.operand(0, "app")
        if let problem = AppID.problem(id) { throw ArgumentsError(problem) }
        let appKey = try key("--app-key-file", arguments, context)
        let masterKey = try key("--master-key-file", arguments, context)
        guard appKey != masterKey else {
            throw ArgumentsError("--app-key-file and --master-key-file hold the same key")
        }
        let keys = try context.masterKeys()
        let database = try await context.database()
        try await database.apps.create(
            StoredApp(
                id: id,
                appKeySealed: try keys.seal(
                    Array(appKey.utf8),
                    context: StoredApp.appKeyContext(id)
                ),
                appKeyDigest: sha256(Array(appKey.utf8)),
                masterKeySealed: try keys.seal(
                    Array(masterKey.utf8),
                    context: StoredApp.masterKeyContext(id)
                ),
                masterKeyDigest: sha256(Array(masterKey.utf8))
            )
        )
        try await context.audit("app create", app: id)
        if arguments.has("--json") {
            Terminal.say([
                "id": .string(id), "appKey": .string(appKey), "masterKey": .string(masterKey),
            ])
        } else {
            Terminal.say(
                """
                created the app \(id)
                app key:     \(appKey)
                master key:  \(masterKey)
                Keep them now: they are not shown again.
                """
            )
        }
        return 0
    }

    static let appList = Command(
        words: ["app", "list"],
        summary: "lists the apps",
        options: [json]
    ) { arguments, context in
        let apps = try await context.database().apps.list()
        if arguments.has("--json") {
            Terminal.say(.array(apps.map { .object(shown($0)) }))
        } else if apps.isEmpty {
            Terminal.say("no app yet: carillon app create <app>")
        } else {
            Terminal.say(Terminal.table(apps.map { [$0.id, "created \($0.createdAt.iso8601)"] }))
        }
        return 0
    }

    static let appShow = Command(
        words: ["app", "show"],
        summary: "shows an app and its credentials, no keys and no secrets",
        operands: ["app"],
        requiredOperands: 1,
        options: [json]
    ) { arguments, context in
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database)
        let credentials = try await database.credentials.list(app: app.id)
        let links = try await database.appLinks.list(app.id)
        let installations = try await database.installations.count(app: app.id)
        if arguments.has("--json") {
            var object = shown(app)
            object["installations"] = JSONValue(installations)
            object["credentials"] = .array(credentials.map { .object(shownCredential($0)) })
            object["links"] = .array(links.map { .object($0.json) })
            Terminal.say(.object(object))
            return 0
        }
        var rows = [
            ["app", app.id], ["created", app.createdAt.iso8601],
            ["installations", String(installations)],
        ]
        for line in AppSettings(app.settings).lines { rows.append(["setting", line]) }
        for credential in credentials {
            rows.append([
                "credential",
                "\(credential.platform.rawValue) \(credential.name) \(credential.summaryText)",
            ])
        }
        if credentials.isEmpty {
            rows.append(["credential", "none: carillon credentials set …"])
        }
        for link in links { rows.append(["link", link.shown]) }
        Terminal.say(Terminal.table(rows))
        return 0
    }

    static let appSet = Command(
        words: ["app", "set"],
        summary: "changes settings of an app, all of them or none; app show lists what there are",
        operands: ["app", "name=value"],
        requiredOperands: 2,
        repeatsLastOperand: true,
        options: [json]
    ) { arguments, context in
        let texts = Array(arguments.operands.dropFirst())
        let change = try settings(texts)
        let database = try await context.database()
        let id = try await existing(try arguments.operand(0, "app"), database).id
        guard let app = try await database.apps.change(id, settings: change) else {
            throw try await noApp(id, database)
        }
        try await context.audit("app set", app: id, targets: texts)
        if arguments.has("--json") {
            Terminal.say(.object(shown(app)))
        } else {
            Terminal.say("\(app.id): \(texts.joined(separator: " "))")
        }
        return 0
    }

    /// What `name=value`s change together.
    private static func settings(_ texts: [String]) throws -> JSONObject {
        var changes: JSONObject = [:]
        for text in texts {
            do throws(AppSettings.InvalidChange) {
                for (name, value) in try AppSettings.change(text) {
                    guard changes[name] == nil else {
                        throw AppSettings.InvalidChange(description: "\(name) is given twice")
                    }
                    changes[name] = value
                }
            } catch {
                let name = text.prefix { $0 != "=" }
                let near =
                    AppSettings.names.contains(String(name)) || !text.contains("=")
                    ? "" : didYouMean(String(name), among: AppSettings.names)
                throw ArgumentsError(error.description + near)
            }
        }
        return changes
    }

    /// The app, or the failure that every command has for a name of none.
    static func existing(_ id: String, _ database: PushDatabase) async throws -> StoredApp {
        // What no app may be called is not asked for: it may be no text for Postgres.
        guard AppID.isWellFormed(id), let app = try await database.apps.find(id) else {
            throw try await noApp(id, database)
        }
        return app
    }

    /// That no app is called this, and which one is nearly.
    static func noApp(_ id: String, _ database: PushDatabase) async throws -> CommandFailure {
        noApp(id, among: try await database.apps.list().map(\.id))
    }

    static func noApp(_ id: String, among ids: [String] = []) -> CommandFailure {
        CommandFailure("no app is called \(id)\(didYouMean(id, among: ids))")
    }

    private static func shown(_ app: StoredApp) -> JSONObject {
        [
            "id": .string(app.id), "createdAt": .string(app.createdAt.iso8601),
            "settings": .object(
                JSONObject(AppSettings(app.settings).shown.map { ($0.name, $0.value) })
            ),
        ]
    }

    /// A key of a file, or a random one: 32 bytes, as 43 characters that are safe in a URL.
    static func key(
        _ option: String,
        _ arguments: Arguments,
        _ context: CommandContext
    ) throws -> String {
        guard let path = arguments.value(option) else { return Base64.encodeURL(randomBytes(32)) }
        let key = try context.line(ofFile: path, option)
        // A comma parts the key from "master" in X-LC-Key, a colon user from password in Basic.
        guard (8...256).contains(key.utf8.count),
            key.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f && $0 != 0x2c && $0 != 0x3a })
        else {
            throw ArgumentsError(
                "\(option) must hold 8 to 256 printable characters, without ',' and ':'"
            )
        }
        return key
    }
}
