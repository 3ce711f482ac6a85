import JSON
import PushCore
import PushEvents
import PushStorage
import RemoteConfig
import ServiceKit
import Settings

extension Command {
    static let configGet = Command(
        words: ["config", "get"],
        summary: "prints a template of an app's remote config, as config put takes it",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            namespaceOption,
            .value("--version", "<n>", "that version; the current one without it"),
            .value("--output", "<file>", "write it there"),
            .flag("--json", "on one line"),
        ]
    ) { arguments, context in
        let namespace = try namespace(arguments)
        let version = try version(arguments)
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        var template = ConfigTemplate.empty.object
        if let stored = try await database.config.version(app, namespace.rawValue, version) {
            template = stored.template?.object ?? [:]
            template["version"] = .object(stored.json)
        } else if let version {
            throw CommandFailure("\(app) has no version \(version) that is kept and holds")
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
        words: ["config", "put"],
        summary: "publishes a template, where the version that it was made from is current",
        operands: ["app", "file"],
        requiredOperands: 2,
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
        let template: ConfigTemplate
        do throws(ConfigTemplateError) {
            template = try ConfigTemplate(json, namespace: namespace)
        } catch {
            throw CommandFailure("the template does not hold: \(error.description)")
        }
        let description = try description(arguments) ?? template.versionDescription
        let database = try await context.database()
        let app = try await open(try arguments.operand(0, "app"), database).id
        let current = try await database.config.head(app, namespace.rawValue).currentVersion
        if arguments.has("--validate-only") {
            return say(try source(of: json), of: app, current: current, arguments)
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
                record: record(app, namespace, topics)
            )
        } catch let mismatch as ConfigVersionMismatch {
            throw stale(mismatch)
        }
        try await tell("config put", stored, "published", arguments, context)
        return 0
    }

    static let configRollback = Command(
        words: ["config", "rollback"],
        summary: "publishes what an older version held, as a new one",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            namespaceOption,
            .value("--version", "<n>", "which one's; config versions lists them"), json,
        ]
    ) { arguments, context in
        let namespace = try namespace(arguments)
        guard let version = try version(arguments) else {
            throw ArgumentsError("--version is missing")
        }
        let database = try await context.database()
        let app = try await open(try arguments.operand(0, "app"), database).id
        let stored: StoredConfigVersion
        do {
            stored = try await database.config.rollBack(
                app,
                namespace.rawValue,
                to: version,
                by: CommandContext.configUser(of: app),
                record: record(app, namespace, try context.topics())
            )
        } catch let error as ConfigRollbackError {
            switch error {
            case .notFound:
                throw CommandFailure("\(app) has no version \(version) that is kept and holds")
            case .notOlder(let current):
                throw CommandFailure(
                    "a rollback is to a version before the current one, \(current)"
                )
            }
        }
        try await tell("config rollback", stored, "as version \(version) was", arguments, context)
        return 0
    }

    // MARK: What these share

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

    /// The app, where nobody is about to delete it.
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

    /// As large as what may be published over HTTP.
    private static let maximumTemplateBytes = 8 << 20

    private static func templateJSON(_ path: String) throws -> JSONValue {
        let bytes = readFile(
            path == "-" ? "/dev/stdin" : path,
            maximumBytes: maximumTemplateBytes
        )
        guard let bytes else {
            throw ArgumentsError(
                "<file> cannot be read, or is larger than \(maximumTemplateBytes) bytes: \(path)"
            )
        }
        do throws(JSONError) {
            return try JSONValue.parse(bytes)
        } catch {
            throw CommandFailure("the template is not JSON: \(error.description)")
        }
    }

    /// The version that a file was made from; `nil` where it names none.
    private static func source(of json: JSONValue) throws -> Int? {
        guard let number = json["version"]?["versionNumber"], !number.isNull else { return nil }
        guard let version = number.integer ?? number.string.flatMap({ Int($0) }),
            (0...ConfigStore.maximumVersion).contains(version)
        else {
            throw CommandFailure("the template does not hold: version: versionNumber is no number")
        }
        return version
    }

    /// What the file was made from is what is to be current.
    private static func expectedVersion(
        _ json: JSONValue,
        _ arguments: Arguments,
        current: Int
    ) throws -> ExpectedConfigVersion {
        if arguments.has("--force") { return .any }
        guard let version = try source(of: json) else {
            guard current == 0 else {
                throw CommandFailure(
                    "the file names no version that it was made from, and \(current) is current:"
                        + " take it from config get, or publish it with --force"
                )
            }
            return .version(0)
        }
        return .version(version)
    }

    /// What is checked alone may come from elsewhere, where other versions are current.
    private static func say(
        _ source: Int?,
        of app: String,
        current: Int,
        _ arguments: Arguments
    ) -> Int32 {
        let isCurrent = source ?? 0 == current
        if arguments.has("--json") {
            Terminal.say(["app": .string(app), "valid": true, "current": .bool(isCurrent)])
        } else {
            let rest = isCurrent ? "" : "; to publish it over version \(current) takes --force"
            Terminal.say("the template holds, and nothing is published\(rest)")
        }
        return 0
    }

    private static func stale(_ mismatch: ConfigVersionMismatch) -> CommandFailure {
        CommandFailure(
            "the file was made from version \(mismatch.expected), and \(mismatch.found) is current:"
                + " take it anew from config get, or publish it with --force"
        )
    }

    private static func record(
        _ app: String,
        _ namespace: ConfigNamespace,
        _ topics: KafkaTopics
    ) -> @Sendable (Int, ConfigUpdateType) -> OutgoingRecord {
        { version, type in
            ConfigPublished(
                project: app,
                namespace: namespace.rawValue,
                version: version,
                updateType: type.rawValue
            )
            .record(topics)
        }
    }

    private static func tell(
        _ action: String,
        _ stored: StoredConfigVersion,
        _ what: String,
        _ arguments: Arguments,
        _ context: CommandContext
    ) async throws {
        try await context.audit(
            action,
            app: stored.app,
            targets: ["\(stored.namespace) \(stored.version)"]
        )
        if arguments.has("--json") {
            Terminal.say(.object(stored.json))
        } else {
            Terminal.say("\(stored.app): version \(stored.version) of \(stored.namespace), \(what)")
        }
    }
}

extension CommandContext {
    /// Whoever runs the command, as versions of templates have him.
    static func configUser(of app: String) -> ConfigUser {
        let name = actor.drop { $0 != ":" }.dropFirst()
        return ConfigUser(name: actor, email: "\(name)@\(app)")
    }
}
