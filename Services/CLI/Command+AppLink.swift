import Cryptography
import JSON
import ServiceKit
import Storage

extension Command {
    static let appLink = Command(
        "app link <app>",
        "Link Firebase projects, API keys, identity pools or Atlas ids to an app",
        options: linkOptions + [json]
    ) { arguments, context in
        let (database, app, links) = try await linking(arguments, context, findingApp: open)
        try await database.appLinks.link(links)
        try await context.audit("app link", app, links.map(\.shown))
        return try await answer("linked", links, of: app, database, arguments)
    }

    static let appUnlink = Command(
        "app unlink <app>",
        "Remove links from an app",
        options: linkOptions + [
            .flag("--erase", "takes what the identity pools keep away, too"), json,
        ]
    ) { arguments, context in
        let (database, app, links) = try await linking(arguments, context, findingApp: existing)
        let known = try await database.appLinks.list(app)
        let isErasing = arguments.has("--erase")
        guard !isErasing || links.allSatisfy({ $0.kind == .cognitoPool }) else {
            throw ArgumentsError("--erase goes with --cognito-identity-pool alone")
        }
        if !isErasing, let unknownName = links.first(where: { !known.contains($0) }) {
            throw CommandFailure("\(app) has no link of this kind and name: \(unknownName.shown)")
        }
        for link in links {
            guard try await database.appLinks.unlink(link, isErasing: isErasing) else {
                throw CommandFailure("\(app) has no link, nor data, of \(link.shown)")
            }
        }
        try await context.audit("app unlink", app, links.map(\.shown))
        return try await answer("unlinked", links, of: app, database, arguments)
    }

    /// Parses the links of a command. Invalid links are refused before any query.
    private static func linking(
        _ arguments: Arguments,
        _ context: CommandContext,
        findingApp find: (String, PushDatabase) async throws -> StoredApp
    ) async throws -> (database: PushDatabase, app: String, links: [AppLink]) {
        let named = try arguments.operand(0, "app")
        _ = try links(arguments, of: named)
        let database = try await context.database()
        let app = try await find(named, database).id
        return (database, app, try links(arguments, of: app))
    }

    private static let linkOptions: [Arguments.Option] = [
        .values("--fcm-project", "<id or number>", "a Firebase project, by its id or number"),
        .values("--firebase-api-key", "<key>", "lets clients that carry it fetch remote config"),
        .values("--cognito-identity-pool", "<id>", "an identity pool, whose clients sync here"),
        .values("--atlas-app", "<id>", "the app's id at Atlas, which its Realm clients carry"),
    ]

    private static func links(_ arguments: Arguments, of app: String) throws -> [AppLink] {
        let projects = try arguments.values("--fcm-project").map { name in
            guard AppLink.isProjectName(name) else {
                throw ArgumentsError(
                    "--fcm-project takes 1 to 128 of a-z, A-Z, 0-9, '.', '_', '-' and ':'"
                )
            }
            return AppLink(.fcmProject, name, app: app)
        }
        let keys = try arguments.values("--firebase-api-key").map { key in
            guard isLinkableKey(key) else {
                throw ArgumentsError(
                    "--firebase-api-key takes 20 to 512 printable characters without blanks"
                )
            }
            return AppLink(.firebaseAPIKey, Hex.encode(sha256(Array(key.utf8))), app: app)
        }
        let pools = try arguments.values("--cognito-identity-pool").map { name in
            guard AppLink.isPoolName(name) else {
                throw ArgumentsError(
                    "--cognito-identity-pool takes an id such as"
                        + " us-east-1:01234567-89ab-cdef-0123-456789abcdef"
                )
            }
            return AppLink(.cognitoPool, name, app: app)
        }
        let atlasApps = try arguments.values("--atlas-app").map { name in
            guard AppLink.isAtlasAppID(name) else {
                throw ArgumentsError("--atlas-app takes 1 to 128 of a-z, A-Z, 0-9, '_' and '-'")
            }
            return AppLink(.atlasApp, name, app: app)
        }
        let links = projects + keys + pools + atlasApps
        guard !links.isEmpty else {
            throw ArgumentsError(
                "--fcm-project, --firebase-api-key, --cognito-identity-pool or --atlas-app is missing"
            )
        }
        return links
    }

    /// Whether a key is hard enough to guess, as only its digest is stored.
    private static func isLinkableKey(_ key: String) -> Bool {
        (20...512).contains(key.utf8.count) && key.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f }
    }

    private static func answer(
        _ done: String,
        _ links: [AppLink],
        of app: String,
        _ database: PushDatabase,
        _ arguments: Arguments
    ) async throws -> Int32 {
        let all = try await database.appLinks.list(app)
        return arguments.answer(
            ["app": .string(app), "links": .array(all.map { .object($0.json) })],
            links.map { "\(app): \(done) \($0.shown)" }.joined(separator: "\n")
        )
    }
}

extension AppLink {
    /// The part of the link's name that may be shown.
    private var shownName: String {
        switch kind {
        case .fcmProject, .cognitoPool, .atlasApp: name
        case .firebaseAPIKey: String(name.prefix(8))
        }
    }

    /// The link for people, and the audit: `fcm-project my-project`.
    var shown: String { "\(kind.rawValue) \(shownName)" }

    var json: JSONObject { ["kind": .string(kind.rawValue), "name": .string(shownName)] }
}
