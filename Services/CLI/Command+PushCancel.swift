import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let pushCancel = Command(
        "push cancel <push id>",
        "Cancel a push; exit 1 if it has already ended"
    ) { arguments, context in
        let named = try pushID(arguments.operand(0, "push id"))
        let database = try await context.database()
        let id = try await existing(push: named, database).id
        guard let push = try await database.pushes.cancel(id) else {
            throw CommandFailure("there is no such push")
        }
        let refusal =
            push.status == .cancelled
            ? nil : CommandFailure("the push had already ended: \(push.status.rawValue)")
        try await context.audit(
            "push cancel",
            push.app,
            [push.id],
            status: refusal?.exitCode ?? 0,
            refusal: refusal?.description
        )
        arguments.answer(shownPush(push), lines: summary(of: push))
        if let refusal { throw refusal }
        return 0
    }

    static let pushList = Command(
        "push list [<app>]",
        "List the latest pushes of an app, or scheduled pushes",
        options: [
            .flag("--scheduled", "those that wait for their push_time, of all apps without one"),
            .value("--limit", "<n>", "maximum number of results, 1 to 1000; default 100"), json,
        ]
    ) { arguments, context in
        let app = arguments.operands.first
        guard app != nil || arguments.has("--scheduled") else {
            throw ArgumentsError("push list takes an app, or --scheduled")
        }
        let limit = try arguments.integer("--limit", in: 1...1000, default: 100, called: "a number")
        let database = try await context.database()
        if let app { _ = try await existing(app, database) }
        let pushes: [StoredPush]
        if let app, !arguments.has("--scheduled") {
            pushes = try await database.pushes.list(app: app, limit: limit)
        } else {
            pushes = try await database.pushes.scheduled(app: app, limit: limit)
        }
        return Listing(
            pushes,
            columns: [
                .members(shownPush), .member("text") { .string($0.text) },
                .cell("PUSH", \.id), .cell("APP", \.app), .cell("STATUS", \.status.rawValue),
                .cell("CREATED", \.createdAt.iso8601),
                .cell("RELEASE") { $0.releaseAt?.iso8601 ?? "-" },
                .cell("DELIVERED") { "\($0.ledger.delivered)/\($0.ledger.targeted)" },
                .cell("FAILED") { String($0.ledger.failed) },
                .cell("TEXT") { Terminal.short($0.text, 40) },
            ]
        ).say(arguments)
    }
}

extension StoredPush {
    /// The text to show for the push: its alert, on the first platform that has one, or its title.
    var text: String {
        let data = request["data"]
        for part in [data, data?["ios"], data?["android"], data?["wp"]] {
            for name in ["alert", "title"] {
                switch part?[name] {
                case .string(let text)?: return text
                case .object(let alert)?:
                    if let text = alert["body"]?.string ?? alert["title"]?.string { return text }
                case nil, .null, .bool, .integer, .double, .number, .array: break
                }
            }
        }
        let aps = request["native"]?["apns"]?["payload"]?["aps"]?["alert"]
        return aps?.string ?? aps?["body"]?.string ?? "-"
    }
}
