import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Storage

extension Command {
    static let appFields = Command(
        "app fields <app>",
        "List the custom fields of an app's objects and their types",
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
            return Listing(
                fields,
                columns: fieldColumns,
                empty: "no custom fields; the first value saved in a field sets its type"
            ).say(arguments)
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
            throw ArgumentsError("several classes have a field \(name); choose one with --class")
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
            app.id,
            ["\(field.className).\(field.name)", field.type.text]
        )
        var object = Listing([field], columns: fieldColumns).object(field)
        object["did"] = "dropped"
        return arguments.answer(
            object,
            "\(field.className).\(field.name) held \(field.type.text): the next value decides"
        )
    }

    private static var fieldColumns: [Listing<FieldStore.StoredField>.Column] {
        [
            .text("class", \.className), .text("name", \.name), .text("type", \.type.text),
            .value("since", { .string($0.since.iso8601) }) { "since \($0.since.iso8601)" },
        ]
    }
}
