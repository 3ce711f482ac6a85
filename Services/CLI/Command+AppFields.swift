import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let appFields = Command(
        words: ["app", "fields"],
        summary: "lists what the fields hold that the app added to its objects",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            .value("--drop", "<name>", "forget what a field holds: the next value decides"),
            .value("--class", "_Installation|_User", "of this class alone"),
            json,
        ]
    ) { arguments, context in
        let className = arguments.value("--class")
        if let className, !Where.classNames.contains(className) {
            throw ArgumentsError("--class takes _Installation or _User")
        }
        let id = try arguments.operand(0, "app")
        let database = try await context.database()
        let app = try await existing(id, database)
        let fields = try await database.fields.list(app: app.id).filter {
            className == nil || $0.className == className
        }
        guard let name = arguments.value("--drop") else {
            say(fields, arguments)
            return 0
        }
        let named = fields.filter { $0.name.utf8.elementsEqual(name.utf8) }
        guard let field = named.first else {
            throw CommandFailure(
                FieldType.fixed(name, of: className ?? "_Installation") == nil
                    ? "no field of \(app.id) is called \(name)"
                    : "\(name) is a field of Carillon's own, and holds what it does"
            )
        }
        guard named.count == 1 else {
            throw ArgumentsError("\(name) is a field of several classes: say which by --class")
        }
        guard
            try await database.fields.drop(
                app: app.id,
                className: field.className,
                name: field.name
            )
        else { throw CommandFailure("no field of \(app.id) is called \(name)") }
        try await context.audit(
            "app fields drop",
            app: app.id,
            targets: ["\(field.className).\(field.name)", field.type.text]
        )
        if arguments.has("--json") {
            var object = shown(field)
            object["did"] = "dropped"
            Terminal.say(.object(object))
        } else {
            Terminal.say(
                "\(field.className).\(field.name) held \(field.type.text): the next value decides"
            )
        }
        return 0
    }

    private static func say(_ fields: [FieldStore.StoredField], _ arguments: Arguments) {
        if arguments.has("--json") {
            Terminal.say(.array(fields.map { .object(shown($0)) }))
        } else if fields.isEmpty {
            Terminal.say("no field yet: the first value that is saved in one decides what it holds")
        } else {
            Terminal.say(
                Terminal.table(
                    fields.map {
                        [$0.className, $0.name, $0.type.text, "since \($0.since.iso8601)"]
                    }
                )
            )
        }
    }

    private static func shown(_ field: FieldStore.StoredField) -> JSONObject {
        [
            "class": .string(field.className), "name": .string(field.name),
            "type": .string(field.type.text), "since": .string(field.since.iso8601),
        ]
    }
}
