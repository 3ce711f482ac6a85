import Cryptography
import JSON
import PushCore
import PushStorage
import ServiceKit

extension Command {
    static let identitySetSecret = Command(
        words: ["identity", "set-secret"],
        summary: "lets an identity read its secure payloads by a secret, made where none is given",
        operands: ["app", "identity"],
        requiredOperands: 2,
        options: [
            .value("--secret-file", "<file>", "a secret of its own; without it one is made"), json,
        ]
    ) { arguments, context in
        let identity = try arguments.operand(1, "identity")
        if let problem = IdentitySecret.problem(ofIdentity: identity) {
            throw ArgumentsError(problem)
        }
        let own = try arguments.value("--secret-file").map { path in
            let secret = try context.line(ofFile: path, "--secret-file")
            if let problem = IdentitySecret.problem(secret) {
                throw ArgumentsError("--secret-file: \(problem)")
            }
            return secret
        }
        let made = own == nil ? Base64.encodeURL(randomBytes(32)) : nil
        let database = try await context.database()
        let app = try await open(try arguments.operand(0, "app"), database).id
        // What a person chose can be guessed at, so trying one has a price; what was made cannot.
        let hash =
            if let own {
                try PasswordHash.scrypt(Array(own.utf8))
            } else {
                PasswordHash.digest(Array((made ?? "").utf8))
            }
        try await database.identitySecrets.set(app: app, identity: identity, stored: hash.stored)
        try await context.audit("identity set-secret", app: app, targets: [identity])
        if arguments.has("--json") {
            var object: JSONObject = ["app": .string(app), "identity": .string(identity)]
            object["secret"] = made.map(JSONValue.string)
            Terminal.say(.object(object))
        } else if let made {
            Terminal.say(
                """
                the secret of \(Terminal.short(identity, 100)): \(made)
                Keep it now: it is not shown again. The one before, if any, is void.
                """
            )
        } else {
            Terminal.say(
                "kept the secret of \(Terminal.short(identity, 100)); the one before is void"
            )
        }
        return 0
    }

    static let identityRemoveSecret = Command(
        words: ["identity", "remove-secret"],
        summary: "takes an identity's secret back: it opens nothing any more",
        operands: ["app", "identity"],
        requiredOperands: 2,
        options: [json]
    ) { arguments, context in
        let identity = try arguments.operand(1, "identity")
        let database = try await context.database()
        let app = try await existing(try arguments.operand(0, "app"), database).id
        guard try await database.identitySecrets.remove(app: app, identity: identity) else {
            throw CommandFailure("\(Terminal.short(identity, 100)) has no secret in \(app)")
        }
        try await context.audit("identity remove-secret", app: app, targets: [identity])
        if arguments.has("--json") {
            Terminal.say(["app": .string(app), "removed": .string(identity)])
        } else {
            Terminal.say("removed the secret of \(Terminal.short(identity, 100))")
        }
        return 0
    }
}
