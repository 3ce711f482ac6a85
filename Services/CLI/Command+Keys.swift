import Cryptography
import JSON
import PushCore
import ServiceKit
import Settings
import Storage

extension Command {
    static let appRotateKey = Command(
        "app rotate-key <app>",
        "Replace an app's key; the old one stays valid for a grace period",
        options: [
            .value("--key", "app|master", "key to replace"),
            .value(
                "--grace",
                "<duration>",
                "how long the old key is still accepted; default 24h; 0s revokes it at once"
            ),
            .value("--key-file", "<file>", "the new key; without it a random one"),
            .flag("--finish", "revoke the older keys now"), json,
        ]
    ) { arguments, context in
        let id = try arguments.operand(0, "app")
        guard let kind = AppKeyKind(rawValue: try arguments.required("--key")) else {
            throw ArgumentsError("--key takes app or master")
        }
        if arguments.has("--finish") { return try await finish(id, kind, arguments, context) }
        guard let grace = parseDuration(arguments.value("--grace") ?? "24h"),
            grace <= .seconds(366 * 86_400)
        else { throw ArgumentsError("--grace takes a duration such as 24h or 7d, a year at most") }
        let key = try key("--key-file", arguments, context)
        let keys = try context.masterKeys()
        let database = try await context.database()
        let until: Instant? =
            grace == .zero
            ? nil : Instant.now().adding(milliseconds: Int64(grace / .milliseconds(1)))
        let bytes = Array(key.utf8)
        guard
            try await database.apps.rotate(
                id,
                to: ReplacementKey(
                    kind: kind,
                    sealed: try keys.seal(bytes, context: StoredApp.keyContext(id, kind)),
                    digest: sha256(bytes)
                ),
                oldValidUntil: until
            )
        else { throw try await noApp(id, database) }
        try await context.audit("app rotate-key", id, ["key:\(kind.rawValue)"])
        return arguments.answer(
            [
                "id": .string(id), kind == .app ? "appKey" : "masterKey": .string(key),
                "oldKeyUntil": until.map { .string($0.iso8601) } ?? .null,
            ],
            """
            the new \(kind.rawValue) key of \(id): \(key)
            Keep it now: it is not shown again.
            \(until.map { "The old one is accepted until \($0.iso8601)." }
                ?? "The old one is not accepted any more.")
            """
        )
    }

    private static func finish(
        _ id: String,
        _ kind: AppKeyKind,
        _ arguments: Arguments,
        _ context: CommandContext
    ) async throws -> Int32 {
        guard arguments.value("--grace") == nil, arguments.value("--key-file") == nil else {
            throw ArgumentsError("--finish makes no new key: no --grace, no --key-file")
        }
        let database = try await context.database()
        _ = try await existing(id, database)
        let ended = try await database.apps.finishRotation(id, kind)
        try await context.audit("app rotate-key --finish", id, ["key:\(kind.rawValue)"])
        return arguments.answer(
            ["id": .string(id), "ended": JSONValue(ended)],
            "\(ended) older \(kind.rawValue) key(s) of \(id) revoked"
        )
    }
}
