import Cryptography
import Door
import HTTPServer
import JSON
import PushCore
import PushStorage

extension SecureSurface {
    var deviceRoutes: [SurfaceRoute] {
        let path = "/v1/installations/:id/reader"
        return [
            route(.put, path) { try await setReader($0) },
            route(.delete, path) { try await removeReader($0) },
        ]
    }

    /// `PUT /v1/installations/{id}/reader`: makes the device a reader, by a secret of its own that is
    /// answered this once.
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
            if case .backend = call.caller { call.visit.note(identity) }
            return .secret([
                "installationId": .string(owner.installation), "identity": .string(identity),
                "deviceSecret": .string(secret),
            ])
        case .notTheirs: throw notTheirs(call)
        case .tooMany:
            throw HTTPProblem(
                status: 409,
                detail: "\(SecureReaderStore.maximumSealingKeys) devices of this identity have a "
                    + "sealingKey already"
            )
        }
    }

    /// `DELETE /v1/installations/{id}/reader`: its secret is void from now on.
    private func removeReader(_ call: SecureCall) async throws -> HTTPServerResponse {
        let owner = try await owner(of: call)
        let isTheirs = try await database.secureReaders.remove(
            app: owner.app,
            installation: owner.installation,
            identity: owner.identity
        )
        guard isTheirs else { throw notTheirs(call) }
        return .empty(204)
    }

    /// Whose device it must be: of anybody, where the backend asks.
    private struct Owner {
        let app: String
        /// The object id.
        let installation: String
        let identity: String?
    }

    /// - Throws: 404 where a device asks for another than itself.
    private func owner(of call: SecureCall) async throws -> Owner {
        switch call.caller {
        case .appKey: throw SecureRefusal.notEnough
        case .backend(let caller):
            let id = try await objectID(call.id, of: caller.appID)
            return Owner(app: caller.appID, installation: id, identity: nil)
        case .reader(let reader):
            try beforeLooking(reader)
            let id = try await objectID(call.id, of: reader.app.id)
            if let device = reader.device, !device.isSame(as: id) { throw notFound(reader) }
            return Owner(app: reader.app.id, installation: id, identity: reader.identity)
        }
    }

    /// An installation is named by its object id; where one has that name of its own instead, by that.
    private func objectID(_ name: String, of app: String) async throws -> String {
        let mayBeOwn = !ObjectID.isWellFormed(name) && !name.isEmpty && !name.utf8.contains(0)
        guard mayBeOwn else { return name }
        var filter = InstallationStore.Filter()
        filter.installationID = name
        let found = try await database.installations.query(app: app, filter, limit: 1).first
        return found?.objectID ?? name
    }

    private func notTheirs(_ call: SecureCall) -> SecureRefusal {
        guard case .reader(let reader) = call.caller else { return .notFound }
        return notFound(reader)
    }
}
