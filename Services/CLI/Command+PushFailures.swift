import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let pushFailures = Command(
        words: ["push", "failures"],
        summary: "tells why deliveries of a push failed, by provider, with examples of devices",
        operands: ["push id"],
        requiredOperands: 1,
        options: [
            .value("--examples", "<n>", "so many devices of each reason, 0 to 100; 3 without it"),
            json,
        ]
    ) { arguments, context in
        let text = arguments.value("--examples") ?? "3"
        guard let limit = Int(text), (0...100).contains(limit) else {
            throw ArgumentsError("--examples takes a whole number from 0 to 100")
        }
        let id = try pushID(arguments.operand(0, "push id"))
        let database = try await context.database()
        let push = try await existing(push: id, database)
        let examples = try await database.deliveries.examples(
            of: push.failures,
            in: push.id,
            limit: limit
        )
        let counted = push.failures.reduce(0) { $0 + $1.count }
        if arguments.has("--json") {
            Terminal.say([
                "pushId": .string(push.id), "failed": JSONValue(push.ledger.failed),
                "failures": .array(
                    examples.map { example in
                        [
                            "provider": .string(example.failure.provider.rawValue),
                            "reason": .string(example.failure.reason),
                            "count": JSONValue(example.failure.count),
                            "examples": .array(example.targets.map(JSONValue.string)),
                        ]
                    }
                ),
            ])
            return 0
        }
        guard push.ledger.failed > 0 else {
            Terminal.say("no delivery failed")
            return 0
        }
        var rows = [["COUNT", "PROVIDER", "REASON", "DEVICES, FOR EXAMPLE"]]
        for example in examples {
            rows.append([
                String(example.failure.count), example.failure.provider.rawValue,
                example.failure.reason,
                example.targets.isEmpty ? "-" : example.targets.joined(separator: " "),
            ])
        }
        if counted < push.ledger.failed {
            rows.append([
                String(push.ledger.failed - counted), "-",
                "not counted: by a dispatcher of an older version", "-",
            ])
        }
        Terminal.say(Terminal.table(rows))
        return 0
    }
}
