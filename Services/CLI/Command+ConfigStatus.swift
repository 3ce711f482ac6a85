import JSON
import PushCore
import PushStorage
import RemoteConfig
import ServiceKit

extension Command {
    static let configVersions = Command(
        words: ["config", "versions"],
        summary: "lists the versions of a template that are kept, newest first; refused ones too",
        operands: ["app"],
        requiredOperands: 1,
        options: [namespaceOption, json]
    ) { arguments, context in
        let namespace = try namespace(arguments)
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        let current = try await database.config.head(app, namespace.rawValue).currentVersion
        let versions = try await database.config.versions(
            app,
            namespace.rawValue,
            ConfigVersionFilter(includesRefused: true)
        )
        if arguments.has("--json") {
            Terminal.say(
                .array(
                    versions.map { stored in
                        var object = stored.json
                        object["state"] = .string(stored.state.word)
                        object["current"] = .bool(stored.version == current)
                        object["reason"] = stored.reason.map(JSONValue.string)
                        return .object(object)
                    }
                )
            )
            return 0
        }
        guard !versions.isEmpty else {
            Terminal.say("nothing is published yet: carillon config put \(app) <file>")
            return 0
        }
        var rows = [["VERSION", "STATE", "UPDATED", "TYPE", "BY", "DESCRIPTION"]]
        for stored in versions {
            rows.append([
                String(stored.version),
                stored.version == current ? "current" : stored.state.word,
                stored.publishedAt.iso8601, stored.updateType,
                Terminal.short(stored.user.name, 40),
                Terminal.short(stored.reason ?? stored.description, 200),
            ])
        }
        Terminal.say(Terminal.table(rows))
        return 0
    }

    static let configStatus = Command(
        words: ["config", "status"],
        summary: "shows which version is current, which is announced, and what is refused",
        operands: ["app"],
        requiredOperands: 1,
        options: [namespaceOption, json]
    ) { arguments, context in
        let one = arguments.has("--namespace") ? try namespace(arguments) : nil
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        var standings: [ConfigStanding] = []
        for namespace in ConfigNamespace.allCases where one == nil || namespace == one {
            standings.append(try await ConfigStanding(app, namespace, database))
        }
        if arguments.has("--json") {
            Terminal.say([
                "app": .string(app),
                "namespaces": .array(standings.map { .object($0.json) }),
            ])
        } else {
            Terminal.say(Terminal.table(standings.flatMap(\.rows)))
        }
        return 0
    }
}

/// How a template stands: what is current, what clients were told, and what is in between.
private struct ConfigStanding {
    let namespace: ConfigNamespace
    let current: StoredConfigVersion?
    let announcement: ConfigAnnouncement?
    /// When the announced version was published, where it is kept here.
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

    /// From its publish until clients were told.
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
        let name = namespace.rawValue
        var rows: [[String]] = []
        if let current {
            rows.append([
                name, "current",
                "version \(current.version), \(current.publishedAt.iso8601), by"
                    + " \(Terminal.short(current.user.name, 40))",
            ])
        } else {
            rows.append([name, "current", "none: nothing is published"])
        }
        switch namespace {
        case .firebase: rows += announcingRows
        case .server:
            rows.append([name, "announced", "to nobody: no client fetches it"])
        }
        for stored in unchecked {
            rows.append([name, "unchecked", "version \(stored.version)"])
        }
        for stored in refused {
            rows.append([
                name, "refused",
                "version \(stored.version): \(Terminal.short(stored.reason ?? "", 400))",
            ])
        }
        return rows
    }

    private var announcingRows: [[String]] {
        let name = namespace.rawValue
        let announced = announcement?.announcedVersion ?? 0
        var rows: [[String]] = []
        if announced > 0, let at = announcement?.announcedAt {
            let after = announcedAfterMilliseconds.map { ", \($0) ms after its publish" } ?? ""
            rows.append([name, "announced", "version \(announced), \(at.iso8601)\(after)"])
        } else {
            rows.append([name, "announced", "none yet"])
        }
        if let pending = announcement?.pendingVersion {
            rows.append([name, "pending", "version \(pending)"])
        } else if let current, current.version > announced {
            rows.append([name, "pending", "version \(current.version), not yet heard of"])
        }
        return rows
    }
}

extension ConfigVersionState {
    /// For people.
    var word: String {
        switch self {
        case .unchecked: "unchecked"
        case .good: "good"
        case .refused: "refused"
        }
    }
}
