import Cryptography
import HTTPServer
import JSON
import Observability
import PushCore
import PushStorage

extension LeanCloudSurface {
    /// The class under its two names; SDKs call the second.
    private static let paths = ["/1.1/installations", "/1.1/classes/_Installation"]

    func addInstallationRoutes(to router: inout Router) {
        for path in Self.paths {
            on(.post, path, in: &router) { request, caller in
                try await save(request, caller)
            }
            on(.get, path, in: &router) { _, _ in
                throw LeanCloudError.notSupported("A query for installations")
            }
            on(.get, path + "/:id", in: &router) { request, caller in
                try await read(request, caller)
            }
            on(.put, path + "/:id", in: &router) { request, caller in
                try await update(request, caller)
            }
            on(.delete, path + "/:id", in: &router) { request, caller in
                try await delete(request, caller)
            }
        }
    }

    /// `POST`: creates an installation, or updates the one that holds the same `installationId` or
    /// token: the same device saved again keeps its object id.
    private func save(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        let body = try request.jsonObject()
        let app = caller.app.id
        let now = Instant.now()
        let fresh = Installation(
            app: app,
            objectID: ObjectID.make(at: now, random: randomUInt64()),
            at: now
        )
        // Operations on a new object start from nothing: the keys are those of the result.
        let keys = try Installation.Keys(try FieldChanges(body, to: [:]).object)
        let saved = try await database.installations.save(app: app, keys: keys) { existing in
            try (existing ?? fresh).changed(by: body, now: now).installation
        }
        self.saved.add()
        let installation = saved.installation
        var answer: JSONObject = request.wantsObject ? installation.answer : [:]
        answer["objectId"] = .string(installation.objectID)
        answer["createdAt"] = .string(installation.createdAt.iso8601)
        if !saved.created { answer["updatedAt"] = .string(installation.updatedAt.iso8601) }
        var response = HTTPServerResponse.json(
            .object(answer),
            status: saved.created ? 201 : 200
        )
        response.headers["location"] =
            request.base + Self.paths[0] + "/" + installation.objectID
        return response
    }

    private func read(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        try request.refuseParameters("keys", "include")
        let id = request.pathParameters["id"] ?? ""
        guard
            let installation = try await database.installations.find(
                app: caller.app.id,
                objectID: id
            )
        else { throw LeanCloudError.objectNotFound("_Installation") }
        return .json(.object(installation.answer))
    }

    private func update(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        try request.refuseParameters("where")
        let body = try request.jsonObject()
        let id = request.pathParameters["id"] ?? ""
        let now = Instant.now()
        let kept = try await database.installations.update(app: caller.app.id, objectID: id) {
            $0 = try $0.changed(by: body, now: now).installation
        }
        guard let kept else { throw LeanCloudError.objectNotFound("_Installation") }
        saved.add()
        let object = kept.answer
        var answer: JSONObject = [:]
        // Parse's clients need back what an operation made of a key, LeanCloud's what they ask for.
        for (key, value) in body {
            let name = String(key.prefix { $0 != "." })
            guard request.wantsObject || value["__op"] != nil else { continue }
            if let value = object[name] { answer[name] = value }
        }
        answer["objectId"] = .string(kept.objectID)
        answer["updatedAt"] = .string(kept.updatedAt.iso8601)
        return .json(.object(answer))
    }

    /// One id, or several joined by commas: all are deleted, or, where none is known, 404.
    private func delete(
        _ request: HTTPServerRequest,
        _ caller: Caller
    ) async throws -> HTTPServerResponse {
        guard caller.rights == .master else {
            throw LeanCloudError.masterKeyNeeded(for: "Deleting an installation")
        }
        try request.refuseParameters("where")
        let ids = (request.pathParameters["id"] ?? "").split(separator: ",").map(String.init)
        guard !ids.isEmpty, ids.count <= 1000 else {
            throw LeanCloudError(code: 104, "Expected 1 to 1000 ids.")
        }
        let deleted = try await database.installations.delete(
            app: caller.app.id,
            objectIDs: ids
        )
        guard deleted > 0 else { throw LeanCloudError.objectNotFound("_Installation") }
        return .json([:])
    }
}

extension Installation {
    /// What a save makes of it.
    fileprivate func changed(
        by body: JSONObject,
        now: Instant
    ) throws -> (installation: Installation, results: JSONObject) {
        let changes = try FieldChanges(body, to: object)
        var installation = self
        try installation.take(changes.object, changed: changes.changed, now: now)
        return (installation, changes.results)
    }

    /// The whole object as clients read it.
    fileprivate var answer: JSONObject {
        var answer = object
        answer["objectId"] = .string(objectID)
        answer["createdAt"] = .string(createdAt.iso8601)
        answer["updatedAt"] = .string(updatedAt.iso8601)
        return answer
    }
}

extension HTTPServerRequest {
    /// LeanCloud's and the JavaScript SDK's way of asking for the saved object.
    fileprivate var wantsObject: Bool { flag("fetchWhenSave") || flag("new") }

    /// Scheme and authority, as the caller wrote them.
    fileprivate var base: String {
        guard let host = header("host") else { return "" }
        return "\(scheme)://\(host)"
    }

    /// What would change the answer's meaning and is not built must not be ignored.
    fileprivate func refuseParameters(_ names: String...) throws(LeanCloudError) {
        for name in names where queryValue(name)?.isEmpty == false {
            throw .notSupported("The parameter \(name)")
        }
    }
}

private func randomUInt64() -> UInt64 {
    randomBytes(8).reduce(0) { $0 << 8 | UInt64($1) }
}
