import Cryptography
import Gateway
import InstallationStorage
import JSON
import Observability
import PushCore
import PushStorage
import Storage

/// Reads objects: one by its id, the results of a query, their count, and the objects that pointers refer to.
extension ObjectOperations {
    // MARK: Reading

    /// Returns one object; `nil` if the id is unknown. The app key suffices, as an id cannot be guessed; with
    /// it, contact fields and the content of a push are hidden.
    func read(
        _ objectClass: ObjectClass,
        id: String,
        include: [String] = [],
        caller: Caller
    ) async throws -> JSONObject? {
        let app = caller.appID
        var object: JSONObject?
        switch objectClass {
        case .installation:
            object = try await database.installations.find(app: app, objectID: id)?.wholeObject
        case .identity:
            object = try await database.identities.find(app: app, objectID: id)
                .map { shown($0, to: caller) }
        case .pushRecord:
            guard let push = try await database.pushes.find(id), push.app == app,
                try await !database.pushes.isHidden(id)
            else { return nil }
            return PushRecord.object(
                of: try await database.receipts.added(to: push),
                platforms: try await platforms(of: [push])[push.id],
                withContent: caller.isMaster
            )
        }
        guard let found = object else { return nil }
        return try await including(include, in: [found], caller).first
    }

    /// The results of a query.
    struct Found: Sendable {
        var results: [JSONObject]
        /// The total number of matches, if the query asks for it.
        var count: Int?
        /// Whether there are more results than one response may hold.
        var isCut = false
        /// The results, in place of `results`, if they are read while the response is sent.
        var later: StreamedObjects?
    }

    /// Returns the results of a query.
    ///
    /// - Throws: `PageTooLarge` if they exceed one response.
    func find(
        _ objectClass: ObjectClass,
        _ query: ObjectQuery,
        caller: Caller,
        mayBeLater: Bool = false
    ) async throws -> Found {
        let found = try await page(objectClass, query, caller: caller, mayBeLater: mayBeLater)
        guard !found.isCut else { throw PageTooLarge() }
        return found
    }

    /// Returns as many results as one response may hold, for clients that detect a cut and request
    /// the rest. A large result may be streamed in parts if `mayBeLater`.
    func page(
        _ objectClass: ObjectClass,
        _ query: ObjectQuery,
        caller: Caller,
        mayBeLater: Bool = false
    ) async throws -> Found {
        try requireFinder(caller, of: objectClass)
        try caller.requireQueryAllowed(
            query.condition,
            order: query.order,
            of: objectClass.className
        )
        try await caller.waitForRoom()
        let count = query.wantsCount ? try await count(objectClass, query.condition, caller) : nil
        guard query.limit > 0 else { return Found(results: [], count: count) }
        // Included objects must be read before the response begins, to know their sizes.
        let mayBeLater = mayBeLater && query.include.isEmpty
        let (objects, isCut) = try await first(
            mayBeLater ? PageBound.partBytes : PageBound.bytes,
            of: objectClass,
            query,
            caller
        )
        try caller.checkPresence()
        if mayBeLater, isCut { return try await later(objectClass, query, caller, count: count) }
        let whole = try await including(query.include, in: objects, caller)
        return Found(
            results: whole.map(query.selection.apply(to:)),
            count: count,
            isCut: isCut
        )
    }

    /// Returns the first results of a query, as whole objects within a number of bytes.
    private func first(
        _ bytes: Int,
        of objectClass: ObjectClass,
        _ query: ObjectQuery,
        _ caller: Caller
    ) async throws -> (objects: [JSONObject], isCut: Bool) {
        let app = caller.appID
        switch objectClass {
        case .installation:
            let page = try await caller.withCancellableQuery { [database] in
                try await database.installations.page(
                    app: app,
                    where: query.condition,
                    order: query.order,
                    limit: query.limit,
                    skip: query.skip,
                    bytes: bytes
                )
            }
            return (page.elements.map(\.wholeObject), page.isCut)
        case .identity:
            let page = try await caller.withCancellableQuery { [database] in
                try await database.identities.page(
                    app: app,
                    where: query.condition,
                    order: query.order,
                    limit: query.limit,
                    skip: query.skip,
                    bytes: bytes
                )
            }
            return (page.elements.map { shown($0, to: caller) }, page.isCut)
        case .pushRecord:
            let page = try await caller.withCancellableQuery { [database] in
                try await database.pushes.page(
                    app: app,
                    where: query.condition,
                    order: query.order,
                    limit: query.limit,
                    skip: query.skip,
                    bytes: bytes
                )
            }
            return (try await records(of: page.elements), page.isCut)
        }
    }

    func records(of pushes: [StoredPush]) async throws -> [JSONObject] {
        let platforms = try await platforms(of: pushes)
        return try await database.receipts.added(to: pushes).map {
            PushRecord.object(of: $0, platforms: platforms[$0.id], withContent: true)
        }
    }

    private func count(
        _ objectClass: ObjectClass,
        _ condition: Where,
        _ caller: Caller
    ) async throws -> Int {
        let app = caller.appID
        return try await caller.withCancellableQuery { [database] in
            switch objectClass {
            case .installation:
                try await database.installations.count(app: app, where: condition)
            case .identity: try await database.identities.count(app: app, where: condition)
            case .pushRecord: try await database.pushes.count(app: app, where: condition)
            }
        }
    }

    /// Returns the counts by platform. After a statement timeout there are no counts, so that the
    /// caller still gets the rest of the record.
    func platforms(of pushes: [StoredPush]) async throws -> [String: [PlatformCount]] {
        do {
            return try await database.pushes.platforms(of: pushes)
        } catch let error as StorageError where error.isStatementTimeout {
            return [:]
        }
    }

    /// Returns stored pushes, for surfaces that show them in their own fields.
    func pushes(_ query: ObjectQuery, caller: Caller) async throws -> (
        pushes: [StoredPush], count: Int?
    ) {
        try requireFinder(caller, of: .pushRecord)
        let app = caller.appID
        let count = query.wantsCount ? try await count(.pushRecord, query.condition, caller) : nil
        guard query.limit > 0 else { return ([], count) }
        let pushes = try await caller.withCancellableQuery { [database] in
            try await database.pushes.query(
                app: app,
                where: query.condition,
                order: query.order,
                limit: query.limit,
                skip: query.skip
            )
        }
        return (pushes, count)
    }

    // MARK: Pointers

    static let maximumIncludes = 8

    /// Returns the objects with the pointed-to objects in place of their pointers.
    private func including(
        _ names: [String],
        in objects: [JSONObject],
        _ caller: Caller
    ) async throws -> [JSONObject] {
        guard !names.isEmpty else { return objects }
        guard names.count <= Self.maximumIncludes else {
            throw ObjectError(code: 102, "include: at most \(Self.maximumIncludes) names")
        }
        if names.contains("*") { return try await includingAll(in: objects, caller) }
        return try await including(paths: names, in: objects, caller)
    }

    /// The depth of pointer paths, such as `owner.phone`.
    private static let maximumIncludeDepth = 2

    /// Resolves pointers level by level: a value that is not a pointer, or has no object, stays.
    private func including(
        paths: [String],
        in objects: [JSONObject],
        _ caller: Caller,
        depth: Int = 1
    ) async throws -> [JSONObject] {
        guard depth <= Self.maximumIncludeDepth else {
            throw ObjectError(
                code: 102,
                "include: a path has at most \(Self.maximumIncludeDepth) names."
            )
        }
        var inner: [(name: String, rest: [String])] = []
        for path in paths {
            let parts = path.split(separator: ".", maxSplits: 1).map(String.init)
            guard let name = parts.first else { continue }
            if let place = inner.firstIndex(where: { $0.name.isSame(as: name) }) {
                inner[place].rest += parts.dropFirst()
            } else {
                inner.append((name, Array(parts.dropFirst())))
            }
        }
        let names = inner.map { $0.name }
        var result = try await replacing(in: objects, caller) { _ in names }
        for (name, rest) in inner where !rest.isEmpty {
            var places: [Int] = []
            var targets: [JSONObject] = []
            for (place, object) in result.enumerated() {
                guard let target = object[name]?.object else { continue }
                places.append(place)
                targets.append(target)
            }
            let included = try await including(
                paths: rest,
                in: targets,
                caller,
                depth: depth + 1
            )
            for (place, object) in zip(places, included) { result[place][name] = .object(object) }
        }
        return result
    }

    private func includingAll(
        in objects: [JSONObject],
        _ caller: Caller
    ) async throws -> [JSONObject] {
        try await replacing(in: objects, caller) { object in
            Array(object.keys.filter { Pointer(object[$0]) != nil }.prefix(Self.maximumIncludes))
        }
    }

    private func replacing(
        in objects: [JSONObject],
        _ caller: Caller,
        _ names: (JSONObject) -> [String]
    ) async throws -> [JSONObject] {
        let pointers = objects.flatMap { object in
            names(object).compactMap { Pointer(object[$0]) }
        }
        let wanted = Dictionary(pointers.map { ($0, 1) }, uniquingKeysWith: +)
        let known = try await includedObjects(wanted, caller)
        return objects.map { object in
            var object = object
            for name in names(object) {
                guard let pointer = Pointer(object[name]), let found = known[pointer] else {
                    continue
                }
                object[name] = .object(found)
            }
            return object
        }
    }

    /// The limit of included objects, in bytes of JSON. An object that is included at several
    /// places counts at each.
    private static let maximumIncludedBytes = 16 << 20
    /// The number of objects that are read at once, as their total size is known only afterwards.
    private static let includedAtOnce = 100

    /// - Parameters:
    ///   - wanted: The objects, each with the number of places that include it.
    ///   - caller: The caller that sees them.
    /// - Returns: The objects that exist.
    /// - Throws: `ObjectError` 116 if their total size is too large.
    private func includedObjects(
        _ wanted: [Pointer: Int],
        _ caller: Caller
    ) async throws -> [Pointer: JSONObject] {
        var known: [Pointer: JSONObject] = [:]
        var left = Self.maximumIncludedBytes
        for className in ["_User", "_Installation"] {
            let ids = wanted.keys.filter { $0.className.text == className }
                .map(\.objectID.text)
            for start in stride(from: 0, to: ids.count, by: Self.includedAtOnce) {
                let some = Array(ids[start..<min(start + Self.includedAtOnce, ids.count)])
                for (id, object) in try await read(className, ids: some, caller) {
                    let pointer = Pointer(className: className, objectID: id)
                    var object = object
                    object["__type"] = "Object"
                    object["className"] = .string(className)
                    left -= JSONValue.object(object).bytes.count * (wanted[pointer] ?? 0)
                    guard left >= 0 else {
                        throw ObjectError(
                            code: 116,
                            "The included objects are too large in all; ask for fewer at once."
                        )
                    }
                    known[pointer] = object
                }
            }
        }
        return known
    }

    private func read(
        _ className: String,
        ids: [String],
        _ caller: Caller
    ) async throws -> [(String, JSONObject)] {
        let app = caller.appID
        guard className == "_User" else {
            return try await database.installations.find(app: app, objectIDs: ids)
                .map { ($0.objectID, $0.wholeObject) }
        }
        return try await database.identities.find(app: app, objectIDs: ids)
            .map { ($0.objectID, shown($0, to: caller)) }
    }

    private struct Pointer: Hashable {
        let className: ExactString
        let objectID: ExactString

        init(className: String, objectID: String) {
            self.className = ExactString(className)
            self.objectID = ExactString(objectID)
        }

        init?(_ value: JSONValue?) {
            guard let object = value?.object, object["__type"] == "Pointer",
                let className = object["className"]?.string,
                let id = object["objectId"]?.string
            else { return nil }
            self.init(className: className, objectID: id)
        }
    }
}
