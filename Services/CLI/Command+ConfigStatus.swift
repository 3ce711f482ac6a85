import ConfigStorage
import JSON
import PushCore
import RemoteConfig
import ServiceKit
import Storage

extension Command {
    static let configVersions = Command(
        "config versions <app>",
        "List the stored versions of a template, newest first",
        options: [namespaceOption, json]
    ) { arguments, context in
        let namespace = try namespace(arguments)
        let (database, app) = try await context.existingApp(arguments)
        let current = try await database.config.head(app, namespace.rawValue).currentVersion
        let versions = try await database.config.versions(
            app,
            namespace.rawValue,
            ConfigVersionFilter(includesRefused: true)
        )
        return Listing(
            versions,
            columns: [
                .members(\.json), .member("state") { .string($0.state.word) },
                .member("current") { .bool($0.version == current) },
                .member("reason") { $0.reason.map(JSONValue.string) },
                .cell("VERSION") { String($0.version) },
                .cell("STATE") { $0.version == current ? "current" : $0.state.word },
                .cell("UPDATED", \.publishedAt.iso8601), .cell("TYPE", \.updateType),
                .cell("BY") { Terminal.short($0.user.name, 40) },
                .cell("DESCRIPTION") { Terminal.short($0.reason ?? $0.description, 200) },
            ],
            empty: "nothing is published yet: carillon config put \(app) <file>"
        ).say(arguments)
    }

    static let configStatus = Command(
        "config status <app>",
        "Show the current, announced and rejected versions of templates",
        options: [namespaceOption, json]
    ) { arguments, context in
        let one = arguments.has("--namespace") ? try namespace(arguments) : nil
        let (database, app) = try await context.existingApp(arguments)
        var standings: [ConfigStatus] = []
        for namespace in ConfigNamespace.allCases where one == nil || namespace == one {
            standings.append(try await ConfigStatus(app, namespace, database))
        }
        return arguments.answer(
            ["app": .string(app), "namespaces": .array(standings.map { .object($0.json) })],
            lines: standings.flatMap(\.rows)
        )
    }
}

/// The state of a template: the current version, the announced one, and versions in between.
private struct ConfigStatus {
    let namespace: ConfigNamespace
    let current: StoredConfigVersion?
    let announcement: ConfigAnnouncementState?
    /// The publish time of the announced version, if it is stored here.
    let announcedPublishedAt: Instant?
    let refused: [StoredConfigVersion]
    let unchecked: [StoredConfigVersion]

    init(_ app: String, _ namespace: ConfigNamespace, _ database: PushDatabase) async throws {
        self.namespace = namespace
        let name = namespace.rawValue
        let head = try await database.config.head(app, name)
        announcement = try await database.configAnnouncements.all(of: app)
            .first { $0.namespace == name }
        func stored(_ version: Int?) async throws -> StoredConfigVersion? {
            guard let version, version > 0 else { return nil }
            let filter = ConfigVersionFilter(endVersion: version, limit: 1)
            return try await database.config.versions(app, name, filter)
                .first { $0.version == version }
        }
        current = try await stored(head.currentVersion)
        announcedPublishedAt = try await stored(announcement?.announcedVersion)?.publishedAt
        refused = try await database.config.refused(app).filter { $0.namespace == name }
        unchecked = try await database.config.versions(
            app,
            name,
            ConfigVersionFilter(includesRefused: true)
        ).filter { $0.state == .unchecked }
    }

    /// The time from the announced version's publish to its announcement.
    private var announcedAfterMilliseconds: Int64? {
        guard let at = announcement?.announcedAt, let from = announcedPublishedAt else {
            return nil
        }
        return (at.microseconds - from.microseconds) / 1000
    }

    var json: JSONObject {
        var object: JSONObject = [
            "namespace": .string(namespace.rawValue),
            "current": current.map { .object($0.json) } ?? .null,
        ]
        switch namespace {
        case .firebase:
            let announced = announcement.flatMap { $0.announcedVersion > 0 ? $0 : nil }
            object["announcedVersion"] = Self.number(announced?.announcedVersion)
            object["announcedAt"] = announced?.announcedAt.map { .string($0.iso8601) } ?? .null
            object["announcedAfterMs"] =
                announcedAfterMilliseconds.map { .integer($0) } ?? .null
            object["pendingVersion"] = Self.number(announcement?.pendingVersion)
        case .server: break
        }
        object["refused"] = .array(
            refused.map { stored in
                [
                    "versionNumber": .string(String(stored.version)),
                    "updateTime": .string(stored.publishedAt.iso8601),
                    "reason": .string(stored.reason ?? ""),
                ]
            }
        )
        object["unchecked"] = .array(unchecked.map { .string(String($0.version)) })
        return object
    }

    private static func number(_ version: Int?) -> JSONValue {
        version.map { .string(String($0)) } ?? .null
    }

    var rows: [[String]] {
        var rows = [["current", "none: nothing is published"]]
        if let current {
            let user = Terminal.short(current.user.name, 40)
            let time = current.publishedAt.iso8601
            rows = [["current", "version \(current.version), \(time), by \(user)"]]
        }
        switch namespace {
        case .firebase: rows += announcingRows
        case .server:
            rows.append(["announced", "not announced: clients do not fetch server templates"])
        }
        rows += unchecked.map { ["unchecked", "version \($0.version)"] }
        rows += refused.map {
            ["refused", "version \($0.version): \(Terminal.short($0.reason ?? "", 400))"]
        }
        return rows.map { [namespace.rawValue] + $0 }
    }

    private var announcingRows: [[String]] {
        let announced = announcement?.announcedVersion ?? 0
        var rows: [[String]] = []
        if announced > 0, let at = announcement?.announcedAt {
            let after = announcedAfterMilliseconds.map { ", \($0) ms after its publish" } ?? ""
            rows.append(["announced", "version \(announced), \(at.iso8601)\(after)"])
        } else {
            rows.append(["announced", "none yet"])
        }
        if let pending = announcement?.pendingVersion {
            rows.append(["pending", "version \(pending)"])
        } else if let current, current.version > announced {
            rows.append(["pending", "version \(current.version), not yet heard of"])
        }
        return rows
    }
}

extension ConfigVersionState {
    /// The state for people.
    var word: String {
        switch self {
        case .unchecked: "unchecked"
        case .good: "good"
        case .refused: "refused"
        }
    }
}
