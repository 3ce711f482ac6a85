import JSON
import PushCore
import SecureStorage
import ServiceKit

extension Command {
    static let secureList = Command(
        "secure list <app>",
        "List an app's secure payloads, newest first, without content",
        options: [
            .value("--identity", "<identity>", "only those that are for it"),
            .value("--limit", "<n>", "maximum number of results, 1 to 1000; default 100"), json,
        ]
    ) { arguments, context in
        let limit = try arguments.integer(
            "--limit",
            in: 1...SecurePayloadStore.maximumPage,
            default: 100
        )
        let (database, app) = try await context.existingApp(arguments)
        let (entries, next) = try await database.securePayloads.list(
            app: app,
            identity: arguments.value("--identity"),
            limit: limit
        )
        return Listing(
            entries,
            columns: [
                .members(\.json), .cell("ID", \.id),
                .cell("IDENTITY") { Terminal.short($0.identity, 40) },
                .cell("STATE", \.state.rawValue), .cell("CREATED", \.createdAt.iso8601),
                .cell("EXPIRES", \.expiresAt.iso8601),
                .cell("KIND") { entry in
                    let kind = [entry.readOnce ? "once" : nil, entry.isSealed ? "sealed" : nil]
                        .compactMap { $0 }
                    return kind.isEmpty ? "-" : kind.joined(separator: " ")
                },
            ],
            empty: "no secure payload\(arguments.has("--identity") ? " is for it" : " yet")"
        ).say(arguments, note: next == nil ? nil : "… there are more: --limit, --identity")
    }

    static let secureDelete = Command(
        "secure delete <app> <id>",
        "Delete a secure payload's content for all devices"
    ) { arguments, context in
        let id = try arguments.operand(1, "id")
        let (database, app) = try await context.existingApp(arguments)
        guard try await database.securePayloads.delete(id, app: app) else {
            throw CommandFailure("\(app) has no secure payload \(Terminal.short(id, 64))")
        }
        try await context.audit("secure delete", app, [id])
        return arguments.answer(
            ["app": .string(app), "deleted": SecureID.json(id)],
            "the content of \(id) is gone"
        )
    }
}
