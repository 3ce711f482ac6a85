import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import SecureStorage

extension SecureSurface {
    var deviceRoutes: [SurfaceRoute] {
        let path = "/v1/installations/:id/reader"
        return [
            route(
                .put,
                path,
                RouteDescription(
                    "Make a device a reader; a secret that it had is void",
                    for: Callers.readers.schemes,
                    body: .json(named: "NewReader"),
                    answers: [.init(200, "Its secret, shown only here", .json(named: "Reader"))]
                )
            ) { try await setReader($0) },
            route(
                .delete,
                path,
                RouteDescription(
                    "Make a device's secret void",
                    for: Callers.readers.schemes,
                    answers: [.init(204, "Void")]
                )
            ) { try await removeReader($0) },
        ]
    }

    /// `PUT /v1/installations/{id}/reader`: makes the device a reader with its own secret, which is returned
    /// only this once.
    private func setReader(_ call: SecureCall) async throws -> HTTPServerResponse {
        let owner = try await owner(of: call)
        let body = try SecureBody(try call.body(), known: ["sealingKey"])
        var sealingKey: [UInt8]?
        if let text = try body.text("sealingKey", bytes: 1...1024) {
            guard let bytes = try? Base64.decodeURL(text), HPKE.isUsable(publicKey: bytes) else {
                throw SecureRequestError(
                    "sealingKey must be a public key of X25519: 32 bytes in base64url"
                )
            }
            sealingKey = bytes
        }
        let (secret, digest) = DeviceSecret.make()
        let outcome = try await database.secureReaders.set(
            app: owner.app,
            installation: owner.installation,
            identity: owner.identity,
            digest: digest,
            sealingKey: sealingKey
        )
        switch outcome {
        case .set(let identity):
            if case .backend = call.caller { call.context.note(identity) }
            return .secret([
                "installationId": .string(owner.installation), "identity": .string(identity),
                "deviceSecret": .string(secret),
            ])
        case .notOwner: throw notOwner(call)
        case .tooMany:
            throw HTTPProblem(
                status: 409,
                detail: "\(SecureReaderStore.maximumSealingKeys) devices of this identity have a "
                    + "sealingKey already"
            )
        }
    }

    /// `DELETE /v1/installations/{id}/reader`: revokes its secret.
    private func removeReader(_ call: SecureCall) async throws -> HTTPServerResponse {
        let owner = try await owner(of: call)
        let isOwner = try await database.secureReaders.remove(
            app: owner.app,
            installation: owner.installation,
            identity: owner.identity
        )
        guard isOwner else { throw notOwner(call) }
        return .empty(204)
    }

    /// A device, and the identity that must own it. The identity is `nil` for a backend.
    private struct Owner {
        let app: String
        /// The object id.
        let installation: String
        let identity: String?
    }

    /// - Throws: 404 if a device names another device.
    private func owner(of call: SecureCall) async throws -> Owner {
        switch call.caller {
        case .appKey: throw SecureRefusal.notEnough
        case .backend(let caller):
            let id = try await objectID(call.id, of: caller.appID)
            return Owner(app: caller.appID, installation: id, identity: nil)
        case .reader(let reader):
            try requireNotLimited(reader)
            let id = try await objectID(call.id, of: reader.app.id)
            if let device = reader.device, !device.isSame(as: id) { throw notFound(reader) }
            return Owner(app: reader.app.id, installation: id, identity: reader.identity)
        }
    }

    /// Returns the object id of an installation, which is named by that id or by its own
    /// `installationId`.
    private func objectID(_ name: String, of app: String) async throws -> String {
        let mayBeOwn = !ObjectID.isWellFormed(name) && !name.isEmpty && !name.utf8.contains(0)
        guard mayBeOwn else { return name }
        var filter = InstallationStore.Filter()
        filter.installationID = name
        let found = try await database.installations.query(app: app, filter, limit: 1).first
        return found?.objectID ?? name
    }

    private func notOwner(_ call: SecureCall) -> SecureRefusal {
        guard case .reader(let reader) = call.caller else { return .notFound }
        return notFound(reader)
    }
}
