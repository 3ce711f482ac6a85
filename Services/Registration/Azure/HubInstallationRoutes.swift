import AzureHub
import Cryptography
import Gateway
import HTTPServer
import InstallationStorage
import JSON
import Observability
import PushCore

extension AzureSurface {
    var installationRoutes: [SurfaceRoute] {
        let path = "installations/:id"
        return on(.put, path, .listen) { try await put($0, $1) }
            + on(.patch, path, .listen) { try await patch($0, $1) }
            + on(.get, path, .listen) { try await get($0, $1) }
            + on(.delete, path, .listen) { try await delete($0, $1) }
    }

    /// Creates an installation, or replaces the part that Azure's clients see; the fields of other surfaces
    /// stay.
    private func put(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard let body = try request.hubJSON().object else {
            throw AzureError("an installation is a JSON object")
        }
        let wanted = try HubInstallation(body, id: try request.installationID())
        try await save(wanted, of: caller, namesChannel: true) { existing in
            guard existing?.isHubRegistration != true else {
                throw AzureError(status: 409, "installationId is a registration's id")
            }
            return (existing ?? .fresh(caller.appID), wanted)
        }
        return .empty(200)
    }

    /// Applies a patch to the stored installation under its lock, so that concurrent patches all count.
    private func patch(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let patch = try InstallationPatch(try request.hubJSON())
        let id = try request.installationID()
        // The resulting channel must be locked before the final read of the row.
        for _ in 1...Self.maximumAttempts {
            guard let found = try await find(id, of: caller.appID), !found.isHubRegistration else {
                throw AzureError.installationNotFound
            }
            var expected = try patch.applied(to: HubInstallation(found))
            expected.id = id
            let (platform, channel) = (expected.platform, expected.channel.pushChannel)
            do {
                try await save(expected, of: caller, namesChannel: patch.namesChannel) { existing in
                    guard let existing else { throw AzureError.installationNotFound }
                    var wanted = try patch.applied(to: HubInstallation(existing))
                    wanted.id = id
                    let isAsLocked =
                        wanted.platform == platform && wanted.channel.pushChannel == channel
                    guard isAsLocked || !patch.namesChannel else { throw ConcurrentChange() }
                    return (existing, wanted)
                }
                return .empty(200)
            } catch is ConcurrentChange {
                continue
            }
        }
        throw HTTPProblem(
            status: 503,
            detail: "The installation changes all the time; try again.",
            headers: ["Retry-After": "1"]
        )
    }

    private struct ConcurrentChange: Error {}

    private static let maximumAttempts = 10

    private func get(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard let found = try await find(try request.installationID(), of: caller.appID),
            !found.isHubRegistration
        else { throw AzureError.installationNotFound }
        return .json(
            .object(
                HubInstallation(found).object(
                    isExpired: !found.isValid && found.invalidReason != nil
                )
            ),
            contentType: "application/json; charset=utf-8"
        )
    }

    private func delete(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        if let found = try await find(try request.installationID(), of: caller.appID),
            !found.isHubRegistration
        {
            _ = try await database.installations.delete(
                app: caller.appID,
                objectIDs: [found.objectID]
            )
        }
        return .empty(204)
    }

    func find(_ id: String, of app: String) async throws -> Installation? {
        var filter = InstallationStore.Filter()
        filter.installationID = id
        return try await database.installations.query(app: app, filter, limit: 1).first
    }

    /// Saves an installation. `make` gets the stored installation, under its lock, and returns it
    /// with the part that Azure's clients see. If another installation has the channel, it loses
    /// the channel only to a caller that names it.
    ///
    /// - Parameters:
    ///   - expected: The result of `make` if nothing changes concurrently. The names of its
    ///     templates are recorded, and its id and its channel are locked.
    ///   - caller: The app's caller.
    ///   - namesChannel: Whether the caller names the channel.
    ///   - make: May be called again.
    /// - Returns: The stored installation.
    /// - Throws: The error of `make`; `AzureError`, `InstallationError`, `StorageError`.
    @discardableResult
    func save(
        _ expected: HubInstallation,
        of caller: Caller,
        namesChannel: Bool,
        make: @escaping @Sendable (Installation?) throws -> (Installation, HubInstallation)
    ) async throws -> Installation {
        let app = caller.appID
        try await know(expected.channel.templates.map(\.name), caller)
        let keys = try expected.keys(namesChannel: namesChannel)
        let now = Instant.now()
        let kept = try await database.installations.save(
            app: app,
            keys: keys,
            rule: .azure
        ) { existing in
            let (made, wanted) = try make(existing)
            return try wanted.applied(to: made, namesChannel: namesChannel, now: now)
        }
        saved.add()
        return kept.installation
    }

    /// - Throws: `AzureError` 403 if the hub has reached its limit of template names. The limit is
    ///   lower for the app key, as every phone has that key.
    private func know(_ names: [String], _ caller: Caller) async throws {
        guard !names.isEmpty else { return }
        let limit =
            caller.isMaster ? HubTemplate.maximumNames : HubTemplate.maximumNamesOfClients
        let isKnown = try await database.hubTemplates.know(
            Set(names),
            app: caller.appID,
            limit: limit
        )
        guard isKnown else {
            throw AzureError(
                status: 403,
                caller.isMaster
                    ? "the hub has \(limit) different template names, as many as it may"
                    : "the hub has \(limit) different template names: "
                        + "only its full key may add another"
            )
        }
    }
}

extension Installation {
    static func fresh(_ app: String) -> Installation {
        let now = Instant.now()
        return Installation(app: app, objectID: newObjectID(at: now), at: now)
    }
}

extension HTTPServerRequest {
    fileprivate func installationID() throws(AzureError) -> String {
        let id = pathParameters["id"] ?? ""
        guard (1...256).contains(id.utf8.count), id.utf8.allSatisfy({ $0 >= 0x20 && $0 != 0x7f })
        else { throw AzureError("an installation's id is 1 to 256 bytes of text") }
        return id
    }

    func hubJSON() throws(AzureError) -> JSONValue {
        do throws(JSONError) {
            return try JSONValue.parse(
                body,
                maximumDepth: BodyLimits.depth,
                maximumValues: BodyLimits.valuesOfSmall
            )
        } catch {
            throw AzureError("the body is not JSON: \(error.description)")
        }
    }
}
