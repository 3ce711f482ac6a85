import Door
import JSON
import PushCore
import PushStorage

extension ObjectOperations {
    /// What a query finds, to be read when its answer is under way.
    func later(
        _ objectClass: ObjectClass,
        _ query: ObjectQuery,
        _ caller: Caller,
        count: Int?
    ) async throws -> Found {
        let app = caller.appID
        let places = try await caller.asking { [database] in
            switch objectClass {
            case .installation:
                try await database.installations.places(
                    app: app,
                    where: query.condition,
                    order: query.order,
                    limit: query.limit,
                    skip: query.skip
                )
            case .identity:
                try await database.identities.places(
                    app: app,
                    where: query.condition,
                    order: query.order,
                    limit: query.limit,
                    skip: query.skip
                )
            case .pushRecord:
                try await database.pushes.places(
                    app: app,
                    where: query.condition,
                    order: query.order,
                    limit: query.limit,
                    skip: query.skip
                )
            }
        }
        let objects = LaterObjects(places: places) { ids in
            let found = try await read(ids, objectClass, caller)
            return ids.compactMap { found[$0].map(query.selection.apply(to:)) }
        }
        return Found(results: [], count: count, isCut: places.isCut, later: objects)
    }

    private func read(
        _ ids: [String],
        _ objectClass: ObjectClass,
        _ caller: Caller
    ) async throws -> TextMap<JSONObject> {
        let app = caller.appID
        var found: TextMap<JSONObject> = [:]
        switch objectClass {
        case .installation:
            for installation in try await database.installations.find(app: app, objectIDs: ids) {
                found[installation.objectID] = installation.wholeObject
            }
        case .identity:
            for identity in try await database.identities.find(app: app, objectIDs: ids) {
                found[identity.objectID] = shown(identity, to: caller)
            }
        case .pushRecord:
            let pushes = try await Array(database.pushes.find(Set(ids)).values)
            for (push, record) in zip(pushes, try await records(of: pushes)) {
                found[push.id] = record
            }
        }
        return found
    }
}
