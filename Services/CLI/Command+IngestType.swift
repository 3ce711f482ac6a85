import IngestStorage
import JSON
import JSONSchema
import Kafka
import PushCore
import PushEvents
import ServiceKit
import Settings
import Storage

extension Command {
    static let ingestTypePut = Command(
        "ingest type put <app> <Type>",
        "Declare or widen an ingest type; create its topic and table",
        options: [
            .value("--schema", "<file>", "JSON Schema 2020-12, or Atlas' own schema; - is stdin"),
            .value(
                "--retention",
                "<days>",
                "retention of its objects, such as 90d; none: for ever; default: unchanged"
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
        // Read first, so that an invalid variable leaves nothing half done.
        let (kafka, partitions) = (try context.kafka(), try context.partitions())
        let topic = try context.topics().ingest(name)
        let (database, app) = try await context.openApp(arguments)
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
        if let other = try await topicConflict(name, database) {
            throw CommandFailure(
                "there is a type \(other), and Kafka would confuse the topics of the two"
            )
        }
        if arguments.has("--dry-run") {
            let cluster = try await KafkaAdmin.describe(kafka, on: context.loop)
            let isMissing = !cluster.topics.contains { $0.name == topic }
            let view = try await view(of: change, database)
            return answer(change, topic, isNew: isMissing, view, isDryRun: true, arguments)
        }
        // Created before the type is stored, so that each declared type has its topic.
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
                app,
                ["type:\(name)", "version:\(change.nextVersion)"]
            )
        }
        var view = ""
        if let stored { view = try await database.ingestTypes.view(of: stored, app: app) }
        let isNew = !created.isEmpty
        return answer(change, topic, isNew: isNew, view, isDryRun: false, arguments)
    }

    static let ingestTypeList = Command(
        "ingest type list <app>",
        "List an app's ingest types"
    ) { arguments, context in
        let topics = try context.topics()
        let (database, app) = try await context.existingApp(arguments)
        var types: [(type: StoredIngestType, view: String)] = []
        for type in try await database.ingestTypes.list(of: app) {
            types.append((type, try await database.ingestTypes.view(of: type, app: app)))
        }
        return Listing(
            types,
            columns: [
                .members { $0.type.json(view: $0.view, topics) }, .cell("TYPE", \.type.name),
                .cell("VERSION", \.type.versionText), .cell("KEPT", \.type.retentionText),
                .cell("SUBJECT", \.type.subjectText), .cell("VIEW", \.view),
            ]
        ).say(arguments)
    }

    static let ingestTypeShow = Command(
        "ingest type show <app> <Type>",
        "Show an ingest type with its schema and view"
    ) { arguments, context in
        let name = try arguments.operand(1, "Type")
        let topics = try context.topics()
        let (database, app) = try await context.existingApp(arguments)
        guard IngestTypeName.isWellFormed(name),
            let type = try await database.ingestTypes.find(name, of: app)
        else {
            let names = try await database.ingestTypes.list(of: app).map(\.name)
            throw CommandFailure("\(app) has no type \(name)\(didYouMean(name, among: names))")
        }
        let view = try await database.ingestTypes.view(of: type, app: app)
        let columns = try type.columns()
        var object = type.json(view: view, topics)
        object["columns"] = Self.json(columns)
        object["schema"] = type.schema ?? .null
        let texts = columns.map { "\($0.name) \($0.type.rawValue)" }
        let table = Terminal.table([
            ["type", type.name], ["view", view], ["table", type.table],
            ["topic", topics.ingest(type.name)], ["version", type.versionText],
            ["kept", type.retentionText], ["subject", type.subjectText],
            ["changed", type.updatedAt.iso8601],
            ["columns", texts.isEmpty ? "none of its own" : texts.joined(separator: ", ")],
        ])
        return arguments.answer(object, table + (type.schema.map { "\n\n" + $0.indented } ?? ""))
    }

    // MARK: Shared

    private static func schema(_ arguments: Arguments, of name: String) throws -> ObjectSchema {
        let path = try arguments.required("--schema")
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
        return try argument("--schema \(path) cannot be used: ") {
            try ObjectSchema(bytes, type: name)
        }
    }

    /// Returns the retention; `.some(nil)` for ever, `nil` if it is not given.
    private static func retention(_ arguments: Arguments) throws(ArgumentsError) -> Int?? {
        guard let text = arguments.value("--retention") else { return nil }
        return .some(try RetentionOption.days(text))
    }

    /// Returns the subject's property; `nil` for the empty string: the type names no subject.
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
            throw ArgumentsError("--subject: \(name) is not a string")
        }
        return name
    }

    /// Returns a type of any app, or a built-in type, whose topic Kafka could confuse with this
    /// type's topic.
    private static func topicConflict(
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

    private static func json(_ columns: [(name: String, type: IngestColumnType)]) -> JSONValue {
        .array(columns.map { ["name": .string($0.name), "type": .string($0.type.rawValue)] })
    }

    private static func answer(
        _ change: IngestTypeChange,
        _ topic: String,
        isNew isTopicNew: Bool,
        _ view: String?,
        isDryRun: Bool,
        _ arguments: Arguments
    ) -> Int32 {
        let texts = change.columns.map { "\($0.name) \($0.type.rawValue)" }
        let made = isDryRun ? "would be created" : "created"
        var rows = [
            ["topic", topic + (isTopicNew ? ", \(made)" : "")], ["view", view ?? "a new one"],
            ["columns", texts.joined(separator: ", ")],
        ]
        if isDryRun { rows.append(["changed", "nothing: --dry-run"]) }
        return arguments.answer(
            [
                "app": .string(change.app), "type": .string(change.name),
                "version": JSONValue(change.nextVersion),
                "changed": .bool(change.isChange), "dryRun": .bool(isDryRun),
                "retentionDays": change.retentionDays.map { JSONValue($0) } ?? .null,
                "subject": change.subject.map { .string($0) } ?? .null,
                "kafkaTopic": .string(topic), "kafkaTopicCreated": .bool(isTopicNew),
                "view": view.map { .string($0) } ?? .null, "columns": json(change.columns),
            ],
            change.sentence(isDryRun: isDryRun) + "\n" + Terminal.table(rows)
        )
    }
}
