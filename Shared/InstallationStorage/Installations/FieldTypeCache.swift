import Observability
import PushCore
import Storage

// The types of fields: those of a batch of saves, and those that a loop has cached.

extension FieldUse {
    func require(_ type: FieldType, of className: String) throws(FieldMismatch) {
        guard type != self.type else { return }
        throw FieldMismatch(
            className: className,
            field: name,
            expected: type,
            found: self.type
        )
    }
}

/// One class of one app.
struct FieldOwner: Hashable, Sendable {
    let app: String
    let className: String
}

struct FieldKey: Hashable, Comparable, Sendable {
    let owner: FieldOwner
    let name: String

    static func < (a: FieldKey, b: FieldKey) -> Bool {
        (a.owner.app, a.owner.className, a.name) < (b.owner.app, b.owner.className, b.name)
    }
}

struct DecidedField: Sendable {
    let key: FieldKey
    let type: FieldType
}

/// The types of fields that were decided, by this batch or another save, while the batch runs.
struct DecidedFields: Sendable {
    private var types: [FieldKey: FieldType] = [:]

    init() {}

    init(_ fields: [DecidedField]) {
        for field in fields { types[field.key] = field.type }
    }

    var isEmpty: Bool { types.isEmpty }
    var fields: [DecidedField] { types.map { DecidedField(key: $0.key, type: $0.value) } }

    mutating func merge(_ others: DecidedFields) {
        types.merge(others.types) { _, theirs in theirs }
    }

    mutating func add(_ new: NewFields?) {
        for field in new?.decided ?? [] { types[field.key] = field.type }
    }

    /// Returns the fields of a save whose types are decided.
    func known(of new: NewFields) -> NewFields {
        var known = NewFields(new.owner, new.version)
        for use in new.fields {
            guard let type = types[FieldKey(owner: new.owner, name: use.name)] else { continue }
            known.fields.append(FieldUse(name: use.name, type: type))
        }
        return known
    }

    func require(_ new: NewFields?) throws(FieldMismatch) {
        guard let new, !types.isEmpty else { return }
        for use in new.fields {
            guard let type = types[FieldKey(owner: new.owner, name: use.name)] else { continue }
            try use.require(type, of: new.owner.className)
        }
    }

    /// Whether `others` have no field with a different type. A field that they do not have was not
    /// stored, as its class was full.
    func agrees(with others: DecidedFields) -> Bool {
        types.allSatisfy { key, type in others.types[key].map { $0 == type } ?? true }
    }
}

/// The fields that a save is the first to use, as far as its replica knows.
package struct NewFields: Sendable {
    let owner: FieldOwner
    let version: FieldsVersion
    var fields: [FieldUse] = []

    init(_ owner: FieldOwner, _ version: FieldsVersion) {
        self.owner = owner
        self.version = version
    }

    var decided: [DecidedField] {
        fields.map { DecidedField(key: FieldKey(owner: owner, name: $0.name), type: $0.type) }
    }
}

/// One loop's cache of the types of fields: a save that uses only cached fields needs no query.
///
/// Bounds: as many fields in all as a few hundred full classes have; beyond that, the cache is cleared.
final class FieldTypeCache: Sendable {
    /// The limit of fields with a type in one class; further fields have none. LeanCloud's classes
    /// have 300 columns.
    static let maximumFields = 1000
    private static let maximumRemembered = 200_000

    private struct Entry {
        var version: FieldsVersion
        var types: [String: FieldType]
    }

    private let lock = Lock()
    nonisolated(unsafe) private var entries: [FieldOwner: Entry] = [:]
    nonisolated(unsafe) private var count = 0

    func known(of owner: FieldOwner, _ version: FieldsVersion) -> [String: FieldType]? {
        lock.withLock {
            guard let entry = unsafe entries[owner], entry.version == version else { return nil }
            return entry.types
        }
    }

    func remember(
        _ types: [String: FieldType],
        of owner: FieldOwner,
        _ version: FieldsVersion
    ) {
        lock.withLock {
            unsafe count += types.count + 1
            if unsafe count > Self.maximumRemembered {
                unsafe entries = [:]
                unsafe count = types.count + 1
            }
            unsafe entries[owner] = Entry(version: version, types: types)
        }
    }

    /// Adds the types of a committed save to an entry of the same version. If the class is full
    /// then, some of the types may not have been stored, so the entry is removed, to be read again.
    func learned(_ new: NewFields) {
        guard !new.fields.isEmpty else { return }
        lock.withLock {
            guard unsafe entries[new.owner]?.version == new.version else { return }
            for use in new.fields {
                unsafe entries[new.owner]?.types[use.name] = use.type
                unsafe count += 1
            }
            let known = unsafe entries[new.owner]?.types.count ?? 0
            if known >= FieldTypeCache.maximumFields {
                unsafe entries[new.owner] = nil
                unsafe count -= known
            }
        }
    }
}
