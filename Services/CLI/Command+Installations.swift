import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Storage

extension Command {
    static let installationsList = Command(
        "installations list <app>",
        "List the installations of an app, most recently active first",
        options: [
            .value("--where", "<json>", "only those that meet a condition: {\"city\": \"Oslo\"}"),
            .value("--limit", "<n>", "maximum number of results, 1 to 1000; default 100"), json,
        ]
    ) { arguments, context in
        let limit = try arguments.integer("--limit", in: 1...1000, default: 100)
        let condition = try condition(arguments.value("--where"))
        let (database, app) = try await context.existingApp(arguments)
        let found: [Installation]
        let total: Int
        do {
            found = try await database.installations.query(
                app: app,
                where: condition,
                order: [SortKey(path: try WherePath("updatedAt"), isDescending: true)],
                limit: limit
            )
            total = try await database.installations.count(app: app, where: condition)
        } catch let error as WhereError {
            throw ArgumentsError("--where: \(error.description)")
        } catch let error as StorageError where error.isStatementTimeout {
            throw CommandFailure("finding them takes longer than the database's statement timeout")
        }
        return Listing(
            found,
            columns: [
                .members(shown), .cell("INSTALLATION", \.objectID), .cell("DEVICE", \.deviceType),
                .cell("IDENTITY") { $0.identity ?? "-" },
                .cell("CHANNELS") { Terminal.short($0.channels.joined(separator: " "), 40) },
                .cell("STATE", \.state), .cell("UPDATED", \.updatedAt.iso8601),
            ],
            empty: "no installation\(arguments.has("--where") ? " meets it" : " yet")"
        ).say(arguments, note: total > found.count ? "… \(total) in all: --limit, --where" : nil)
    }

    static let installationsShow = Command(
        "installations show <app> <id>",
        "Show an installation by object id, installationId or prefix"
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        let installation = try await existing(
            installation: try arguments.operand(1, "id"),
            of: app,
            database
        )
        let object = shown(installation)
        let filled = object.filter { $0.value != .array([]) }
        return arguments.answer(object, lines: filled.map { [$0.key, $0.value.plain] })
    }

    private static func condition(_ text: String?) throws -> Where {
        guard let text else { return .all([]) }
        let value = try argument("--where takes JSON: ") { try JSONValue.parse(text) }
        return try argument("--where: ") { try Where.parse(value) }
    }

    /// Fields hidden in the table: with one of them anyone can push to the device.
    private static let addresses: ExactStringSet = [
        "deviceToken", "registrationId", "subscriptionUri", "deviceUri", "pushChannel",
        HubTemplate.field,
    ]

    /// Returns all stored fields except the device's token, which is never shown.
    private static func shown(_ installation: Installation) -> JSONObject {
        var object: JSONObject = [
            "objectId": .string(installation.objectID), "app": .string(installation.app),
            "state": .string(installation.state),
            "provider": installation.platform.map { .string($0.rawValue) } ?? .null,
            "hasToken": .bool(installation.token != nil),
        ]
        if let identity = installation.identity { object["identity"] = .string(identity) }
        if let locale = installation.locale { object["locale"] = .string(locale) }
        let environment = installation.environment.rawValue
        if !environment.isEmpty { object["apnsEnvironment"] = .string(environment) }
        for (name, value) in installation.object
        where object[name] == nil && !addresses.contains(name) {
            object[name] = value
        }
        if let time = installation.tokenUpdatedAt {
            object["tokenUpdatedAt"] = .string(time.iso8601)
        }
        object["createdAt"] = .string(installation.createdAt.iso8601)
        object["updatedAt"] = .string(installation.updatedAt.iso8601)
        return object
    }
}

extension Installation {
    /// The state for people: valid, or the reason why no push reaches the installation.
    fileprivate var state: String {
        if !isValid { return "invalid" + (invalidReason.map { ": \($0)" } ?? "") }
        return token == nil ? "no token" : "valid"
    }
}
