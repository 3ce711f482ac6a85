import Cryptography
import Gateway
import HTTPServer
import JSON
import PushCore
import SecureStorage

extension SecureSurface {
    var secretRoutes: [SurfaceRoute] {
        let path = "/v1/identities/:identity/secret"
        return [
            route(
                .put,
                path,
                RouteDescription(
                    "Set an identity's secret, or make one",
                    for: Callers.backends.schemes,
                    body: .json(named: "NewSecret"),
                    answers: [
                        .init(200, "Created; shown only here", .json(named: "Secret")),
                        .init(204, "Set"),
                    ]
                )
            ) { try await setSecret($0) },
            route(
                .delete,
                path,
                RouteDescription(
                    "Remove an identity's secret",
                    for: Callers.backends.schemes,
                    answers: [.init(204, "Gone")]
                )
            ) { try await removeSecret($0) },
        ]
    }

    /// `PUT /v1/identities/{identity}/secret`: stores the backend's secret, or makes one that is returned
    /// only this once.
    private func setSecret(_ call: SecureCall) async throws -> HTTPServerResponse {
        let caller = try call.caller.requireBackend()
        let identity = try identity(of: call)
        let body = try SecureBody(try call.body(), known: ["secret"])
        guard let text = try body.text("secret", bytes: IdentitySecret.byteCounts) else {
            let secret = IdentitySecret.make()
            try await database.identitySecrets.set(
                app: caller.appID,
                identity: identity,
                stored: PasswordHash.digest(Array(secret.utf8)).stored
            )
            return .secret(["identity": .string(identity), "secret": .string(secret)])
        }
        let secret = Array(text.utf8)
        if let problem = IdentitySecret.problem(secret) { throw SecureRequestError(problem) }
        // Hashing has threads of its own, on which the backend takes turns with readers like
        // another app.
        let hash = try await checks.result(
            randomBytes(16),
            of: SecretVerifier.Caller(backendOf: Array(caller.appID.utf8)),
            for: call.context.presence
        ) { try PasswordHash.scrypt(secret) }
        guard let hash else { throw Refusal.failed }
        try await database.identitySecrets.set(
            app: caller.appID,
            identity: identity,
            stored: hash.stored
        )
        return .empty(204)
    }

    /// `DELETE /v1/identities/{identity}/secret`: deletes the secret.
    private func removeSecret(_ call: SecureCall) async throws -> HTTPServerResponse {
        let caller = try call.caller.requireBackend()
        _ = try await database.identitySecrets.remove(
            app: caller.appID,
            identity: try identity(of: call)
        )
        return .empty(204)
    }

    private func identity(of call: SecureCall) throws -> String {
        let identity = call.request.pathParameters["identity"] ?? ""
        if let problem = SecureIdentity.problem(identity) { throw SecureRequestError(problem) }
        guard SecureIdentity.isValidForBasic(identity) else {
            throw SecureRequestError(
                "an identity that contains a colon cannot use Basic authentication"
            )
        }
        return identity
    }
}
