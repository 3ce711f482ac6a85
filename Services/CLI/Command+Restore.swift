import InstallationStorage
import JSON
import PushCore
import ServiceKit
import Settings

extension Command {
    static let installationsRestore = Command(
        "installations restore",
        "Restore installations that provider answers made invalid",
        options: [
            .value(
                "--since",
                "<time>",
                "made invalid then or later: 2026-11-20T21:04:05Z, or how long ago, such as 2h"
            ),
            .value("--reason", "<reason>", "for this reason, as the provider gave it"),
            .value("--app", "<app>", "limit to this app"),
            .flag("--dry-run", "count them and change nothing"), json,
        ]
    ) { arguments, context in
        let since = try time(try arguments.required("--since"), "--since", direction: -1)
        let reason = try arguments.required("--reason")
        let app = arguments.value("--app")
        let database = try await context.database()
        if let app { _ = try await existing(app, database) }
        let found = try await database.installations.invalidated(since: since, app: app)
        let matching = found.filter { $0.reason == reason }
        let total = matching.reduce(0) { $0 + $1.count }
        let restored =
            arguments.has("--dry-run")
            ? 0
            : try await database.installations.restore(since: since, reason: reason, app: app)
        if restored > 0 {
            try await context.audit("installations restore", app ?? "", [reason])
        }
        let end =
            arguments.has("--dry-run")
            ? "\(total) installations would be valid again"
            : "\(restored) installations are valid again"
        let byApp = JSONObject(matching.map { ($0.app, JSONValue($0.count)) })
        arguments.answer(
            [
                "since": .string(since.iso8601), "reason": .string(reason),
                "invalid": JSONValue(total), "apps": .object(byApp),
                "restored": JSONValue(restored),
            ],
            (matching.map { "\($0.app): \($0.count)" } + [end]).joined(separator: "\n")
        )
        let others = Set(found.map(\.reason)).subtracting([reason]).sorted()
        if total == 0, !others.isEmpty, !arguments.has("--json") {
            Terminal.printError("since then the reasons were: \(others.joined(separator: ", "))")
        }
        return 0
    }

    /// Parses a time in UTC, or a duration relative to now: after now if `direction` is 1, before
    /// now if it is -1.
    static func time(_ text: String, _ option: String, direction: Int64) throws -> Instant {
        if let time = Instant(iso8601: text) { return time }
        guard let distance = parseDuration(text) else {
            throw ArgumentsError(
                "\(option) takes a time such as 2026-11-20T21:04:05Z, or a duration such as 2h"
            )
        }
        return Instant.now().adding(milliseconds: direction * Int64(distance / .milliseconds(1)))
    }
}
