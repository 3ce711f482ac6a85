import Gateway
import HTTPServer
import InstallationStorage
import JSON
import PushCore
import Storage

extension SecureSurface {
    func registerRoutes(_ base: String) -> [SurfaceRoute] {
        let all = base + "/api/register"
        let one = all + "/:id"
        return [
            route(
                .post,
                all,
                RouteDescription(
                    "Get the id to register a device by",
                    for: Callers.readers.schemes,
                    parameters: [.query("handle", ["type": "string"], "The device's token")],
                    answers: [
                        .init(200, "An installation's object id", .json(["type": "string"]))
                    ]
                )
            ) { try await findRegistration($0) },
            route(
                .put,
                one,
                RouteDescription(
                    "Make or change the caller's installation of this id",
                    for: Callers.readers.schemes,
                    body: .json(named: "Registration"),
                    needsBody: true,
                    answers: [.init(200, "Registered")]
                )
            ) { try await register($0) },
            route(
                .delete,
                one,
                RouteDescription(
                    "Remove the caller's installation of this id",
                    for: Callers.readers.schemes,
                    answers: [.init(200, "Not there any more")]
                )
            ) { try await unregister($0) },
        ]
    }

    /// `POST /api/register`: returns the id with which the device then registers: that of the
    /// caller's installation with this token, or a new one. Stores nothing.
    private func findRegistration(_ call: SecureCall) async throws -> HTTPServerResponse {
        let reader = try call.caller.requireReader()
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

    /// `PUT /api/register/{id}`: creates or changes that installation, which then is the caller's.
    private func register(_ call: SecureCall) async throws -> HTTPServerResponse {
        let reader = try call.caller.requireReader()
        let id = call.id
        let wanted = try DeviceRegistration(try call.body(), of: reader.identity)
        // The app may have stored the id of another server. After a 410 it requests a new one.
        guard ObjectID.isWellFormed(id) else { throw Self.gone }
        do {
            let keys = try wanted.keys()
            for _ in 0..<Self.maximumAttempts {
                if try await change(id, wanted, keys, reader) { return .empty(200) }
                do {
                    try await make(id, wanted, keys, reader)
                    return .empty(200)
                } catch let error as StorageError where error.kind == .conflict {
                    // Another request created it at the same time.
                    continue
                }
            }
        } catch let error as InstallationError {
            throw SecureRequestError(error.description)
        }
        throw HTTPProblem(
            status: 503,
            detail: "the installation was changed concurrently; try again",
            headers: ["Retry-After": "1"]
        )
    }

    private static let gone = HTTPProblem(
        status: 410,
        detail: "this registration does not exist any more; register again"
    )

    /// - Returns: Whether the installation exists.
    private func change(
        _ id: String,
        _ wanted: DeviceRegistration,
        _ keys: Installation.Keys,
        _ reader: AuthenticatedReader
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
        _ reader: AuthenticatedReader
    ) async throws {
        let app = reader.app.id
        _ = try await database.installations.save(app: app, keys: keys, rule: .azure) { _ in
            let now = Instant.now()
            var installation = Installation(app: app, objectID: id, at: now)
            try wanted.put(into: &installation, now: now)
            return installation
        }
    }

    /// `DELETE /api/register/{id}`: deletes the caller's own installation; another's counts as missing.
    private func unregister(_ call: SecureCall) async throws -> HTTPServerResponse {
        let reader = try call.caller.requireReader()
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
