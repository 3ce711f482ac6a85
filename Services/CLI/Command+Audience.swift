import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Storage

extension Command {
    static let audienceExplain = Command(
        "audience explain <app>",
        "Count the devices that a condition selects and show the query plan",
        options: audienceOptions + [json]
    ) { arguments, context in
        let app = try arguments.operand(0, "app")
        var object = try audienceObject(arguments)
        object["data"] = [:]
        let request = try argument { try PushRequest.parse(object, now: .now()) }
        guard case .installations(let selectors) = request.audience else { return 64 }
        let database = try await context.database()
        _ = try await existing(app, database)
        let explanation: AudienceExplanation
        do {
            explanation = try await database.installations.explain(app: app, selectors)
        } catch let error as WhereError {
            throw ArgumentsError("where: \(error.description)")
        } catch let error as StorageError where error.isStatementTimeout {
            throw CommandFailure("counting them takes longer than the database's statement timeout")
        }
        return arguments.answer(shown(explanation), text(of: explanation))
    }

    /// The audience options that `push send` and `audience explain` share.
    static let audienceOptions: [Arguments.Option] = [
        .values("--channel", "<name>", "only devices on one of these channels"),
        .values("--installation", "<id>", "only these installations"),
        .values("--identity", "<identity>", "only devices of these identities"),
        .value("--where", "<json>", "only devices that meet a condition: {\"age\": {\"$gt\": 17}}"),
        .value("--tags", "<expression>", "only devices with such tags: (a && !b)"),
        .value("--cql", "<query>", "only devices of: select * from _Installation where …"),
    ]

    /// Returns the selectors of a request.
    static func audienceObject(_ arguments: Arguments) throws -> JSONObject {
        var object: JSONObject = [:]
        for (option, field) in [
            ("--channel", "channels"), ("--installation", "installations"),
            ("--identity", "identities"),
        ] where arguments.has(option) {
            object[field] = .array(arguments.values(option).map(JSONValue.string))
        }
        if let text = arguments.value("--where") {
            object["where"] = try argument("--where takes JSON: ") { try JSONValue.parse(text) }
        }
        for (option, field) in [("--tags", "tags"), ("--cql", "cql")] {
            if let text = arguments.value(option) { object[field] = .string(text) }
        }
        return object
    }

    private static func shown(_ explanation: AudienceExplanation) -> JSONObject {
        var reachable: JSONObject = [:]
        for (platform, count) in explanation.reachable {
            reachable[platform.rawValue] = JSONValue(count)
        }
        return [
            "installations": JSONValue(explanation.selected),
            "targeted": JSONValue(explanation.reachable.values.reduce(0, +)),
            "byPlatform": .object(reachable),
            "plan": [
                "cost": .double(explanation.plan.cost),
                "indexes": .array(explanation.plan.indexes.map(JSONValue.string)),
                "scannedTables": .array(explanation.plan.scannedTables.map(JSONValue.string)),
                "steps": .array(explanation.steps.map(JSONValue.string)),
            ],
        ]
    }

    private static func text(of explanation: AudienceExplanation) -> String {
        let counts = Platform.allCases.compactMap { platform in
            explanation.reachable[platform].map { "\(platform.rawValue) \($0)" }
        }
        let total = explanation.reachable.values.reduce(0, +)
        let plan = explanation.plan
        let byPlatform = counts.isEmpty ? "" : ": " + counts.joined(separator: ", ")
        var rows = [
            ["selected", "\(explanation.selected) installations"],
            ["targeted", "\(total)\(byPlatform)"],
            ["cost", "\((plan.cost * 100).rounded() / 100), as the database's planner counts"],
            ["index", plan.indexes.isEmpty ? "none" : plan.indexes.joined(separator: ", ")],
        ]
        if !plan.scannedTables.isEmpty {
            rows.append(["read whole", plan.scannedTables.joined(separator: ", ")])
        }
        return Terminal.table(rows) + "\n\n" + explanation.steps.joined(separator: "\n")
    }
}
