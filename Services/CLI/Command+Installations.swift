import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let installationsList = Command(
        words: ["installations", "list"],
        summary: "lists the installations of an app, those that said something last first",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            .value("--where", "<json>", "only those that meet a condition: {\"city\": \"Oslo\"}"),
            .value("--limit", "<n>", "at most so many, 1 to 1000; 100 without it"), json,
        ]
    ) { arguments, context in
        let text = arguments.value("--limit") ?? "100"
        guard let limit = Int(text), (1...1000).contains(limit) else {
            throw ArgumentsError("--limit takes a whole number from 1 to 1000")
        }
        let condition = try condition(arguments.value("--where"))
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
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
        if arguments.has("--json") {
            Terminal.say(.array(found.map { .object(shown($0)) }))
            return 0
        }
        guard !found.isEmpty else {
            Terminal.say("no installation\(arguments.has("--where") ? " meets it" : " yet")")
            return 0
        }
        var rows = [["INSTALLATION", "DEVICE", "IDENTITY", "CHANNELS", "STATE", "UPDATED"]]
        for installation in found {
            rows.append([
                installation.objectID, installation.deviceType, installation.identity ?? "-",
                Terminal.short(installation.channels.joined(separator: " "), 40),
                installation.state, installation.updatedAt.iso8601,
            ])
        }
        Terminal.say(Terminal.table(rows))
        if total > found.count { Terminal.say("… \(total) in all: --limit, --where") }
        return 0
    }

    static let installationsShow = Command(
        words: ["installations", "show"],
        summary: "shows an installation, by its object id or installationId, or how it begins",
        operands: ["app", "id"],
        requiredOperands: 2,
        options: [json]
    ) { arguments, context in
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        let installation = try await existing(
            installation: try arguments.operand(1, "id"),
            of: app,
            database
        )
        if arguments.has("--json") {
            Terminal.say(.object(shown(installation)))
            return 0
        }
        var rows: [[String]] = []
        for (name, value) in shown(installation) where value != .array([]) {
            rows.append([name, value.plain])
        }
        Terminal.say(Terminal.table(rows))
        return 0
    }

    private static func condition(_ text: String?) throws -> Where {
        guard let text else { return .all([]) }
        let value: JSONValue
        do throws(JSONError) {
            value = try JSONValue.parse(text)
        } catch {
            throw ArgumentsError("--where takes JSON: \(error.description)")
        }
        do throws(WhereError) {
            return try Where.parse(value)
        } catch {
            throw ArgumentsError("--where: \(error.description)")
        }
    }

    /// What may not be read by whoever looks over a shoulder: whoever has it can ring the device.
    private static let addresses: TextSet = [
        "deviceToken", "registrationId", "subscriptionUri", "deviceUri", "pushChannel",
        HubTemplate.field,
    ]

    /// All that is kept of it but its token, which is nobody's to read.
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
    /// Whether a push reaches it, and why not.
    fileprivate var state: String {
        if !isValid { return "invalid" + (invalidReason.map { ": \($0)" } ?? "") }
        return token == nil ? "no token" : "valid"
    }
}
