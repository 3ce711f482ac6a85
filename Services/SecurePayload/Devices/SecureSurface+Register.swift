import Door
import HTTPServer
import JSON
import PushCore
import PushStorage

extension SecureSurface {
    func registerRoutes(_ base: String) -> [SurfaceRoute] {
        let all = base + "/api/register"
        let one = all + "/:id"
        return [
            route(.post, all) { try await findRegistration($0) },
            route(.put, one) { try await register($0) },
            route(.delete, one) { try await unregister($0) },
        ]
    }

    /// `POST /api/register`: the id to register by. The caller's own installation with that token has
    /// one; nothing is stored.
    private func findRegistration(_ call: SecureCall) async throws -> HTTPServerResponse {
        let reader = try call.caller.needReader()
        if let handle = call.request.queryValue("handle"), !handle.isEmpty,
            !handle.utf8.contains(0)
        {
            for token in [handle, handle.lowercased()].withoutRepeats() {
                var filter = InstallationStore.Filter()
                filter.token = token
                filter.identity = reader.identity
                let found = try await database.installations.query(
                    app: reader.app.id,
                    filter,
                    order: .updatedAtDescending,
                    limit: 1
                ).first
                if let found { return .json(.string(found.objectID)) }
            }
        }
        return .json(
            .string(ObjectID.make(at: .now(), random: UInt64.random(in: 0...UInt64.max)))
        )
    }

    private static let maximumAttempts = 5

    /// `PUT /api/register/{id}`: makes or changes that installation; it is the caller's from now on.
    private func register(_ call: SecureCall) async throws -> HTTPServerResponse {
        let reader = try call.caller.needReader()
        let id = call.id
        let wanted = try DeviceRegistration(try call.body(), of: reader.identity)
        // Ids of another server, which the app has kept: it asks for a new one then.
        guard ObjectID.isWellFormed(id) else { throw Self.gone }
        do {
            let keys = try wanted.keys()
            for _ in 0..<Self.maximumAttempts {
                if try await change(id, wanted, keys, reader) { return .empty(200) }
                do {
                    try await make(id, wanted, keys, reader)
                    return .empty(200)
                } catch let error as StorageError where error.kind == .conflict {
                    // Somebody made it at the same time.
                    continue
                }
            }
        } catch let error as InstallationError {
            throw SecureRequestError(error.description)
        }
        throw HTTPProblem(
            status: 503,
            detail: "the installation changes all the time; try again",
            headers: ["Retry-After": "1"]
        )
    }

    private static let gone = HTTPProblem(
        status: 410,
        detail: "this registration is gone; register anew"
    )

    /// - Returns: Whether there was one.
    private func change(
        _ id: String,
        _ wanted: DeviceRegistration,
        _ keys: Installation.Keys,
        _ reader: ProvedReader
    ) async throws -> Bool {
        let (identity, gone) = (reader.identity, Self.gone)
        return try await database.installations.update(
            app: reader.app.id,
            objectID: id,
            keys: keys,
            rule: .azure
        ) { installation in
            guard installation.identity?.isSame(as: identity) ?? true else { throw gone }
            try wanted.put(into: &installation, now: .now())
        } != nil
    }

    private func make(
        _ id: String,
        _ wanted: DeviceRegistration,
        _ keys: Installation.Keys,
        _ reader: ProvedReader
    ) async throws {
        let app = reader.app.id
        _ = try await database.installations.save(app: app, keys: keys, rule: .azure) { _ in
            let now = Instant.now()
            var installation = Installation(app: app, objectID: id, at: now)
            try wanted.put(into: &installation, now: now)
            return installation
        }
    }

    /// `DELETE /api/register/{id}`: removes one's own; another's is not there, to him.
    private func unregister(_ call: SecureCall) async throws -> HTTPServerResponse {
        let reader = try call.caller.needReader()
        if ObjectID.isWellFormed(call.id),
            let found = try await database.installations.find(
                app: reader.app.id,
                objectID: call.id
            ),
            found.identity.isSame(as: reader.identity)
        {
            _ = try await database.installations.delete(
                app: reader.app.id,
                objectIDs: [call.id]
            )
        }
        return .empty(200)
    }
}
