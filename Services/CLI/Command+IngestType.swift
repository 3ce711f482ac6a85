import JSON
import JSONSchema
import Kafka
import PushCore
import PushEvents
import PushStorage
import ServiceKit
import Settings

extension Command {
    static let ingestTypePut = Command(
        words: ["ingest", "type", "put"],
        summary:
            "declares a type of objects that devices send, or widens it; makes topic and table",
        operands: ["app", "Type"],
        requiredOperands: 2,
        options: [
            .value("--schema", "<file>", "JSON Schema 2020-12, or Atlas' own schema; - is stdin"),
            .value(
                "--retention",
                "<days>",
                "how long its objects are kept, such as 90d; none: for ever. As it is without it"
            ),
            .value(
                "--subject",
                "<property>",
                "the text property that names whom an object is about, for erase and export; \"\":"
                    + " none. As it is without it"
            ),
            .flag("--dry-run", "say what would be done and change nothing"), json,
        ]
    ) { arguments, context in
        let name = try arguments.operand(1, "Type")
        if let problem = IngestTypeName.problem(name) { throw ArgumentsError(problem) }
        let schema = try schema(arguments, of: name)
        let retention = try retention(arguments)
        let subject = try arguments.value("--subject").map { try Self.subject($0, of: schema) }
        // Read first: nothing is half done because of a variable.
        let (kafka, partitions) = (try context.kafka(), try context.partitions())
        let topic = try context.topics().ingest(name)
        let database = try await context.database()
        let app = try await open(try arguments.operand(0, "app"), database).id
        let current = try await database.ingestTypes.find(name, of: app)
        let change = IngestTypeChange(
            app: app,
            name: name,
            schema: schema,
            current: current,
            retentionDays: retention ?? current?.retentionDays,
            subject: subject ?? current?.subjects.first
        )
        if let error = try change.narrowing() {
            throw CommandFailure(
                "\(name) stays at version \(change.version(of: current)), as this takes less than it:"
                    + " \(error.description)"
            )
        }
        if let subject = change.subject { _ = try Self.subject(subject, of: schema) }
        if let other = try await confused(name, database) {
            throw CommandFailure(
                "there is a type \(other), and Kafka would confuse the topics of the two"
            )
        }
        if arguments.has("--dry-run") {
            let cluster = try await KafkaAdmin.describe(kafka, on: context.loop)
            let isMissing = !cluster.topics.contains { $0.name == topic }
            let view = try await view(of: change, database)
            say(change, topic, isNew: isMissing, view, isRehearsal: true, arguments)
            return 0
        }
        // Before the type is there: one that is declared has its topic.
        let created = try await KafkaAdmin.ensureTopics(
            [(name: topic, partitions: partitions)],
            kafka,
            on: context.loop
        )
        var stored = current
        if change.isChange {
            do {
                stored = try await database.ingestTypes.put(
                    change.new,
                    expecting: current?.version ?? 0
                )
            } catch let conflict as IngestTypeConflict {
                throw CommandFailure(conflict.description)
            }
            try await context.audit(
                "ingest type put",
                app: app,
                targets: ["type:\(name)", "version:\(change.nextVersion)"]
            )
        }
        let view =
            if let stored {
                try await database.ingestTypes.view(of: stored, app: app)
            } else {
                ""
            }
        say(change, topic, isNew: !created.isEmpty, view, isRehearsal: false, arguments)
        return 0
    }

    static let ingestTypeList = Command(
        words: ["ingest", "type", "list"],
        summary: "lists the types of objects that an app's devices may send",
        operands: ["app"],
        requiredOperands: 1,
        options: [json]
    ) { arguments, context in
        let topics = try context.topics()
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        var rows = [["TYPE", "VERSION", "KEPT", "SUBJECT", "VIEW"]]
        var objects: [JSONValue] = []
        for type in try await database.ingestTypes.list(of: app) {
            let view = try await database.ingestTypes.view(of: type, app: app)
            objects.append(.object(type.json(view: view, topics)))
            rows.append([
                type.name, type.versionText, type.retentionText, type.subjectText, view,
            ])
        }
        if arguments.has("--json") {
            Terminal.say(.array(objects))
        } else {
            Terminal.say(Terminal.table(rows))
        }
        return 0
    }

    static let ingestTypeShow = Command(
        words: ["ingest", "type", "show"],
        summary: "shows a type with its schema, and the view that its objects are read from",
        operands: ["app", "Type"],
        requiredOperands: 2,
        options: [json]
    ) { arguments, context in
        let name = try arguments.operand(1, "Type")
        let topics = try context.topics()
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        guard IngestTypeName.isWellFormed(name),
            let type = try await database.ingestTypes.find(name, of: app)
        else {
            let names = try await database.ingestTypes.list(of: app).map(\.name)
            throw CommandFailure("\(app) has no type \(name)\(didYouMean(name, among: names))")
        }
        let view = try await database.ingestTypes.view(of: type, app: app)
        let columns = try type.columns()
        if arguments.has("--json") {
            var object = type.json(view: view, topics)
            object["columns"] = .array(
                columns.map { ["name": .string($0.name), "type": .string($0.type.rawValue)] }
            )
            object["schema"] = type.schema ?? .null
            Terminal.say(.object(object))
            return 0
        }
        let texts = columns.map { "\($0.name) \($0.type.rawValue)" }
        Terminal.say(
            Terminal.table([
                ["type", type.name], ["view", view], ["table", type.table],
                ["topic", topics.ingest(type.name)], ["version", type.versionText],
                ["kept", type.retentionText], ["subject", type.subjectText],
                ["changed", type.updatedAt.iso8601],
                ["columns", texts.isEmpty ? "none of its own" : texts.joined(separator: ", ")],
            ])
        )
        if let schema = type.schema { Terminal.say("\n" + schema.indented) }
        return 0
    }

    // MARK: What these share

    private static func schema(_ arguments: Arguments, of name: String) throws -> ObjectSchema {
        guard let path = arguments.value("--schema") else {
            throw ArgumentsError("--schema is missing")
        }
        let bytes = readFile(
            path == "-" ? "/dev/stdin" : path,
            maximumBytes: ObjectSchema.maximumBytes
        )
        guard let bytes else {
            throw ArgumentsError(
                "--schema names a file that cannot be read, or is larger than"
                    + " \(ObjectSchema.maximumBytes >> 10) KiB: \(path)"
            )
        }
        do throws(SchemaError) {
            return try ObjectSchema(bytes, type: name)
        } catch {
            throw ArgumentsError("--schema \(path) cannot be used: \(error.description)")
        }
    }

    /// `.some(nil)`: for ever; `nil`: it is not said.
    private static func retention(_ arguments: Arguments) throws(ArgumentsError) -> Int?? {
        guard let text = arguments.value("--retention") else { return nil }
        return .some(try RetentionOption.days(text))
    }

    /// `.some(nil)` of the empty text: nobody is named.
    private static func subject(
        _ name: String,
        of schema: ObjectSchema
    ) throws(ArgumentsError) -> String? {
        if name.isEmpty { return nil }
        guard let property = schema.properties.first(where: { $0.name.isSame(as: name) }) else {
            let near = didYouMean(name, among: schema.properties.map(\.name))
            throw ArgumentsError("--subject: the schema has no property \(name)\(near)")
        }
        guard property.column == .text else {
            throw ArgumentsError("--subject: \(name) is no text, so it names nobody")
        }
        return name
    }

    /// A type of any app, or a built-in, that is nearly called so.
    private static func confused(
        _ name: String,
        _ database: PushDatabase
    ) async throws -> String? {
        let folded = IngestTypeName.folded(name)
        return try await database.ingestTypes.names().first {
            !$0.isSame(as: name) && IngestTypeName.folded($0) == folded
        }
    }

    private static func view(
        of change: IngestTypeChange,
        _ database: PushDatabase
    ) async throws -> String? {
        guard let current = change.current else { return nil }
        return try await database.ingestTypes.view(of: current, app: change.app)
    }

    private static func say(
        _ change: IngestTypeChange,
        _ topic: String,
        isNew isTopicNew: Bool,
        _ view: String?,
        isRehearsal: Bool,
        _ arguments: Arguments
    ) {
        guard !arguments.has("--json") else {
            return Terminal.say([
                "app": .string(change.app), "type": .string(change.name),
                "version": JSONValue(change.nextVersion),
                "changed": .bool(change.isChange), "dryRun": .bool(isRehearsal),
                "retentionDays": change.retentionDays.map { JSONValue($0) } ?? .null,
                "subject": change.subject.map { .string($0) } ?? .null,
                "kafkaTopic": .string(topic), "kafkaTopicCreated": .bool(isTopicNew),
                "view": view.map { .string($0) } ?? .null,
                "columns": .array(
                    change.columns.map {
                        ["name": .string($0.name), "type": .string($0.type.rawValue)]
                    }
                ),
            ])
        }
        Terminal.say(change.sentence(isRehearsal: isRehearsal))
        let made = isRehearsal ? "would be created" : "created"
        var rows = [["topic", topic + (isTopicNew ? ", \(made)" : "")]]
        rows.append(["view", view ?? "a new one"])
        rows.append([
            "columns",
            change.columns.map { "\($0.name) \($0.type.rawValue)" }.joined(separator: ", "),
        ])
        if isRehearsal { rows.append(["changed", "nothing: --dry-run"]) }
        Terminal.say(Terminal.table(rows))
    }
}
