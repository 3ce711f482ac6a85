import Cryptography
import InstallationStorage
import JSON
import PushCore
import PushStorage
import ServiceKit
import Storage
import StorageAdmin

extension Command {
    static let appCreate = Command(
        "app create <app>",
        "Create an app and print its keys once",
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
            StoredApp(id: id, appKey: appKey, masterKey: masterKey, by: keys)
        )
        try await context.audit("app create", id)
        return arguments.answer(
            ["id": .string(id), "appKey": .string(appKey), "masterKey": .string(masterKey)],
            """
            created the app \(id)
            app key:     \(appKey)
            master key:  \(masterKey)
            Keep them now: they are not shown again.
            """
        )
    }

    static let appList = Command(
        "app list",
        "List apps"
    ) { arguments, context in
        Listing(
            try await context.database().apps.list(),
            columns: [
                .members(shown), .cell { $0.id }, .cell { "created \($0.createdAt.iso8601)" },
            ],
            empty: "no apps; create one with carillon app create <app>"
        ).say(arguments)
    }

    static let appShow = Command(
        "app show <app>",
        "Show an app's settings, links and credentials, without secrets"
    ) { arguments, context in
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database)
        let credentials = try await database.credentials.list(app: app.id)
        let links = try await database.appLinks.list(app.id)
        let installations = try await database.installations.count(app: app.id)
        let opens = try await database.appOpens.counts(of: app.id, days: 7)
        var object = shown(app)
        object["installations"] = JSONValue(installations)
        object["credentials"] = .array(credentials.map { .object(shownCredential($0)) })
        object["links"] = .array(links.map { .object($0.json) })
        object["opens"] = .array(
            opens.map { day in
                [
                    "day": .string(day.day), "opens": JSONValue(day.opens),
                    "pushOpens": JSONValue(day.pushOpens),
                ]
            }
        )
        var rows = [
            ["app", app.id], ["created", app.createdAt.iso8601],
            ["installations", String(installations)],
        ]
        for line in AppSettings(app.settings).lines { rows.append(["setting", line]) }
        rows += credentials.map {
            ["credential", "\($0.platform.rawValue) \($0.name) \($0.summaryText)"]
        }
        if credentials.isEmpty {
            rows.append(["credential", "none: carillon credentials set …"])
        }
        for link in links { rows.append(["link", link.shown]) }
        // LeanCloud's old SDKs report these.
        for day in opens {
            rows.append(["opens", "\(day.day): \(day.opens), by a push \(day.pushOpens)"])
        }
        return arguments.answer(object, lines: rows)
    }

    static let appSet = Command(
        "app set <app> <name=value> …",
        "Change settings of an app, all or none; app show lists them"
    ) { arguments, context in
        let texts = Array(arguments.operands.dropFirst())
        let change = try settings(texts)
        let database = try await context.database()
        let id = try await existing(try arguments.operand(0, "app"), database).id
        guard let app = try await database.apps.change(id, settings: change) else {
            throw try await noApp(id, database)
        }
        try await context.audit("app set", id, texts)
        return arguments.answer(shown(app), "\(app.id): \(texts.joined(separator: " "))")
    }

    /// Combines the changes of several `name=value`.
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

    /// Returns the app, or throws the failure that every command has for an unknown app.
    static func existing(_ id: String, _ database: PushDatabase) async throws -> StoredApp {
        // An invalid id is not queried: Postgres may be unable to store it.
        guard AppID.isWellFormed(id), let app = try await database.apps.find(id) else {
            throw try await noApp(id, database)
        }
        return app
    }

    /// Returns the failure for an unknown app, with the most similar id.
    static func noApp(_ id: String, _ database: PushDatabase) async throws -> CommandFailure {
        noApp(id, among: try await database.apps.list().map(\.id))
    }

    static func noApp(_ id: String, among ids: [String] = []) -> CommandFailure {
        CommandFailure("there is no app \(id)\(didYouMean(id, among: ids))")
    }

    private static func shown(_ app: StoredApp) -> JSONObject {
        [
            "id": .string(app.id), "createdAt": .string(app.createdAt.iso8601),
            "settings": .object(
                JSONObject(AppSettings(app.settings).shown.map { ($0.name, $0.value) })
            ),
        ]
    }

    /// Reads a key from a file, or makes a random one: 32 bytes, as 43 characters that are safe in a URL.
    static func key(
        _ option: String,
        _ arguments: Arguments,
        _ context: CommandContext
    ) throws -> String {
        guard let path = arguments.value(option) else { return Base64.encodeURL(randomBytes(32)) }
        let key = try context.line(ofFile: path, option)
        // In X-LC-Key a comma separates the key from "master", in Basic a colon the user from the password.
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
