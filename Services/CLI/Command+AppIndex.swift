import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let appIndex = Command(
        words: ["app", "index"],
        summary: "keeps an index for range queries on a field that the app added itself",
        operands: ["app", "field"],
        requiredOperands: 1,
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
            say(try await database.fieldIndexes.list(app: app), arguments)
            return 0
        }
        let field = try arguments.operand(1, "field")
        let path: WherePath
        do throws(WhereError) {
            path = try WherePath(field)
        } catch {
            throw ArgumentsError(error.description)
        }
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
        if arguments.has("--json") {
            Terminal.say([
                "app": .string(stored.id), "field": .string(path.text), "type": .string(name),
                "did": .string(word),
            ])
        } else {
            Terminal.say("the index of \(path.text) as \(name): \(word)")
        }
        return 0
    }

    private static func say(_ indexes: [FieldIndexStore.Standing], _ arguments: Arguments) {
        if arguments.has("--json") {
            Terminal.say(
                .array(
                    indexes.map { standing in
                        [
                            "field": .string(standing.index.path.text),
                            "type": .string(standing.index.type.rawValue),
                            "isUsable": .bool(standing.isUsable),
                            "sizeBytes": JSONValue(standing.sizeBytes),
                        ]
                    }
                )
            )
        } else if indexes.isEmpty {
            Terminal.say("no index yet: carillon app index <app> <field>")
        } else {
            Terminal.say(
                Terminal.table(
                    indexes.map { standing in
                        [
                            standing.index.path.text, standing.index.type.rawValue,
                            standing.isUsable ? "usable" : "not usable: ask for it again",
                            "\(standing.sizeBytes) bytes",
                        ]
                    }
                )
            )
        }
    }
}
