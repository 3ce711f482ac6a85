import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let pushFailures = Command(
        "push failures <push id>",
        "Show why deliveries failed, by provider, with example devices",
        options: [
            .value("--examples", "<n>", "so many devices of each reason, 0 to 100; 3 without it"),
            json,
        ]
    ) { arguments, context in
        let limit = try arguments.integer("--examples", in: 0...100, default: 3)
        let id = try pushID(arguments.operand(0, "push id"))
        let database = try await context.database()
        let push = try await existing(push: id, database)
        let examples = try await database.deliveries.examples(
            of: push.failures,
            in: push.id,
            limit: limit
        )
        let listing = Listing(
            examples,
            columns: [
                .cell("COUNT") { String($0.failure.count) },
                .text("provider", title: "PROVIDER", \.failure.provider.rawValue),
                .text("reason", title: "REASON", \.failure.reason),
                .member("count") { JSONValue($0.failure.count) },
                .value(
                    "examples",
                    title: "DEVICES, FOR EXAMPLE",
                    { .array($0.targets.map(JSONValue.string)) }
                ) { $0.targets.isEmpty ? "-" : $0.targets.joined(separator: " ") },
            ]
        )
        let uncounted = push.ledger.failed - push.failures.reduce(0) { $0 + $1.count }
        let others = [
            [String(uncounted), "-", "not counted: by a dispatcher of an older version", "-"]
        ]
        return arguments.answer(
            [
                "pushId": .string(push.id), "failed": JSONValue(push.ledger.failed),
                "failures": listing.json,
            ],
            push.ledger.failed > 0
                ? listing.table(more: uncounted > 0 ? others : []) : "no delivery failed"
        )
    }
}
