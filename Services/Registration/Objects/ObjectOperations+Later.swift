import Gateway
import InstallationStorage
import JSON
import PushCore
import PushStorage

extension ObjectOperations {
    /// Finds the results of a query, which are read while the response is sent.
    func later(
        _ objectClass: ObjectClass,
        _ query: ObjectQuery,
        _ caller: Caller,
        count: Int?
    ) async throws -> Found {
        let app = caller.appID
        let places = try await caller.withCancellableQuery { [database] in
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
        let objects = StreamedObjects(places: places) { ids in
            try await part(of: ids, objectClass, caller, query.selection)
        }
        return Found(results: [], count: count, isCut: places.isCut, later: objects)
    }

    private func part(
        of ids: [String],
        _ objectClass: ObjectClass,
        _ caller: Caller,
        _ selection: KeySelection
    ) async throws -> StreamedObjects.Part {
        func part<Element>(
            _ page: ObjectPage<Element>,
            _ id: (Element) -> String,
            _ objects: [JSONObject]
        ) -> StreamedObjects.Part {
            StreamedObjects.Part(
                objects: objects.map(selection.apply(to:)),
                bytes: page.bytes,
                last: page.isCut ? page.elements.last.map(id) : nil
            )
        }
        let app = caller.appID
        switch objectClass {
        case .installation:
            let page = try await database.installations.part(app: app, of: ids)
            return part(page, \.objectID, page.elements.map(\.wholeObject))
        case .identity:
            let page = try await database.identities.part(app: app, of: ids)
            return part(page, \.objectID, page.elements.map { shown($0, to: caller) })
        case .pushRecord:
            let page = try await database.pushes.part(of: ids)
            return part(page, \.id, try await records(of: page.elements))
        }
    }
}
