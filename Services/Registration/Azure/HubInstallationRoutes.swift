import Cryptography
import HTTPServer
import JSON
import Observability
import PushCore
import PushStorage

extension AzureSurface {
    func addInstallationRoutes(to router: inout Router) {
        let path = "installations/:id"
        on(.put, path, .listen, in: &router) { try await put($0, $1) }
        on(.patch, path, .listen, in: &router) { try await patch($0, $1) }
        on(.get, path, .listen, in: &router) { try await get($0, $1) }
        on(.delete, path, .listen, in: &router) { try await delete($0, $1) }
    }

    /// Creates, or replaces what Azure's clients see of it; what other surfaces keep there stays.
    private func put(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard let body = try request.hubJSON().object else {
            throw AzureError("an installation is a JSON object")
        }
        let wanted = try HubInstallation(body, id: try request.installationID())
        try await save(wanted, of: caller.app.id, namesChannel: true) { existing in
            existing ?? .fresh(caller.app.id)
        }
        return .empty(200)
    }

    private func patch(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let patch = try InstallationPatch(try request.hubJSON())
        let id = try request.installationID()
        // The channel that comes out of it must be locked before the row is read for good.
        var attempt = 1
        while true {
            guard let found = try await find(id, of: caller.app.id) else {
                throw AzureError.installationNotFound
            }
            let before = HubInstallation(found)
            var wanted = try patch.applied(to: before)
            wanted.id = id
            do {
                let namesChannel = patch.namesChannel || wanted.platform != before.platform
                try await save(wanted, of: caller.app.id, namesChannel: namesChannel) { existing in
                    guard let existing else { throw AzureError.installationNotFound }
                    guard HubInstallation(existing) == before else { throw ChangedMeanwhile() }
                    return existing
                }
                return .empty(200)
            } catch is ChangedMeanwhile where attempt < 10 {
                attempt += 1
            }
        }
    }

    private struct ChangedMeanwhile: Error {}

    private func get(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard let found = try await find(try request.installationID(), of: caller.app.id) else {
            throw AzureError.installationNotFound
        }
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
        if let found = try await find(try request.installationID(), of: caller.app.id) {
            _ = try await database.installations.delete(
                app: caller.app.id,
                objectIDs: [found.objectID]
            )
        }
        return .empty(204)
    }

    private func find(_ id: String, of app: String) async throws -> Installation? {
        var filter = InstallationStore.Filter()
        filter.installationID = id
        return try await database.installations.query(app: app, filter, limit: 1).first
    }

    /// `make` gets the installation that is there, under its lock. Only who names a channel gets it
    /// from whoever has it.
    private func save(
        _ wanted: HubInstallation,
        of app: String,
        namesChannel: Bool,
        make: @escaping @Sendable (Installation?) throws -> Installation
    ) async throws {
        let names = Set(wanted.channel.templates.map(\.name))
        if !names.isEmpty {
            guard try await database.hubTemplates.know(names, app: app) else {
                throw AzureError(
                    status: 403,
                    "the hub has more than \(HubTemplate.maximumNames) different template names"
                )
            }
        }
        var object: JSONObject = [:]
        _ = wanted.write(to: &object, provider: nil)
        if !namesChannel { object = ["installationId": .string(wanted.id)] }
        let keys = try Installation.Keys(object)
        let now = Instant.now()
        _ = try await database.installations.save(
            app: app,
            keys: keys,
            rule: .azure
        ) { existing in
            var installation = try make(existing)
            var object = installation.object
            var changed = wanted.write(to: &object, provider: installation.platform)
            if !namesChannel { changed.subtract(HubInstallation.routeFields) }
            try installation.take(
                object,
                changed: changed,
                now: now,
                isChannel: { TagName.isValid($0) || ChannelName.isValid($0) }
            )
            if let expiresAt = wanted.expiresAt, expiresAt <= now {
                installation.isValid = false
                installation.invalidReason = Maintenance.hubExpiredReason
            } else if installation.invalidReason == Maintenance.hubExpiredReason {
                installation.isValid = true
                installation.invalidReason = nil
            }
            return installation
        }
        saved.add()
    }
}

extension Installation {
    fileprivate static func fresh(_ app: String) -> Installation {
        let now = Instant.now()
        let random = randomBytes(8).reduce(UInt64(0)) { $0 << 8 | UInt64($1) }
        return Installation(app: app, objectID: ObjectID.make(at: now, random: random), at: now)
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
            return try JSONValue.parse(body, maximumDepth: 32)
        } catch {
            throw AzureError("the body is not JSON: \(error.description)")
        }
    }
}
