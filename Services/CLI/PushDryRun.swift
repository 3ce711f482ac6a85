import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Storage

/// The steps of `push send` before it sends: counts the audience, and asks for confirmation if the
/// push goes to every device.
extension Command {
    /// Runs `--dry-run`: counts the push's audience as it is in the database now.
    static func dryRun(
        _ request: PushRequest,
        _ object: JSONObject,
        for app: String,
        _ database: PushDatabase?,
        _ arguments: Arguments
    ) async throws -> Int32 {
        let counts = try await counts(of: request, in: app, database)
        let targeted = counts.map { $0.values.reduce(0, +) }
        var byPlatform: JSONObject = [:]
        for platform in Platform.allCases {
            if let count = counts?[platform] { byPlatform[platform.rawValue] = JSONValue(count) }
        }
        var rows = [["app", app]]
        if let targeted {
            let list = byPlatform.isEmpty ? "" : ": " + JSONValue.object(byPlatform).plain
            rows.append(["would go to", "\(targeted) device\(targeted == 1 ? "" : "s")\(list)"])
        } else {
            rows.append(["would go to", "unknown: DATABASE_URL is not set"])
        }
        for (name, value) in object where name != "app" { rows.append([name, value.plain]) }
        rows.append(["sent", "nothing: --dry-run"])
        return arguments.answer(
            [
                "request": .object(object), "targeted": targeted.map { JSONValue($0) } ?? .null,
                "byPlatform": counts == nil ? .null : .object(byPlatform),
            ],
            lines: rows
        )
    }

    /// Counts devices by platform; `nil` without a database.
    private static func counts(
        of request: PushRequest,
        in app: String,
        _ database: PushDatabase?
    ) async throws -> [Platform: Int]? {
        switch request.audience {
        case .tokens(let tokens):
            return Dictionary(tokens.map { ($0.platform, 1) }, uniquingKeysWith: +)
        case .topic(let topic):
            guard let database else { return nil }
            var counts = try await reachable(topic.selectors, in: app, database)
            let credentials = try await database.credentials.list(app: app)
            if credentials.contains(where: { $0.platform == .fcm }) { counts[.fcm] = 1 }
            return counts
        case .installations(let selectors):
            guard let database else { return nil }
            return try await reachable(selectors, in: app, database)
        }
    }

    private static func reachable(
        _ selectors: PushRequest.Selectors,
        in app: String,
        _ database: PushDatabase
    ) async throws -> [Platform: Int] {
        do {
            return try await database.installations.explain(app: app, selectors).reachable
        } catch let error as WhereError {
            throw ArgumentsError("where: \(error.description)")
        }
    }

    /// Asks for confirmation: a push without a selector goes to every phone.
    static func askWhetherAll(of app: String, _ database: PushDatabase?) async throws {
        guard Terminal.canAsk else {
            throw ArgumentsError(
                "no selector: the push would go to every device of \(app); pass --all to confirm"
            )
        }
        let everyone = PushRequest.Selectors()
        let count = try await database?.installations.explain(app: app, everyone).reachable.values
            .reduce(0, +)
        let devices = count.map { "all \($0) devices" } ?? "every device"
        let answer = Terminal.ask("This goes to \(devices) of \(app). Send it? [y/N] ")
        guard ["y", "yes"].contains(answer?.lowercased() ?? "") else {
            throw CommandFailure("nothing was sent")
        }
    }
}

extension PushRequest {
    /// Whether no selector narrows the audience.
    var isForEveryone: Bool {
        switch audience {
        case .tokens, .topic: false
        case .installations(let selectors):
            selectors.channels == nil && selectors.identities == nil
                && selectors.installations == nil && selectors.condition == nil
        }
    }
}
