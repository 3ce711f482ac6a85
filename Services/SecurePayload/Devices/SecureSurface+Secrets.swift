import Cryptography
import Door
import HTTPServer
import JSON
import PushCore
import PushStorage

extension SecureSurface {
    var secretRoutes: [SurfaceRoute] {
        let path = "/v1/identities/:identity/secret"
        return [
            route(.put, path) { try await setSecret($0) },
            route(.delete, path) { try await removeSecret($0) },
        ]
    }

    /// `PUT /v1/identities/{identity}/secret`: the backend's, or one that is made here and answered
    /// this once.
    private func setSecret(_ call: SecureCall) async throws -> HTTPServerResponse {
        let caller = try call.caller.needBackend()
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
        // By the same threads as all hashing; the backend takes its turn like any address.
        let hash = try await checks.result(
            randomBytes(16),
            of: SecretChecks.Caller(backendOf: Array(caller.appID.utf8)),
            for: call.visit.presence
        ) { try PasswordHash.scrypt(secret) }
        guard let hash else { throw Refusal.failed }
        try await database.identitySecrets.set(
            app: caller.appID,
            identity: identity,
            stored: hash.stored
        )
        return .empty(204)
    }

    /// `DELETE /v1/identities/{identity}/secret`.
    private func removeSecret(_ call: SecureCall) async throws -> HTTPServerResponse {
        let caller = try call.caller.needBackend()
        _ = try await database.identitySecrets.remove(
            app: caller.appID,
            identity: try identity(of: call)
        )
        return .empty(204)
    }

    private func identity(of call: SecureCall) throws -> String {
        let identity = call.request.pathParameters["identity"] ?? ""
        if let problem = SecureIdentity.problem(identity) { throw SecureRequestError(problem) }
        guard SecureIdentity.comesByBasic(identity) else {
            throw SecureRequestError(
                "an identity with a colon cannot come by Basic: a secret would be of no use to it"
            )
        }
        return identity
    }
}
