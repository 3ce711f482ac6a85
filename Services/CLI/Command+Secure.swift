import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let secureList = Command(
        words: ["secure", "list"],
        summary: "lists an app's secure payloads, the newest first, without their content",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            .value("--identity", "<identity>", "only those that are for it"),
            .value("--limit", "<n>", "at most so many, 1 to 1000; 100 without it"), json,
        ]
    ) { arguments, context in
        let text = arguments.value("--limit") ?? "100"
        guard let limit = Int(text), (1...SecurePayloadStore.maximumPage).contains(limit) else {
            throw ArgumentsError("--limit takes a whole number from 1 to 1000")
        }
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        let (entries, next) = try await database.securePayloads.list(
            app: app,
            identity: arguments.value("--identity"),
            limit: limit
        )
        if arguments.has("--json") {
            Terminal.say(.array(entries.map { .object($0.json) }))
            return 0
        }
        guard !entries.isEmpty else {
            Terminal.say("no secure payload\(arguments.has("--identity") ? " is for it" : " yet")")
            return 0
        }
        var rows = [["ID", "IDENTITY", "STATE", "CREATED", "EXPIRES", "KIND"]]
        for entry in entries {
            let kind = [entry.readOnce ? "once" : nil, entry.isSealed ? "sealed" : nil]
                .compactMap { $0 }
            rows.append([
                entry.id, Terminal.short(entry.identity, 40), entry.state.rawValue,
                entry.createdAt.iso8601, entry.expiresAt.iso8601,
                kind.isEmpty ? "-" : kind.joined(separator: " "),
            ])
        }
        Terminal.say(Terminal.table(rows))
        if next != nil { Terminal.say("… there are more: --limit, --identity") }
        return 0
    }

    static let secureDelete = Command(
        words: ["secure", "delete"],
        summary: "takes the content of a secure payload away, for all its devices",
        operands: ["app", "id"],
        requiredOperands: 2,
        options: [json]
    ) { arguments, context in
        let id = try arguments.operand(1, "id")
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        guard try await database.securePayloads.delete(id, app: app) else {
            throw CommandFailure("\(app) has no secure payload \(Terminal.short(id, 64))")
        }
        try await context.audit("secure delete", app: app, targets: [id])
        if arguments.has("--json") {
            Terminal.say(["app": .string(app), "deleted": SecureID.json(id)])
        } else {
            Terminal.say("the content of \(id) is gone")
        }
        return 0
    }
}
