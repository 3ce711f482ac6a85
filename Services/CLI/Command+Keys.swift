import Cryptography
import JSON
import PushCore
import PushStorage
import ServiceKit
import Settings

extension Command {
    static let appRotateKey = Command(
        words: ["app", "rotate-key"],
        summary: "gives an app a new key; the old one is accepted beside it for a while",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            .value("--key", "app|master", "which of its keys"),
            .value("--grace", "<duration>", "how long the old key is accepted, 24h; or 0s"),
            .value("--key-file", "<file>", "the new key; without it a random one"),
            .flag("--finish", "end the time of the older keys now, and make no new one"), json,
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
        try await context.audit("app rotate-key", app: id, targets: ["key:\(kind.rawValue)"])
        if arguments.has("--json") {
            Terminal.say([
                "id": .string(id), kind == .app ? "appKey" : "masterKey": .string(key),
                "oldKeyUntil": until.map { .string($0.iso8601) } ?? .null,
            ])
        } else {
            Terminal.say(
                """
                the new \(kind.rawValue) key of \(id): \(key)
                Keep it now: it is not shown again.
                \(until.map { "The old one is accepted until \($0.iso8601)." }
                    ?? "The old one is not accepted any more.")
                """
            )
        }
        return 0
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
        try await context.audit(
            "app rotate-key --finish",
            app: id,
            targets: ["key:\(kind.rawValue)"]
        )
        if arguments.has("--json") {
            Terminal.say(["id": .string(id), "ended": JSONValue(ended)])
        } else {
            Terminal.say("\(ended) older \(kind.rawValue) key(s) of \(id) are over")
        }
        return 0
    }

    static let keysStatus = Command(
        words: ["keys", "status"],
        summary: "counts what is sealed under which of CARILLON_MASTER_KEYS",
        options: [json]
    ) { arguments, context in
        let keys = try context.masterKeys()
        let values = try await context.database().sealed.all()
        var counts: [String: (values: Int, unreadable: Int)] = [:]
        for value in values {
            let id = KeyRing.keyID(of: value.sealed) ?? "?"
            let opens = (try? keys.open(value.sealed, context: value.context)) != nil
            counts[id, default: (0, 0)].values += 1
            if !opens { counts[id, default: (0, 0)].unreadable += 1 }
        }
        let unreadable = counts.values.reduce(0) { $0 + $1.unreadable }
        let behind = values.count - (counts[keys.primaryKeyID]?.values ?? 0)
        if arguments.has("--json") {
            Terminal.say([
                "sealsWith": .string(keys.primaryKeyID), "toRotate": JSONValue(behind),
                "unreadable": JSONValue(unreadable),
                "keys": .object(
                    JSONObject(
                        counts.sorted { $0.key < $1.key }.map {
                            ($0.key, JSONValue($0.value.values))
                        }
                    )
                ),
            ])
        } else {
            var rows = [["seals with", keys.primaryKeyID]]
            for (id, count) in counts.sorted(by: { $0.key < $1.key }) {
                let note = count.unreadable > 0 ? ", \(count.unreadable) cannot be opened" : ""
                rows.append(["under \(id)", "\(count.values)\(note)"])
            }
            if behind > 0 { rows.append(["to do", "carillon keys rotate"]) }
            Terminal.say(Terminal.table(rows))
        }
        return unreadable > 0 ? 1 : 0
    }

    static let keysRotate = Command(
        words: ["keys", "rotate"],
        summary: "seals everything anew under the first of CARILLON_MASTER_KEYS",
        options: [json]
    ) { arguments, context in
        let keys = try context.masterKeys()
        let database = try await context.database()
        var (rotated, unreadable) = (0, 0)
        // Again, as what was written meanwhile may be by a service with the old list of keys.
        for _ in 0..<3 {
            let waiting = try await database.sealed.all().filter {
                KeyRing.keyID(of: $0.sealed) != keys.primaryKeyID
            }
            unreadable = 0
            for value in waiting {
                guard let opened = try? keys.open(value.sealed, context: value.context) else {
                    unreadable += 1
                    Terminal.complain("\(value.name) cannot be opened with CARILLON_MASTER_KEYS")
                    continue
                }
                let sealed = try keys.seal(opened, context: value.context)
                if try await database.sealed.replace(value, by: sealed) { rotated += 1 }
            }
            if waiting.count == unreadable { break }
        }
        try await context.audit(
            "keys rotate",
            app: "",
            targets: [keys.primaryKeyID],
            status: unreadable > 0 ? 1 : 0
        )
        if arguments.has("--json") {
            Terminal.say([
                "sealsWith": .string(keys.primaryKeyID), "rotated": JSONValue(rotated),
                "unreadable": JSONValue(unreadable),
            ])
        } else {
            Terminal.say("\(rotated) sealed anew under \(keys.primaryKeyID)")
            if unreadable == 0 {
                Terminal.say("once every service runs with this list, the other keys may go")
            }
        }
        return unreadable > 0 ? 1 : 0
    }
}
