package import JSON

/// The changes of a saved body: plain values, `__op` values and dotted keys, in LeanCloud's form.
/// Pure: an object in, an object out.
package struct FieldChanges: Sendable {
    /// The object with every change applied.
    package private(set) var object: JSONObject
    /// The top-level keys in the body.
    package private(set) var changed: ExactStringSet = []
    /// The new value of each key that an operation changed, which some clients need.
    package private(set) var results: JSONObject = [:]
    /// The types with which the body uses its fields, whatever the stored values are: the type of a
    /// value, or the type that an operation works on.
    package private(set) var uses: [FieldUse] = []

    /// The keys that only the server sets. They are ignored, as clients that send a whole object
    /// include them. `__ignore_hooks` asks to skip hooks, which do not exist here. The last key is
    /// validated and written by Azure's surface only.
    private static let serverOwned: ExactStringSet = [
        "objectId", "createdAt", "updatedAt", "__ignore_hooks", HubTemplate.field,
    ]
    private static let maximumPathSegments = 8
    /// The limit of columns of LeanCloud's classes is 300.
    private static let maximumKeys = 1000
    /// The limit of operations in a `Batch`; SDKs need two.
    private static let maximumOperations = 10

    /// - Throws: `ObjectError` that names the key.
    package init(_ body: JSONObject, to object: JSONObject) throws(ObjectError) {
        self.object = object
        guard body.count <= Self.maximumKeys else {
            throw ObjectError(code: 116, "Too many keys: at most \(Self.maximumKeys).")
        }
        for (key, value) in body where !Self.serverOwned.contains(key) {
            let path = Self.path(key)
            guard path.count <= Self.maximumPathSegments,
                path.allSatisfy({ !$0.isEmpty }),
                !path.dropFirst().contains(where: FieldName.reserved.contains)
            else {
                throw ObjectError(code: 105, "Bad key name: \(key.prefix(100))")
            }
            guard !key.utf8.contains(UInt8(ascii: "$")) else {
                throw ObjectError(code: 121, "A key contains '$': \(key.prefix(100))")
            }
            // Dotted keys below this field are ignored, too.
            guard path[0] != HubTemplate.field else { continue }
            try apply(value, at: path, key: key)
        }
    }

    private static func path(_ key: String) -> [String] {
        guard key.utf8.contains(UInt8(ascii: ".")) else { return [key] }
        return key.split(separator: ".", omittingEmptySubsequences: false).map(String.init)
    }

    private mutating func apply(
        _ value: JSONValue,
        at path: [String],
        key: String
    ) throws(ObjectError) {
        changed.insert(path[0])
        guard let operation = value.object, let name = operation["__op"] else {
            try TypedValue.check(value, key: key)
            use(path, as: FieldType(of: value))
            try store(value, at: path, key: key)
            return
        }
        guard let name = name.string else { throw wrongType(key, "an operation's name") }
        if name == "Batch" {
            guard let operations = operation["ops"]?.array else {
                throw wrongType(key, "an array in \"ops\"")
            }
            guard operations.count <= Self.maximumOperations else {
                throw wrongType(key, "at most \(Self.maximumOperations) operations")
            }
            for operation in operations { try apply(operation, at: path, key: key) }
            return
        }
        let change = try FieldOperation(name, operation, key: key)
        use(path, as: change.type)
        let result = try change.apply(to: lookUp(path), key: key)
        try store(result, at: path, key: key)
        if let result, path.count == 1 { results[key] = result }
    }

    /// Records the type of a field. Before a dot the field is an object, whatever the value at the
    /// end is.
    private mutating func use(_ path: [String], as type: FieldType?) {
        guard let type = path.count > 1 ? .object : type else { return }
        uses.append(FieldUse(name: path[0], type: type))
    }

    private func lookUp(_ path: [String]) -> JSONValue? {
        var value: JSONValue? = .object(object)
        for segment in path { value = value?.object?[segment] }
        return value
    }

    private mutating func store(
        _ value: JSONValue?,
        at path: [String],
        key: String
    ) throws(ObjectError) {
        // Most keys are plain: then the object is changed in place.
        if path.count > 1 {
            object = try stored(value, at: path[...], in: object, key: key)
        } else if let value {
            object[path[0]] = value
        } else {
            object.removeValue(forKey: path[0])
        }
    }

    private func stored(
        _ value: JSONValue?,
        at path: ArraySlice<String>,
        in object: JSONObject,
        key: String
    ) throws(ObjectError) -> JSONObject {
        var object = object
        guard let segment = path.first else { return object }
        if path.count == 1 {
            if let value {
                object[segment] = value
            } else {
                object.removeValue(forKey: segment)
            }
            return object
        }
        let inner: JSONObject
        switch object[segment] {
        case nil, .null?: inner = [:]
        case .object(let existing)?: inner = existing
        default: throw wrongType(key, "a path through objects")
        }
        object[segment] = .object(
            try stored(value, at: path.dropFirst(), in: inner, key: key)
        )
        return object
    }
}

/// One `__op` value.
private enum FieldOperation {
    case delete
    case increment(JSONValue)
    case add([JSONValue])
    case addUnique([JSONValue])
    case remove([JSONValue])
    case bits(Int64, (Int64, Int64) -> Int64)

    init(_ name: String, _ operation: JSONObject, key: String) throws(ObjectError) {
        switch name {
        case "Delete": self = .delete
        case "Increment", "Decrement":
            let amount = operation["amount"] ?? 1
            switch amount {
            case .integer(let number) where name == "Decrement":
                let (negative, overflow) = Int64(0).subtractingReportingOverflow(number)
                guard !overflow else { throw wrongType(key, "a smaller amount") }
                self = .increment(.integer(negative))
            case .double(let number) where name == "Decrement": self = .increment(.double(-number))
            case .integer, .double: self = .increment(amount)
            default: throw wrongType(key, "a number in \"amount\"")
            }
        case "Add", "AddUnique", "Remove":
            guard let objects = operation["objects"]?.array else {
                throw wrongType(key, "an array in \"objects\"")
            }
            for object in objects { try TypedValue.check(object, key: key) }
            switch name {
            case "Add": self = .add(objects)
            case "AddUnique": self = .addUnique(objects)
            default: self = .remove(objects)
            }
        case "BitAnd", "BitOr", "BitXor":
            guard let value = operation["value"]?.integer.map(Int64.init) else {
                throw wrongType(key, "a whole number in \"value\"")
            }
            switch name {
            case "BitAnd": self = .bits(value, &)
            case "BitOr": self = .bits(value, |)
            default: self = .bits(value, ^)
            }
        default: throw ObjectError(code: 1, "The operation \(name) on \(key) is not supported.")
        }
    }

    /// The type that the operation works on; `nil` if it works on any.
    var type: FieldType? {
        switch self {
        case .delete: nil
        case .increment, .bits: .number
        case .add, .addUnique, .remove: .array
        }
    }

    /// - Returns: The key's value afterwards; `nil` if it is deleted.
    func apply(to old: JSONValue?, key: String) throws(ObjectError) -> JSONValue? {
        switch self {
        case .delete: return nil
        case .increment(let amount): return try Self.sum(old ?? 0, amount, key: key)
        case .add(let objects): return .array(try list(old, key) + objects)
        case .addUnique(let objects):
            var result = try list(old, key)
            if objects.count <= Self.fewObjects {
                for object in objects where !result.contains(object) { result.append(object) }
                return .array(result)
            }
            var known = ExactStringSet(result.map(Self.canonical))
            for object in objects where known.insert(Self.canonical(object)).inserted {
                result.append(object)
            }
            return .array(result)
        case .remove(let objects):
            if objects.count <= Self.fewObjects {
                return .array(try list(old, key).filter { !objects.contains($0) })
            }
            let removed = ExactStringSet(objects.map(Self.canonical))
            return .array(try list(old, key).filter { !removed.contains(Self.canonical($0)) })
        case .bits(let value, let combine):
            guard let old, !old.isNull else { return .integer(combine(0, value)) }
            guard let number = old.integer.map(Int64.init) else {
                throw wrongType(key, "a whole number")
            }
            return .integer(combine(number, value))
        }
    }

    private func list(_ old: JSONValue?, _ key: String) throws(ObjectError) -> [JSONValue] {
        switch old {
        case nil, .null?: return []
        case .array(let list)?: return list
        default: throw wrongType(key, "an array")
        }
    }

    /// The length of a list up to which each object is compared with all others.
    private static let fewObjects = 16

    /// Returns a string that is the same for equal values, as the members of an object have no
    /// order. With it, long lists need not be compared pair by pair.
    private static func canonical(_ value: JSONValue) -> String { sorted(value).text }

    private static func sorted(_ value: JSONValue) -> JSONValue {
        switch value {
        case .null, .bool, .integer, .double, .number, .string: value
        case .array(let elements): .array(elements.map(sorted))
        case .object(let object):
            .object(
                JSONObject(object.map { ($0.key, sorted($0.value)) }.sorted { $0.0.precedes($1.0) })
            )
        }
    }

    private static func sum(
        _ left: JSONValue,
        _ right: JSONValue,
        key: String
    ) throws(ObjectError) -> JSONValue {
        if left.isNull { return right }
        if case .integer(let first) = left, case .integer(let second) = right {
            let (sum, overflow) = first.addingReportingOverflow(second)
            guard !overflow else { throw wrongType(key, "a number within 64 bits") }
            return .integer(sum)
        }
        guard let first = left.double, let second = right.double else {
            throw wrongType(key, "a number")
        }
        guard (first + second).isFinite else { throw wrongType(key, "a number within range") }
        return .double(first + second)
    }
}

private func wrongType(_ key: String, _ expected: String) -> ObjectError {
    ObjectError(code: 111, "\(key): expected \(expected).")
}
