import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let appDelete = Command(
        words: ["app", "delete"],
        summary: "erases an app: its keys and credentials, installations, pushes and deliveries",
        operands: ["app"],
        requiredOperands: 1,
        options: [.flag("--yes", "do not ask"), json]
    ) { arguments, context in
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        if !arguments.has("--yes") {
            guard Terminal.canAsk else {
                throw ArgumentsError("app delete asks on a terminal; without one it takes --yes")
            }
            let count = try await database.installations.count(app: app)
            let answer = Terminal.ask(
                "This erases the app \(app), its \(count) installations and all of its pushes, for"
                    + " ever.\nType its name to go on: "
            )
            guard answer == app else { throw CommandFailure("\(app) is left as it was") }
        }
        try await context.audit("app delete", app: app)
        let deletion: AppDeletion
        do {
            deletion = try await database.apps.delete(app)
        } catch AppDeletion.Refusal.isBeingSent {
            throw CommandFailure(
                "\(app) takes nobody in any more and its pushes are cancelled, but a dispatcher is"
                    + " still at work for it: run this again in a minute"
            )
        }
        try await context.audit(
            "app deleted",
            app: app,
            targets: deletion.counts.map {
                "\($0.name) \($0.count)"
            }
        )
        if arguments.has("--json") {
            var erased: JSONObject = [:]
            for (name, count) in deletion.counts { erased[name] = JSONValue(count) }
            Terminal.say(["app": .string(app), "erased": .object(erased)])
        } else {
            Terminal.say(
                "erased the app \(app): "
                    + deletion.counts.map { "\($0.count) \($0.name)" }.joined(separator: ", ")
            )
        }
        return 0
    }
}
