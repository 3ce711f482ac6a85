import Cryptography
import Gateway
import InstallationStorage
import JSON
import Observability
import PushCore
import PushStorage
import Storage

/// The operations of clients on the three classes of objects, for every surface: authorization, saves and
/// queries.
///
/// Each loop has one instance, which uses the loop's database. The operations throw `ObjectError`,
/// and errors that `ObjectError.init(_:)` maps; each surface renders them in its own form.
struct ObjectOperations: Sendable {
    let database: PushDatabase
    let saved: Counter

    enum ObjectClass: Sendable, CaseIterable {
        /// `_Installation`.
        case installation
        /// `_User`.
        case identity
        /// `_Notification`, Parse's `_PushStatus`: can be read, found and hidden, but not saved.
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
        /// Whether the object is new; false if an existing object was changed.
        let isNew: Bool
        /// The whole object, as clients read it. Built on demand, as most responses do not need it.
        var object: JSONObject { whole() }
        private let whole: @Sendable () -> JSONObject
        /// The values of the keys that operators changed, except deleted keys.
        let results: JSONObject
    }

    static let maximumIDs = 1000

    // MARK: Saving

    /// Creates an object, or changes an existing installation if the save rule identifies it.
    /// LeanCloud's Apple SDKs send a create each time, with the object id that they know. So an
    /// installation keeps its id and its fields when its token changes, and a deleted one is
    /// created again.
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
            // The keys are those of the object that the operations create from an empty one.
            let changes = try FieldChanges(body, to: [:])
            let keys = try Installation.Keys(rule.withDeviceType(changes.object))
            let kept = try await database.installations.save(
                app: app,
                keys: keys,
                rule: rule,
                fields: try await newFields(changes, objectClass, caller)
            ) { existing in
                let installation =
                    existing ?? Installation(app: app, objectID: newObjectID(at: now), at: now)
                return try installation.changed(
                    by: existing == nil ? rule.withDeviceType(body) : body,
                    now: now,
                    rule
                )
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

    /// Changes the fields in the body. The save rule may select another installation than the one
    /// with the id.
    ///
    /// - Throws: 101 for an unknown id, 305 if the object does not match the condition.
    func update(
        _ objectClass: ObjectClass,
        id: String,
        body: JSONObject,
        condition: Where? = nil,
        rule: SaveRule = .leanCloud,
        caller: Caller
    ) async throws -> Saved {
        try caller.requireQueryAllowed(condition, of: objectClass.className)
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

    /// Changes the installation with this id; `nil` if the id is unknown.
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
            ) { $0 = try $0.changed(by: body, now: now, rule) }
        } catch let error as InstallationError where error.code == 305 {
            throw ObjectError.conditionFailed
        }
    }

    /// Checks that a save uses each field with its type; a new field gets the type of its first use.
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
        try ObjectSize.check(changed)
        return changed
    }

    // MARK: Deleting

    /// - Returns: The number of deleted objects, at least one.
    /// - Throws: 101 if no id is known, 305 if no object matches the condition.
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
        try caller.requireQueryAllowed(condition, of: objectClass.className)
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

    // MARK: Authorization

    func requireMaster(_ caller: Caller, for what: String) throws(ObjectError) {
        guard caller.isMaster else { throw .masterKeyNeeded(for: what) }
    }

    /// Requires the right to search; push records need the master key, as their content is for their sender
    /// only.
    func requireFinder(
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
    /// The whole object, as clients read it.
    var wholeObject: JSONObject {
        var whole = object
        whole["objectId"] = .string(objectID)
        whole["createdAt"] = .string(createdAt.iso8601)
        whole["updatedAt"] = .string(updatedAt.iso8601)
        return whole
    }
}

extension Identity {
    /// The whole object, as clients read it.
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
