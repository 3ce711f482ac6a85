import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Storage
import StorageAdmin

extension Command {
    static let appDelete = Command(
        "app delete <app>",
        "Delete an app with its keys, installations, pushes and deliveries",
        options: [.flag("--yes", "skip the confirmation"), json]
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        if !arguments.has("--yes") {
            guard Terminal.canAsk else {
                throw ArgumentsError(
                    "app delete needs confirmation: run it in a terminal or pass --yes"
                )
            }
            let count = try await database.installations.count(app: app)
            let answer = Terminal.ask(
                "This erases the app \(app), its \(count) installations and all of its pushes, for"
                    + " ever.\nType its name to go on: "
            )
            guard answer == app else { throw CommandFailure("cancelled; \(app) was not deleted") }
        }
        try await context.audit("app delete", app)
        let deletion: AppDeletion
        do {
            deletion = try await database.apps.delete(app)
        } catch AppDeletion.Refusal.isBeingSent {
            throw CommandFailure(
                "\(app) is locked and its pushes are cancelled, but a dispatcher still has"
                    + " deliveries in flight; run this again in a minute"
            )
        }
        try await context.audit(
            "app deleted",
            app,
            deletion.counts.map { "\($0.name) \($0.count)" }
        )
        let counts = deletion.counts.map { "\($0.count) \($0.name)" }
        let erased = JSONObject(deletion.counts.map { ($0.name, JSONValue($0.count)) })
        return arguments.answer(
            ["app": .string(app), "erased": .object(erased)],
            "erased the app \(app): \(counts.joined(separator: ", "))"
        )
    }
}
