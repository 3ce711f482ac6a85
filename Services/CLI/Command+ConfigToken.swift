import Cryptography
import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let configTokenCreate = Command(
        words: ["config", "token", "create"],
        summary: "lets somebody publish an app's templates, and prints the token, this once",
        operands: ["app"],
        requiredOperands: 1,
        options: [
            .value("--name", "<name>", "who publishes with it; ci without it"),
            .flag("--read-only", "it reads templates and publishes none"),
            .value("--token-file", "<file>", "a token of one's own, at least 20 characters"),
            json,
        ]
    ) { arguments, context in
        let name = arguments.value("--name") ?? "ci"
        guard isTokenName(name) else {
            throw ArgumentsError(
                "--name takes 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-', and not master-key"
            )
        }
        let own = try arguments.value("--token-file").map { try ownToken($0, context) }
        let token = own ?? "cct_" + Base64.encodeURL(randomBytes(32))
        let database = try await context.database()
        let app = try await open(try arguments.operand(0, "app"), database).id
        let isReadOnly = arguments.has("--read-only")
        try await database.configTokens.create(
            StoredConfigToken(
                app: app,
                name: name,
                digest: sha256(Array(token.utf8)),
                isReadOnly: isReadOnly
            )
        )
        try await context.audit(
            "config token create",
            app: app,
            targets: ["token:\(name)"] + (isReadOnly ? ["read-only"] : [])
        )
        if arguments.has("--json") {
            var object: JSONObject = [
                "app": .string(app), "name": .string(name), "readOnly": .bool(isReadOnly),
            ]
            // His own token he has already.
            if own == nil { object["token"] = .string(token) }
            Terminal.say(.object(object))
        } else if own != nil {
            Terminal.say("kept the config token \(name) of \(app)")
        } else {
            Terminal.say(
                """
                created the config token \(name) of \(app)
                token:  \(token)
                Keep it now: it is not shown again.
                """
            )
        }
        return 0
    }

    static let configTokenList = Command(
        words: ["config", "token", "list"],
        summary: "lists who may publish an app's templates, no tokens",
        operands: ["app"],
        requiredOperands: 1,
        options: [json]
    ) { arguments, context in
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        let tokens = try await database.configTokens.list(app)
        if arguments.has("--json") {
            Terminal.say(
                .array(
                    tokens.map { token in
                        [
                            "name": .string(token.name), "readOnly": .bool(token.isReadOnly),
                            "createdAt": .string(token.createdAt.iso8601),
                        ]
                    }
                )
            )
        } else if tokens.isEmpty {
            Terminal.say("no config token yet: carillon config token create \(app)")
        } else {
            Terminal.say(
                Terminal.table(
                    tokens.map { token in
                        [
                            token.name, token.isReadOnly ? "reads" : "publishes",
                            "created \(token.createdAt.iso8601)",
                        ]
                    }
                )
            )
        }
        return 0
    }

    static let configTokenRemove = Command(
        words: ["config", "token", "remove"],
        summary: "takes a config token back: it opens nothing any more",
        operands: ["app", "name"],
        requiredOperands: 2,
        options: [json]
    ) { arguments, context in
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        let name = try arguments.operand(1, "name")
        guard isTokenName(name), try await database.configTokens.remove(app, name: name) else {
            let known = try await database.configTokens.list(app).map(\.name)
            throw CommandFailure(
                "\(app) has no config token \(Terminal.short(name, 64))"
                    + didYouMean(name, among: known)
            )
        }
        try await context.audit("config token remove", app: app, targets: ["token:\(name)"])
        if arguments.has("--json") {
            Terminal.say(["app": .string(app), "removed": .string(name)])
        } else {
            Terminal.say("removed the config token \(name) of \(app)")
        }
        return 0
    }

    /// It stands before the `@` of what versions say of their publisher; `master-key` is there, too.
    private static func isTokenName(_ name: String) -> Bool {
        (1...64).contains(name.utf8.count) && name != "master-key"
            && name.utf8.allSatisfy { byte in
                switch byte {
                case UInt8(ascii: "a")...UInt8(ascii: "z"),
                    UInt8(ascii: "A")...UInt8(ascii: "Z"),
                    UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "."), UInt8(ascii: "_"),
                    UInt8(ascii: "-"):
                    true
                default: false
                }
            }
    }

    private static func ownToken(_ path: String, _ context: CommandContext) throws -> String {
        let token = try context.line(ofFile: path, "--token-file")
        guard (20...512).contains(token.utf8.count),
            token.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f })
        else {
            throw ArgumentsError(
                "--token-file must hold 20 to 512 printable characters without blanks"
            )
        }
        return token
    }
}
