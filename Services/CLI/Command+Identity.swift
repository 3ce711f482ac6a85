import Cryptography
import JSON
import PushCore
import SecureStorage
import ServiceKit

extension Command {
    static let identitySetSecret = Command(
        "identity set-secret <app> <identity>",
        "Set or generate the secret by which an identity reads secure payloads",
        options: [
            .value(
                "--secret-file",
                "<file>",
                "the file with the secret; without it a random one is generated"
            ), json,
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
        let (database, app) = try await context.openApp(arguments)
        // A secret that a person chose can be guessed, so each attempt must be expensive; a random one cannot.
        let hash =
            if let own {
                try PasswordHash.scrypt(Array(own.utf8))
            } else {
                PasswordHash.digest(Array((made ?? "").utf8))
            }
        try await database.identitySecrets.set(app: app, identity: identity, stored: hash.stored)
        try await context.audit("identity set-secret", app, [identity])
        var object: JSONObject = ["app": .string(app), "identity": .string(identity)]
        object["secret"] = made.map(JSONValue.string)
        let shown = Terminal.short(identity, 100)
        return arguments.answer(
            object,
            made.map {
                """
                the secret of \(shown): \($0)
                Keep it now: it is not shown again. The one before, if any, is void.
                """
            } ?? "stored the secret of \(shown); the one before is void"
        )
    }

    static let identityRemoveSecret = Command(
        "identity remove-secret <app> <identity>",
        "Revoke an identity's secret"
    ) { arguments, context in
        let identity = try arguments.operand(1, "identity")
        let (database, app) = try await context.existingApp(arguments)
        guard try await database.identitySecrets.remove(app: app, identity: identity) else {
            throw CommandFailure("\(Terminal.short(identity, 100)) has no secret in \(app)")
        }
        try await context.audit("identity remove-secret", app, [identity])
        return arguments.answer(
            ["app": .string(app), "removed": .string(identity)],
            "removed the secret of \(Terminal.short(identity, 100))"
        )
    }
}
