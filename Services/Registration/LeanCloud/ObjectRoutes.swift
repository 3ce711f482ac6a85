import Gateway
import HTTPServer
import JSON
import PushCore

/// Installations and identities, each under its own name and as a class; SDKs call the class.
extension LeanCloudSurface {
    var objectRoutes: [LeanCloudRoute] {
        routes(of: .installation, at: ["installations", "classes/_Installation"])
            + refusedUserRoutes
            + routes(of: .identity, at: ["users", "classes/_User"])
    }

    private func routes(
        of objectClass: ObjectOperations.ObjectClass,
        at paths: [String]
    ) -> [LeanCloudRoute] {
        paths.flatMap { path in
            [
                LeanCloudRoute(.post, path) {
                    try await create(objectClass, $0, at: "/1.1/\(paths[0])/")
                },
                LeanCloudRoute(.get, path) { try await find(objectClass, $0) },
                LeanCloudRoute(.get, path + "/:id") { try await read(objectClass, $0) },
                LeanCloudRoute(.put, path + "/:id") { try await update(objectClass, $0) },
                LeanCloudRoute(.delete, path + "/:id") { try await delete(objectClass, $0) },
            ]
        }
    }

    /// The routes of logins, which this service does not have.
    private var refusedUserRoutes: [LeanCloudRoute] {
        [LeanCloudRoute(.get, "users/me") { _ in throw LeanCloudError.notPart("users/me") }]
    }

    /// Creates an object, or changes the installation with the same `installationId` or token: a device that
    /// is saved again keeps its object id.
    private func create(
        _ objectClass: ObjectOperations.ObjectClass,
        _ call: LeanCloudCall,
        at path: String
    ) async throws -> LeanCloudAnswer {
        let saved = try await objects.create(
            objectClass,
            body: try call.object(),
            caller: call.caller
        )
        var answer = call.wantsObject ? saved.object : saved.results
        answer["objectId"] = .string(saved.objectID)
        answer["createdAt"] = .string(saved.createdAt.iso8601)
        if !saved.isNew { answer["updatedAt"] = .string(saved.updatedAt.iso8601) }
        return LeanCloudAnswer(
            .object(answer),
            status: saved.isNew ? 201 : 200,
            location: call.base + path + saved.objectID
        )
    }

    func read(
        _ objectClass: ObjectOperations.ObjectClass,
        _ call: LeanCloudCall
    ) async throws -> LeanCloudAnswer {
        let selection = try call.selection()
        let object = try await objects.read(
            objectClass,
            id: call.path("id"),
            include: try call.include(),
            caller: call.caller
        )
        guard let object else { throw LeanCloudError.objectNotFound(objectClass.className) }
        return LeanCloudAnswer(.object(selection.apply(to: object)))
    }

    func find(
        _ objectClass: ObjectOperations.ObjectClass,
        _ call: LeanCloudCall
    ) async throws -> LeanCloudAnswer {
        let found = try await objects.find(
            objectClass,
            try call.query(),
            caller: call.caller,
            mayBeLater: !call.isInBatch
        )
        return LeanCloudAnswer(found, beside: found.count.map { ["count": JSONValue($0)] } ?? [:])
    }

    private func update(
        _ objectClass: ObjectOperations.ObjectClass,
        _ call: LeanCloudCall
    ) async throws -> LeanCloudAnswer {
        let body = try call.object()
        let saved = try await objects.update(
            objectClass,
            id: call.path("id"),
            body: body,
            condition: try call.condition(),
            caller: call.caller
        )
        var answer = saved.results
        if call.wantsObject {
            for key in body.keys {
                let name = String(key.prefix { $0 != "." })
                if let value = saved.object[name] { answer[name] = value }
            }
        }
        answer["objectId"] = .string(saved.objectID)
        answer["updatedAt"] = .string(saved.updatedAt.iso8601)
        return LeanCloudAnswer(.object(answer))
    }

    /// Deletes one id, or several joined by commas; 404 if none is known.
    func delete(
        _ objectClass: ObjectOperations.ObjectClass,
        _ call: LeanCloudCall
    ) async throws -> LeanCloudAnswer {
        try await objects.delete(
            objectClass,
            ids: call.path("id").split(separator: ",").map(String.init),
            condition: try call.condition(),
            caller: call.caller
        )
        return .empty
    }
}
