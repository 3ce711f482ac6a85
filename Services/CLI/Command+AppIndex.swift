import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Storage

extension Command {
    static let appIndex = Command(
        "app index <app> [<field>]",
        "Manage indexes for range queries on custom fields",
        options: [
            .value("--type", "number|date|text", "what the field holds; number without it"),
            .flag("--list", "only list those that there are"),
            .flag("--drop", "drop it"),
            json,
        ]
    ) { arguments, context in
        let app = try arguments.operand(0, "app")
        let isList = arguments.has("--list")
        guard !isList || !arguments.has("--drop") else {
            throw ArgumentsError("--list does not go with --drop")
        }
        if isList {
            guard !arguments.has("--type") else {
                throw ArgumentsError("--type does not go with --list")
            }
            let database = try await context.database()
            _ = try await existing(app, database)
            return Listing(
                try await database.fieldIndexes.list(app: app),
                columns: [
                    .text("field", \.index.path.text), .text("type", \.index.type.rawValue),
                    .value("isUsable", { .bool($0.isUsable) }) {
                        $0.isUsable
                            ? "usable" : "invalid; run carillon app index again to rebuild it"
                    },
                    .value("sizeBytes", { JSONValue($0.sizeBytes) }) { "\($0.sizeBytes) bytes" },
                ],
                empty: "no index yet: carillon app index <app> <field>"
            ).say(arguments)
        }
        let field = try arguments.operand(1, "field")
        let path = try argument { try WherePath(field) }
        if let problem = FieldIndex.problem(path) {
            throw ArgumentsError("\(path.text) \(problem)")
        }
        let name = arguments.value("--type") ?? FieldIndex.ValueType.number.rawValue
        guard let type = FieldIndex.ValueType(rawValue: name) else {
            throw ArgumentsError("--type takes number, date or text")
        }
        let database = try await context.database()
        let stored = try await existing(app, database)
        let index = FieldIndex(app: stored.id, path: path, type: type)
        let word: String
        do {
            if arguments.has("--drop") {
                guard try await database.fieldIndexes.drop(index) else {
                    throw CommandFailure("there is no index of \(path.text) as \(name)")
                }
                word = "dropped"
            } else {
                word = try await database.fieldIndexes.create(index) ? "built" : "there already"
            }
        } catch let error as StorageError where error.kind == .conflict {
            throw CommandFailure(error.description)
        }
        return arguments.answer(
            [
                "app": .string(stored.id), "field": .string(path.text), "type": .string(name),
                "did": .string(word),
            ],
            "the index of \(path.text) as \(name): \(word)"
        )
    }
}
