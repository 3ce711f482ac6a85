import Cryptography
import JSON
import PushStorage
import ServiceKit

extension Command {
    static let appLink = Command(
        words: ["app", "link"],
        summary: "links names that an app has at Firebase, and keys that its clients carry",
        operands: ["app"],
        requiredOperands: 1,
        options: linkOptions + [json]
    ) { arguments, context in
        let (database, app, links) = try await linking(arguments, context, findingApp: open)
        try await database.appLinks.link(links)
        try await context.audit("app link", app: app, targets: links.map(\.shown))
        try await say("linked", links, of: app, database, arguments)
        return 0
    }

    static let appUnlink = Command(
        words: ["app", "unlink"],
        summary: "takes links of an app away",
        operands: ["app"],
        requiredOperands: 1,
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
        if !isErasing, let stranger = links.first(where: { !known.contains($0) }) {
            throw CommandFailure("\(app) has no link of this kind and name: \(stranger.shown)")
        }
        for link in links {
            guard try await database.appLinks.unlink(link, isErasing: isErasing) else {
                throw CommandFailure("\(app) has no link, nor data, of \(link.shown)")
            }
        }
        try await context.audit("app unlink", app: app, targets: links.map(\.shown))
        try await say("unlinked", links, of: app, database, arguments)
        return 0
    }

    /// What a command names: what cannot be linked is refused before anything is asked.
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
        guard !projects.isEmpty || !keys.isEmpty || !pools.isEmpty else {
            throw ArgumentsError(
                "--fcm-project, --firebase-api-key or --cognito-identity-pool is missing"
            )
        }
        return projects + keys + pools
    }

    /// What is kept as a digest alone must not be easily guessed.
    private static func isLinkableKey(_ key: String) -> Bool {
        (20...512).contains(key.utf8.count) && key.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7f }
    }

    private static func say(
        _ done: String,
        _ links: [AppLink],
        of app: String,
        _ database: PushDatabase,
        _ arguments: Arguments
    ) async throws {
        if arguments.has("--json") {
            let all = try await database.appLinks.list(app)
            Terminal.say(["app": .string(app), "links": .array(all.map { .object($0.json) })])
        } else {
            for link in links { Terminal.say("\(app): \(done) \(link.shown)") }
        }
    }
}

extension AppLink {
    /// What may be shown of its name.
    private var shownName: String {
        switch kind {
        case .fcmProject, .cognitoPool: name
        case .firebaseAPIKey: String(name.prefix(8))
        }
    }

    /// For people, and the audit: `fcm-project my-project`.
    var shown: String { "\(kind.rawValue) \(shownName)" }

    var json: JSONObject { ["kind": .string(kind.rawValue), "name": .string(shownName)] }
}
