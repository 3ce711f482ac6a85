import ConfigStorage
import Cryptography
import JSON
import PushCore
import ServiceKit
import Storage

extension Command {
    static let configTokenCreate = Command(
        "config token create <app>",
        "Create a config token and print it once",
        options: [
            .value("--name", "<name>", "who publishes with it; default ci"),
            .flag("--read-only", "it reads templates and publishes none"),
            .value(
                "--token-file",
                "<file>",
                "a file with a token of your own, at least 20 characters"
            ),
            json,
        ]
    ) { arguments, context in
        let name = arguments.value("--name") ?? "ci"
        guard isTokenName(name) else {
            throw ArgumentsError(
                "--name takes 1 to 64 of a-z, A-Z, 0-9, '.', '_' and '-'; master-key is reserved"
            )
        }
        let own = try arguments.value("--token-file").map { try ownToken($0, context) }
        let token = own ?? "cct_" + Base64.encodeURL(randomBytes(32))
        let (database, app) = try await context.openApp(arguments)
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
            app,
            ["token:\(name)"] + (isReadOnly ? ["read-only"] : [])
        )
        var object: JSONObject = [
            "app": .string(app), "name": .string(name), "readOnly": .bool(isReadOnly),
        ]
        // A token from `--token-file` is not printed, as the caller has it.
        guard own == nil else {
            return arguments.answer(object, "stored the config token \(name) of \(app)")
        }
        object["token"] = .string(token)
        return arguments.answer(
            object,
            """
            created the config token \(name) of \(app)
            token:  \(token)
            Keep it now: it is not shown again.
            """
        )
    }

    static let configTokenList = Command(
        "config token list <app>",
        "List the names and rights of an app's config tokens"
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        return Listing(
            try await database.configTokens.list(app),
            columns: [
                .text("name", \.name),
                .value("readOnly", { .bool($0.isReadOnly) }) {
                    $0.isReadOnly ? "reads" : "publishes"
                },
                .value("createdAt", { .string($0.createdAt.iso8601) }) {
                    "created \($0.createdAt.iso8601)"
                },
            ],
            empty: "no config token yet: carillon config token create \(app)"
        ).say(arguments)
    }

    static let configTokenRemove = Command(
        "config token remove <app> <name>",
        "Revoke a config token"
    ) { arguments, context in
        let (database, app) = try await context.existingApp(arguments)
        let name = try arguments.operand(1, "name")
        guard isTokenName(name), try await database.configTokens.remove(app, name: name) else {
            let known = try await database.configTokens.list(app).map(\.name)
            throw CommandFailure(
                "\(app) has no config token \(Terminal.short(name, 64))"
                    + didYouMean(name, among: known)
            )
        }
        try await context.audit("config token remove", app, ["token:\(name)"])
        return arguments.answer(
            ["app": .string(app), "removed": .string(name)],
            "removed the config token \(name) of \(app)"
        )
    }

    /// Whether a name is valid. A version stores its publisher as
    /// `<name>@<app>`; `master-key` is reserved for the master key.
    private static func isTokenName(_ name: String) -> Bool {
        (1...64).contains(name.utf8.count) && name != "master-key"
            && name.allSatisfy {
                $0.isASCII && ($0.isLetter || $0.isNumber || $0 == "." || $0 == "_" || $0 == "-")
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
