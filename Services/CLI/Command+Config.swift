import ConfigStorage
import JSON
import PushCore
import PushEvents
import RemoteConfig
import ServiceKit
import Settings
import Storage

extension Command {
    static let configGet = Command(
        "config get <app>",
        "Print a remote config template, as config put reads it",
        options: [
            namespaceOption,
            .value("--version", "<n>", "version; default: the current one"),
            .value("--output", "<file>", "write it there"),
            .flag("--json", "on one line"),
        ]
    ) { arguments, context in
        let namespace = try namespace(arguments)
        let version = try version(arguments)
        let (database, app) = try await context.existingApp(arguments)
        var template = ConfigTemplate.empty.object
        if let stored = try await database.config.version(app, namespace.rawValue, version) {
            template = stored.template?.object ?? [:]
            template["version"] = .object(stored.json)
        } else if let version {
            throw CommandFailure("\(app) has no valid stored version \(version)")
        } else {
            template["version"] = ["versionNumber": "0"]
        }
        let value = JSONValue.object(template)
        let text = (arguments.has("--json") ? value.text : value.indented) + "\n"
        if let path = arguments.value("--output") {
            guard Terminal.write(Array(text.utf8), toFile: path) else {
                throw CommandFailure("--output cannot be written: \(path)")
            }
        } else {
            Terminal.write(text)
        }
        return 0
    }

    static let configPut = Command(
        "config put <app> <file>",
        "Publish a template if the version it is based on is still current",
        options: [
            namespaceOption,
            .value("--description", "<text>", "of the version; without it the file's own"),
            .flag("--validate-only", "check it and publish nothing"),
            .flag("--force", "publish over whatever is current"),
            json,
        ]
    ) { arguments, context in
        let namespace = try namespace(arguments)
        let path = try arguments.operand(1, "file")
        let json = try templateJSON(path)
        let template = try content("the template is invalid: ") {
            try ConfigTemplate(json, namespace: namespace)
        }
        let description = try description(arguments) ?? template.versionDescription
        let (database, app) = try await context.openApp(arguments)
        let current = try await database.config.head(app, namespace.rawValue).currentVersion
        if arguments.has("--validate-only") {
            // A template that is only validated may come from elsewhere, with other current versions.
            let isCurrent = try source(of: json) ?? 0 == current
            let rest = isCurrent ? "" : "; to publish it over version \(current) takes --force"
            return arguments.answer(
                ["app": .string(app), "valid": true, "current": .bool(isCurrent)],
                "the template is valid; nothing was published\(rest)"
            )
        }
        let expected = try expectedVersion(json, arguments, current: current)
        let topics = try context.topics()
        let stored: StoredConfigVersion
        do {
            stored = try await database.config.publish(
                NewConfigVersion(
                    app: app,
                    namespace: namespace.rawValue,
                    template: template.object,
                    description: description,
                    user: CommandContext.configUser(of: app)
                ),
                expecting: expected,
                record: ConfigStore.records(of: app, namespace.rawValue, topics)
            )
        } catch let mismatch as ConfigVersionMismatch {
            throw CommandFailure(
                "the file was made from version \(mismatch.expected), and \(mismatch.found) is"
                    + " current: get it again with config get, or publish with --force"
            )
        }
        return try await tell("config put", stored, "published", arguments, context)
    }

    static let configRollback = Command(
        "config rollback <app>",
        "Publish the content of an older version as a new version",
        options: [
            namespaceOption,
            .value("--version", "<n>", "which one's; config versions lists them"), json,
        ]
    ) { arguments, context in
        let namespace = try namespace(arguments)
        guard let version = try version(arguments) else {
            throw ArgumentsError("--version is missing")
        }
        let (database, app) = try await context.openApp(arguments)
        let stored: StoredConfigVersion
        do {
            stored = try await database.config.rollBack(
                app,
                namespace.rawValue,
                to: version,
                by: CommandContext.configUser(of: app),
                record: ConfigStore.records(of: app, namespace.rawValue, try context.topics())
            )
        } catch let error as ConfigRollbackError {
            switch error {
            case .notFound:
                throw CommandFailure("\(app) has no valid stored version \(version)")
            case .notOlder(let current):
                throw CommandFailure(
                    "a rollback is to a version before the current one, \(current)"
                )
            }
        }
        let what = "as version \(version) was"
        return try await tell("config rollback", stored, what, arguments, context)
    }

    // MARK: Shared

    static let namespaceOption = Arguments.Option.value(
        "--namespace",
        ConfigNamespace.allCases.map(\.rawValue).joined(separator: "|"),
        "whose templates: clients', without it, or servers'"
    )

    static func namespace(_ arguments: Arguments) throws -> ConfigNamespace {
        guard let name = arguments.value("--namespace") else { return .firebase }
        guard let namespace = ConfigNamespace(rawValue: name) else {
            throw ArgumentsError("--namespace takes firebase or firebase-server")
        }
        return namespace
    }

    /// Returns the app, unless it is being deleted.
    static func open(_ id: String, _ database: PushDatabase) async throws -> StoredApp {
        let app = try await existing(id, database)
        guard !app.isClosed else {
            throw CommandFailure("\(id) is being deleted: carillon app delete \(id) finishes it")
        }
        return app
    }

    private static func version(_ arguments: Arguments) throws -> Int? {
        guard let text = arguments.value("--version") else { return nil }
        guard let version = Int(text), (1...ConfigStore.maximumVersion).contains(version) else {
            throw ArgumentsError("--version takes the number of a version")
        }
        return version
    }

    private static func description(_ arguments: Arguments) throws -> String? {
        guard let text = arguments.value("--description") else { return nil }
        guard text.unicodeScalars.count <= ConfigTemplate.maximumVersionDescriptionLength else {
            throw ArgumentsError(
                "--description takes \(ConfigTemplate.maximumVersionDescriptionLength) characters"
                    + " at most"
            )
        }
        return text
    }

    private static func templateJSON(_ path: String) throws -> JSONValue {
        let bytes = readFile(
            path == "-" ? "/dev/stdin" : path,
            maximumBytes: ConfigTemplate.maximumBytes
        )
        guard let bytes else {
            throw ArgumentsError(
                "<file> cannot be read, or is larger than \(ConfigTemplate.maximumBytes) bytes: \(path)"
            )
        }
        return try content("the template is not JSON: ") { try JSONValue.parse(bytes) }
    }

    /// Returns the version that a file was made from; `nil` if the file names no version.
    private static func source(of json: JSONValue) throws -> Int? {
        guard let number = json["version"]?["versionNumber"], !number.isNull else { return nil }
        guard let version = number.integer ?? number.string.flatMap({ Int($0) }),
            (0...ConfigStore.maximumVersion).contains(version)
        else {
            throw CommandFailure("the template is invalid: version: versionNumber must be a number")
        }
        return version
    }

    /// Returns the version that must be current: the version that the file was made from.
    private static func expectedVersion(
        _ json: JSONValue,
        _ arguments: Arguments,
        current: Int
    ) throws -> ExpectedConfigVersion {
        if arguments.has("--force") { return .any }
        let version = try source(of: json)
        guard version != nil || current == 0 else {
            throw CommandFailure(
                "the file has no version number, and \(current) is current; start from"
                    + " config get, or publish with --force"
            )
        }
        return .version(version ?? 0)
    }

    private static func tell(
        _ action: String,
        _ stored: StoredConfigVersion,
        _ what: String,
        _ arguments: Arguments,
        _ context: CommandContext
    ) async throws -> Int32 {
        try await context.audit(action, stored.app, ["\(stored.namespace) \(stored.version)"])
        return arguments.answer(
            stored.json,
            "\(stored.app): version \(stored.version) of \(stored.namespace), \(what)"
        )
    }
}

extension CommandContext {
    /// Returns the user who runs the command, in the form for versions of templates.
    static func configUser(of app: String) -> ConfigUser {
        let name = actor.drop { $0 != ":" }.dropFirst()
        return ConfigUser(name: actor, email: "\(name)@\(app)")
    }
}
