import Cryptography
import Door
import JSON
import Observability
import PushCore
import PushStorage

/// What clients may ask of the three classes of objects, whichever surface they speak: who may do
/// what, what a save changes, what a query finds.
///
/// One value a loop, over that loop's database. It throws `ObjectError`, and errors that
/// `ObjectError.init(_:)` puts into words; each surface tells them in its own form.
struct ObjectOperations: Sendable {
    let database: PushDatabase
    let saved: Counter

    enum ObjectClass: Sendable, CaseIterable {
        /// `_Installation`.
        case installation
        /// `_User`.
        case identity
        /// `_Notification`, Parse's `_PushStatus`: read, found and hidden, never saved.
        case pushRecord

        init?(className: String) {
            switch className {
            case "_Installation": self = .installation
            case "_User": self = .identity
            case "_Notification", "_PushStatus": self = .pushRecord
            default: return nil
            }
        }

        var className: String {
            switch self {
            case .installation: "_Installation"
            case .identity: "_User"
            case .pushRecord: "_Notification"
            }
        }
    }

    struct Saved: Sendable {
        let objectID: String
        let createdAt: Instant
        let updatedAt: Instant
        /// False where an object that was there already took the save.
        let isNew: Bool
        /// The whole object, as read: most answers do without.
        var object: JSONObject { whole() }
        private let whole: @Sendable () -> JSONObject
        /// What operators made of the keys that they changed, but for those they deleted.
        let results: JSONObject
    }

    static let maximumIDs = 1000
    /// As the text that it is kept as; one that grows beyond is refused.
    private static let maximumObjectBytes = 256 * 1024

    // MARK: Saving

    /// Creates an object; or, where the rule says that an installation that is there is meant,
    /// changes that one. Apple's SDKs of LeanCloud create each time, with the object id that they
    /// know: so one that was deleted meanwhile begins anew, and any other keeps its id and its fields
    /// when its token changes.
    func create(
        _ objectClass: ObjectClass,
        body: JSONObject,
        rule: SaveRule = .leanCloud,
        caller: Caller
    ) async throws -> Saved {
        let app = caller.appID
        let now = Instant.now()
        switch objectClass {
        case .installation:
            if rule == .leanCloud, let known = body["objectId"]?.string, !known.isEmpty,
                let kept = try await changed(known, body, nil, rule, caller)
            {
                saved.add()
                return Saved(kept, isNew: false, body: body)
            }
            // Operations on a new object start from nothing: the keys are those of the result.
            let changes = try FieldChanges(body, to: [:])
            let keys = try Installation.Keys(changes.object)
            let kept = try await database.installations.save(
                app: app,
                keys: keys,
                rule: rule,
                fields: try await newFields(changes, objectClass, caller)
            ) { existing in
                let installation =
                    existing ?? Installation(app: app, objectID: newObjectID(at: now), at: now)
                return try installation.changed(by: body, now: now)
            }
            saved.add()
            return Saved(kept.installation, isNew: kept.created, body: body)
        case .identity:
            try requireMaster(caller, for: "Creating an identity")
            let changes = try FieldChanges(body, to: [:])
            let kept = try await database.identities.create(
                Identity(
                    app: app,
                    objectID: newObjectID(at: now),
                    fields: try Self.identityFields(changes),
                    createdAt: now,
                    updatedAt: now
                ),
                fields: try await newFields(changes, objectClass, caller)
            )
            return Saved(kept, isNew: true, body: body)
        case .pushRecord:
            throw ObjectError(status: 403, code: 119, "Push records are made by pushes alone.")
        }
    }

    /// Changes the fields that the body names; of another installation than the one of the id where
    /// the rule says so.
    ///
    /// - Throws: 101 for an unknown id, 305 where the object does not match the condition.
    func update(
        _ objectClass: ObjectClass,
        id: String,
        body: JSONObject,
        condition: Where? = nil,
        rule: SaveRule = .leanCloud,
        caller: Caller
    ) async throws -> Saved {
        try caller.requireAskable(condition, of: objectClass.className)
        switch objectClass {
        case .installation:
            guard let kept = try await changed(id, body, condition, rule, caller) else {
                throw ObjectError.objectNotFound(objectClass.className)
            }
            saved.add()
            return Saved(kept, isNew: false, body: body)
        case .identity:
            try requireMaster(caller, for: "Changing an identity")
            let change = try await database.identities.update(
                app: caller.appID,
                objectID: id,
                where: condition ?? .everything,
                fields: try await newFields(
                    try FieldChanges(body, to: [:]),
                    objectClass,
                    caller
                )
            ) { try Self.identityFields(try FieldChanges(body, to: $0)) }
            switch change {
            case .changed(let identity): return Saved(identity, isNew: false, body: body)
            case .unknown: throw ObjectError.objectNotFound(objectClass.className)
            case .unmatched: throw ObjectError.conditionFailed
            }
        case .pushRecord:
            throw ObjectError(status: 403, code: 119, "Push records cannot be changed.")
        }
    }

    /// The installation of that id as the body changes it; `nil` where there is none.
    private func changed(
        _ id: String,
        _ body: JSONObject,
        _ condition: Where?,
        _ rule: SaveRule,
        _ caller: Caller
    ) async throws -> Installation? {
        let now = Instant.now()
        let changes = try FieldChanges(body, to: [:])
        do {
            return try await database.installations.update(
                app: caller.appID,
                objectID: id,
                keys: Installation.Keys(changes.object),
                rule: rule,
                condition: condition,
                fields: try await newFields(changes, .installation, caller)
            ) { $0 = try $0.changed(by: body, now: now) }
        } catch let error as InstallationError where error.code == 305 {
            throw ObjectError.conditionFailed
        }
    }

    /// Whether a save uses each field as what it is; what it is the first to use it learns.
    private func newFields(
        _ changes: FieldChanges,
        _ objectClass: ObjectClass,
        _ caller: Caller
    ) async throws -> NewFields {
        try await database.fields.check(
            changes.uses,
            app: caller.appID,
            className: objectClass.className,
            version: caller.fieldsVersion
        )
    }

    private static func identityFields(_ changes: FieldChanges) throws -> JSONObject {
        let changed = try Identity.checked(changes.object, changed: changes.changed)
        try checkSize(changed)
        return changed
    }

    static func checkSize(_ object: JSONObject) throws(ObjectError) {
        guard JSONValue.object(object).keptByteCount <= maximumObjectBytes else {
            throw ObjectError(code: 116, "The object is too large: at most 256 KiB.")
        }
    }

    // MARK: Deleting

    /// - Returns: How many are gone, at least one.
    /// - Throws: 101 where none of the ids is known, 305 where none matches the condition.
    @discardableResult
    func delete(
        _ objectClass: ObjectClass,
        ids: [String],
        condition: Where? = nil,
        caller: Caller
    ) async throws -> Int {
        guard !ids.isEmpty, ids.count <= Self.maximumIDs, ids.allSatisfy({ !$0.isEmpty }) else {
            throw ObjectError(code: 104, "Expected 1 to \(Self.maximumIDs) ids.")
        }
        try caller.requireAskable(condition, of: objectClass.className)
        let app = caller.appID
        let gone: Int
        switch objectClass {
        case .installation:
            guard caller.mayDelete else {
                throw ObjectError.masterKeyNeeded(for: "Deleting an installation")
            }
            gone =
                if let condition {
                    try await database.installations.delete(
                        app: app,
                        objectIDs: ids,
                        where: condition
                    )
                } else {
                    try await database.installations.delete(app: app, objectIDs: ids)
                }
        case .identity:
            try requireMaster(caller, for: "Deleting an identity")
            gone = try await database.identities.delete(
                app: app,
                objectIDs: ids,
                where: condition ?? .everything
            )
        case .pushRecord:
            try requireMaster(caller, for: "Deleting a push record")
            guard condition == nil else {
                throw ObjectError.notSupported("A condition on deleting push records")
            }
            gone = try await database.pushes.hide(app: app, ids: ids)
        }
        if gone > 0 { return gone }
        if condition != nil, try await isAny(of: ids, objectClass, app) {
            throw ObjectError.conditionFailed
        }
        throw ObjectError.objectNotFound(objectClass.className)
    }

    private func isAny(
        of ids: [String],
        _ objectClass: ObjectClass,
        _ app: String
    ) async throws -> Bool {
        switch objectClass {
        case .installation:
            try await database.installations.isAny(app: app, of: ids)
        case .identity: try await database.identities.isAny(app: app, of: ids)
        case .pushRecord: false
        }
    }

    // MARK: Reading

    /// One object; `nil` where there is none of that id. The app key is enough, as an id is what
    /// cannot be guessed; it shows neither how to reach a person nor what a push carried.
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
                of: push,
                platforms: try await platforms(of: [push])[push.id],
                withContent: caller.isMaster
            )
        }
        guard let found = object else { return nil }
        return try await including(include, in: [found], caller).first
    }

    /// What a query finds.
    struct Found: Sendable {
        var results: [JSONObject]
        /// How many there are in all, where it asks for that.
        var count: Int?
        /// There are more than these, which is as much as one answer may hold.
        var isCut = false
        /// In place of `results`, where they are to be read while the answer is taken.
        var later: LaterObjects?
    }

    /// The objects that a query finds.
    ///
    /// - Throws: `PageTooLarge` where they are more than one answer may hold.
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

    /// The same as far as one answer goes, for clients that can tell, and ask for the rest. What is
    /// large may be read later, part by part, where the answer can be made so.
    func page(
        _ objectClass: ObjectClass,
        _ query: ObjectQuery,
        caller: Caller,
        mayBeLater: Bool = false
    ) async throws -> Found {
        try requireFinder(caller, of: objectClass)
        try caller.requireAskable(
            query.condition,
            order: query.order,
            of: objectClass.className
        )
        try await caller.waitForRoom()
        let count = query.wantsCount ? try await count(objectClass, query.condition, caller) : nil
        guard query.limit > 0 else { return Found(results: [], count: count) }
        // What pointers stand for is weighed once it is read, which has to be before the answer begins.
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

    /// The first bytes of what a query finds, in whole objects.
    private func first(
        _ bytes: Int,
        of objectClass: ObjectClass,
        _ query: ObjectQuery,
        _ caller: Caller
    ) async throws -> (objects: [JSONObject], isCut: Bool) {
        let app = caller.appID
        switch objectClass {
        case .installation:
            let page = try await caller.asking { [database] in
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
            let page = try await caller.asking { [database] in
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
            let page = try await caller.asking { [database] in
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
        return pushes.map {
            PushRecord.object(of: $0, platforms: platforms[$0.id], withContent: true)
        }
    }

    private func count(
        _ objectClass: ObjectClass,
        _ condition: Where,
        _ caller: Caller
    ) async throws -> Int {
        let app = caller.appID
        return try await caller.asking { [database] in
            switch objectClass {
            case .installation:
                try await database.installations.count(app: app, where: condition)
            case .identity: try await database.identities.count(app: app, where: condition)
            case .pushRecord: try await database.pushes.count(app: app, where: condition)
            }
        }
    }

    /// What counts too slowly is left out of a record: the rest of it is worth more.
    func platforms(of pushes: [StoredPush]) async throws -> [String: [PlatformCount]] {
        do {
            return try await database.pushes.platforms(of: pushes)
        } catch let error as StorageError where error.isStatementTimeout {
            return [:]
        }
    }

    /// Pushes as they are kept, for surfaces that show them in fields of their own.
    func pushes(_ query: ObjectQuery, caller: Caller) async throws -> (
        pushes: [StoredPush], count: Int?
    ) {
        try requireFinder(caller, of: .pushRecord)
        let app = caller.appID
        let count = query.wantsCount ? try await count(.pushRecord, query.condition, caller) : nil
        guard query.limit > 0 else { return ([], count) }
        let pushes = try await caller.asking { [database] in
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

    /// The objects with those that they point to in the pointers' place.
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
        for name in names where name.contains(".") {
            throw ObjectError.notSupported("A path in include")
        }
        return try await replacing(in: objects, caller) { _ in names }
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
        let known = try await pointedTo(wanted, caller)
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

    /// What pointers take the place of: as text, and once for each place that it goes to.
    private static let maximumIncludedBytes = 16 << 20
    /// Objects that are read at once, as what is too large in all is known only then.
    private static let includedAtOnce = 100

    /// - Parameters:
    ///   - wanted: How often each of them is asked for.
    ///   - caller: To whom they are shown.
    /// - Returns: Those that there are.
    /// - Throws: `ObjectError` 116 where they are too large in all.
    private func pointedTo(
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
        let className: ExactText
        let objectID: ExactText

        init(className: String, objectID: String) {
            self.className = ExactText(className)
            self.objectID = ExactText(objectID)
        }

        init?(_ value: JSONValue?) {
            guard let object = value?.object, object["__type"] == "Pointer",
                let className = object["className"]?.string,
                let id = object["objectId"]?.string
            else { return nil }
            self.init(className: className, objectID: id)
        }
    }

    // MARK: Who may

    private func requireMaster(_ caller: Caller, for what: String) throws(ObjectError) {
        guard caller.isMaster else { throw .masterKeyNeeded(for: what) }
    }

    /// What a push carried is its sender's alone.
    private func requireFinder(
        _ caller: Caller,
        of objectClass: ObjectClass
    ) throws(ObjectError) {
        switch objectClass {
        case .installation, .identity:
            guard caller.mayFind else {
                throw .masterKeyNeeded(for: "A query for \(objectClass.className)")
            }
        case .pushRecord: try requireMaster(caller, for: "A query for push records")
        }
    }

    func shown(_ identity: Identity, to caller: Caller) -> JSONObject {
        var object = identity.wholeObject
        guard !caller.isMaster else { return object }
        for field in HiddenFields.names { object.removeValue(forKey: field) }
        return object
    }
}

extension ObjectOperations.Saved {
    fileprivate init(_ installation: Installation, isNew: Bool, body: JSONObject) {
        self.init(
            objectID: installation.objectID,
            createdAt: installation.createdAt,
            updatedAt: installation.updatedAt,
            isNew: isNew,
            body: body,
            whole: { installation.wholeObject }
        )
    }

    fileprivate init(_ identity: Identity, isNew: Bool, body: JSONObject) {
        self.init(
            objectID: identity.objectID,
            createdAt: identity.createdAt,
            updatedAt: identity.updatedAt,
            isNew: isNew,
            body: body,
            whole: { identity.wholeObject }
        )
    }

    private init(
        objectID: String,
        createdAt: Instant,
        updatedAt: Instant,
        isNew: Bool,
        body: JSONObject,
        whole: @escaping @Sendable () -> JSONObject
    ) {
        var results: JSONObject = [:]
        let operated = body.filter { _, value in
            value["__op"]?.string.map { $0 != "Delete" } ?? false
        }
        if !operated.isEmpty {
            let object = whole()
            for (key, _) in operated {
                let name = String(key.prefix { $0 != "." })
                if let value = object[name] { results[name] = value }
            }
        }
        self.objectID = objectID
        self.createdAt = createdAt
        self.updatedAt = updatedAt
        self.isNew = isNew
        self.whole = whole
        self.results = results
    }
}

extension Installation {
    /// What a save makes of it.
    fileprivate func changed(by body: JSONObject, now: Instant) throws -> Installation {
        let changes = try FieldChanges(body, to: object)
        var installation = self
        try installation.take(changes.object, changed: changes.changed, now: now)
        try ObjectOperations.checkSize(installation.fields)
        return installation
    }

    /// The whole object as clients read it.
    var wholeObject: JSONObject {
        var whole = object
        whole["objectId"] = .string(objectID)
        whole["createdAt"] = .string(createdAt.iso8601)
        whole["updatedAt"] = .string(updatedAt.iso8601)
        return whole
    }
}

extension Identity {
    /// The whole object as clients read it.
    var wholeObject: JSONObject {
        var whole = fields
        whole["objectId"] = .string(objectID)
        whole["createdAt"] = .string(createdAt.iso8601)
        whole["updatedAt"] = .string(updatedAt.iso8601)
        return whole
    }
}

extension Where {
    static func objectID(_ id: String) throws(WhereError) -> Where {
        .field(try WherePath("objectId"), .equal(.string(id)))
    }
}

func newObjectID(at now: Instant) -> String {
    ObjectID.make(at: now, random: randomBytes(8).reduce(0) { $0 << 8 | UInt64($1) })
}
