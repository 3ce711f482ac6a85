import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let pushCancel = Command(
        words: ["push", "cancel"],
        summary: "takes a push back: what nobody has sent yet is not sent; 1 if it was over before",
        operands: ["push id"],
        requiredOperands: 1,
        options: [json]
    ) { arguments, context in
        let named = try pushID(arguments.operand(0, "push id"))
        let database = try await context.database()
        let id = try await existing(push: named, database).id
        guard let push = try await database.pushes.cancel(id) else {
            throw CommandFailure("there is no such push")
        }
        let refusal =
            push.status == .cancelled
            ? nil : CommandFailure("the push was over before: \(push.status.rawValue)")
        try await context.audit(
            "push cancel",
            app: push.app,
            targets: [push.id],
            status: refusal?.exitCode ?? 0,
            refusal: refusal?.description
        )
        if arguments.has("--json") {
            Terminal.say(.object(shownPush(push)))
        } else {
            Terminal.say(summary(of: push))
        }
        if let refusal { throw refusal }
        return 0
    }

    static let pushList = Command(
        words: ["push", "list"],
        summary: "lists the latest pushes of an app, or those that wait for their time",
        operands: ["app"],
        options: [
            .flag("--scheduled", "those that wait for their push_time, of all apps without one"),
            .value("--limit", "<n>", "at most so many, 1 to 1000; 100 without it"), json,
        ]
    ) { arguments, context in
        let app = arguments.operands.first
        guard app != nil || arguments.has("--scheduled") else {
            throw ArgumentsError("push list takes an app, or --scheduled")
        }
        let text = arguments.value("--limit") ?? "100"
        guard let limit = Int(text), (1...1000).contains(limit) else {
            throw ArgumentsError("--limit takes a number from 1 to 1000")
        }
        let database = try await context.database()
        if let app { _ = try await existing(app, database) }
        let pushes: [StoredPush]
        if let app, !arguments.has("--scheduled") {
            pushes = try await database.pushes.list(app: app, limit: limit)
        } else {
            pushes = try await database.pushes.scheduled(app: app, limit: limit)
        }
        if arguments.has("--json") {
            Terminal.say(
                .array(
                    pushes.map { push in
                        var object = shownPush(push)
                        object["text"] = .string(push.text)
                        return .object(object)
                    }
                )
            )
            return 0
        }
        var rows = [["PUSH", "APP", "STATUS", "CREATED", "RELEASE", "DELIVERED", "FAILED", "TEXT"]]
        for push in pushes {
            rows.append([
                push.id, push.app, push.status.rawValue, push.createdAt.iso8601,
                push.releaseAt?.iso8601 ?? "-",
                "\(push.ledger.delivered)/\(push.ledger.targeted)", String(push.ledger.failed),
                Terminal.short(push.text, 40),
            ])
        }
        Terminal.say(Terminal.table(rows))
        return 0
    }
}

extension StoredPush {
    /// What it says, as far as one text says it: its alert, on whichever platform, or its title.
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
