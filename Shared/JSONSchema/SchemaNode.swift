internal import JSON
internal import RegularExpressions

/// The types of a value, of JSON and of Atlas.
struct ValueKinds: OptionSet, Hashable {
    let rawValue: UInt16

    static let null = ValueKinds(rawValue: 1 << 0)
    static let boolean = ValueKinds(rawValue: 1 << 1)
    static let integer = ValueKinds(rawValue: 1 << 2)
    static let number = ValueKinds(rawValue: 1 << 3)
    static let string = ValueKinds(rawValue: 1 << 4)
    static let array = ValueKinds(rawValue: 1 << 5)
    static let object = ValueKinds(rawValue: 1 << 6)
    static let objectID = ValueKinds(rawValue: 1 << 7)
    static let uuid = ValueKinds(rawValue: 1 << 8)
    static let int32 = ValueKinds(rawValue: 1 << 9)
    static let int64 = ValueKinds(rawValue: 1 << 10)
    static let double = ValueKinds(rawValue: 1 << 11)
    static let decimal = ValueKinds(rawValue: 1 << 12)
    static let date = ValueKinds(rawValue: 1 << 13)

    static let ofJSON: [(name: String, kind: ValueKinds)] = [
        ("null", .null), ("boolean", .boolean), ("integer", .integer), ("number", .number),
        ("string", .string), ("array", .array), ("object", .object),
    ]

    static let ofAtlas: [(name: String, kind: ValueKinds)] = [
        ("objectId", .objectID), ("uuid", .uuid), ("string", .string), ("bool", .boolean),
        ("int", .int32), ("long", .int64), ("float", .double), ("double", .double),
        ("decimal", .decimal), ("number", .number), ("date", .date), ("object", .object),
        ("array", .array), ("null", .null),
    ]

    private static let phrases: [(kind: ValueKinds, phrase: String)] = [
        (.boolean, "a boolean"), (.int32, "a 32-bit integer"), (.int64, "a 64-bit integer"),
        (.integer, "an integer"), (.number, "a number"), (.double, "a number"),
        (.decimal, "a decimal number"), (.string, "a string"), (.objectID, "an ObjectId"),
        (.uuid, "a UUID"), (.date, "an RFC 3339 time"), (.array, "an array"),
        (.object, "an object"), (.null, "null"),
    ]

    /// A phrase such as "an integer or null".
    var phrase: String {
        Self.phrases.filter { contains($0.kind) }.map(\.phrase).withoutRepeats()
            .joined(separator: " or ")
    }

    /// The kinds one by one.
    var each: [ValueKinds] {
        (0..<14).map { ValueKinds(rawValue: 1 << $0) }.filter { contains($0) }
    }

    /// The kinds that accept everything that this one accepts.
    var wider: ValueKinds {
        switch self {
        case .int32: [.int32, .int64, .integer, .double, .number, .decimal]
        case .int64: [.int64, .integer, .double, .number, .decimal]
        case .integer: [.integer, .number, .decimal]
        case .double: [.double, .number, .decimal]
        case .number: [.number, .decimal]
        default: self
        }
    }

    func takes(_ value: JSONValue) -> Bool {
        switch value {
        case .null: return contains(.null)
        case .bool: return contains(.boolean)
        case .integer(let value):
            if !isDisjoint(with: [.integer, .number, .int64, .double, .decimal]) { return true }
            return contains(.int32) && Int32(exactly: value) != nil
        case .double(let value):
            if !isDisjoint(with: [.number, .double, .decimal]) { return true }
            if contains(.integer) && Numbers.isWhole(value) { return true }
            guard !isDisjoint(with: [.int32, .int64]), let whole = Numbers.whole(value) else {
                return false
            }
            return contains(.int64) || Int32(exactly: whole) != nil
        case .number(let text):
            if !isDisjoint(with: [.number, .decimal]) { return true }
            return contains(.integer) && (ExactNumber(text: text)?.isWhole ?? false)
        case .string(let text):
            if contains(.string) { return true }
            guard !isDisjoint(with: [.objectID, .uuid, .date, .decimal]) else { return false }
            return contains(.objectID) && SchemaFormat.isObjectID(text)
                || contains(.uuid) && SchemaFormat.uuid.takes(text)
                || contains(.date) && SchemaFormat.dateTime.takes(text)
                || contains(.decimal) && ExactNumber(text: text) != nil
        case .array: return contains(.array)
        case .object: return contains(.object)
        }
    }
}

/// One subschema while it is parsed.
struct SchemaDraft {
    /// RFC 6901, into the schema.
    let pointer: String
    /// The value of a boolean schema.
    var boolean: Bool?
    /// `type` or `bsonType`; `nil` accepts all.
    var kinds: ValueKinds?
    /// Whether that is `bsonType`.
    var isAtlas = false
    var values: ValueRules?
    var number: NumberRules?
    var text: TextRules?
    var array: ArrayRules?
    var object: ObjectRules?
    var combined: CombinedRules?

    init(pointer: String) { self.pointer = pointer }
}

/// One compiled subschema: see `SchemaDraft`. It refers to others by their index in the tree's
/// list, as they may be recursive. A class, as a check would copy a struct at each value.
final class SchemaNode: Sendable {
    let pointer: String
    let boolean: Bool?
    let kinds: ValueKinds?
    let isAtlas: Bool
    let values: ValueRules?
    let number: NumberRules?
    let text: TextRules?
    let array: ArrayRules?
    let object: ObjectRules?
    let combined: CombinedRules?

    init(_ draft: SchemaDraft) {
        pointer = draft.pointer
        boolean = draft.boolean
        kinds = draft.kinds
        isAtlas = draft.isAtlas
        values = draft.values
        number = draft.number
        text = draft.text
        array = draft.array
        object = draft.object
        combined = draft.combined
    }

    /// The target, if it has nothing but `$ref`.
    var onlyReference: Int? {
        guard boolean == nil, kinds == nil, values == nil, number == nil, text == nil,
            array == nil, object == nil, let combined, combined.isOnlyReference
        else { return nil }
        return combined.reference
    }
}

/// `enum` and `const`.
final class ValueRules: Sendable {
    let keyword: String
    let values: [JSONValue]
    /// The hashed values of a long list.
    let keys: Set<SchemaKey>?

    init(keyword: String, values: [JSONValue]) {
        self.keyword = keyword
        self.values = values
        keys = values.count > 8 ? Set(values.map { SchemaKey($0) }) : nil
    }

    func takes(_ value: JSONValue) -> Bool {
        if let keys { return keys.contains(SchemaKey(value)) }
        return values.contains { SchemaKey.same($0, value) }
    }
}

final class NumberRules: Sendable {
    let minimum: JSONValue?
    let exclusiveMinimum: JSONValue?
    let maximum: JSONValue?
    let exclusiveMaximum: JSONValue?
    let multipleOf: JSONValue?
    let divisor: ExactNumber?

    init(
        minimum: JSONValue?,
        exclusiveMinimum: JSONValue?,
        maximum: JSONValue?,
        exclusiveMaximum: JSONValue?,
        multipleOf: JSONValue?
    ) {
        self.minimum = minimum
        self.exclusiveMinimum = exclusiveMinimum
        self.maximum = maximum
        self.exclusiveMaximum = exclusiveMaximum
        self.multipleOf = multipleOf
        divisor = multipleOf.flatMap { ExactNumber($0) }
    }

    func isMultiple(_ value: JSONValue) -> Bool {
        guard let divisor else { return true }
        if case .integer(let value) = value, case .integer(let divisor) = multipleOf {
            return value % divisor == 0
        }
        return ExactNumber(value)?.isMultiple(of: divisor) ?? true
    }
}

final class TextRules: Sendable {
    let minimum: Int
    let maximum: Int
    let pattern: RegularExpression?
    let format: SchemaFormat?

    init(minimum: Int, maximum: Int, pattern: RegularExpression?, format: SchemaFormat?) {
        self.minimum = minimum
        self.maximum = maximum
        self.pattern = pattern
        self.format = format
    }
}

final class ArrayRules: Sendable {
    let minimum: Int
    let maximum: Int
    let prefix: [Int]
    let rest: Int?
    let isUnique: Bool

    init(minimum: Int, maximum: Int, prefix: [Int], rest: Int?, isUnique: Bool) {
        self.minimum = minimum
        self.maximum = maximum
        self.prefix = prefix
        self.rest = rest
        self.isUnique = isUnique
    }
}

final class ObjectRules: Sendable {
    struct Property: Sendable {
        let name: String
        /// `nil` for a name that is only required.
        let node: Int?
        let isRequired: Bool
    }

    let minimum: Int
    let maximum: Int
    /// The `properties` in their order, then the names that are only required.
    let properties: [Property]
    let required: Int
    /// The schema of all other properties.
    let rest: Int?
    /// The index, if there are many.
    private let places: ExactStringMap<Int>?

    init(minimum: Int, maximum: Int, properties: [Property], rest: Int?) {
        self.minimum = minimum
        self.maximum = maximum
        self.properties = properties
        self.rest = rest
        required = properties.count { $0.isRequired }
        places =
            properties.count > 12
            ? ExactStringMap(
                properties.enumerated().map { ($0.element.name, $0.offset) },
                uniquingKeysWith: { first, _ in first }
            ) : nil
    }

    /// Returns the index of the property; `hint` is tried first.
    func place(of name: String, hint: Int) -> Int? {
        if hint < properties.count, properties[hint].name.isSame(as: name) { return hint }
        if let places { return places[name] }
        return properties.firstIndex { $0.name.isSame(as: name) }
    }

    func property(_ name: String) -> Property? {
        place(of: name, hint: 0).map { properties[$0] }
    }
}

final class CombinedRules: Sendable {
    let reference: Int?
    let all: [Int]
    let any: [Int]
    let one: [Int]
    let not: Int?

    init(reference: Int?, all: [Int], any: [Int], one: [Int], not: Int?) {
        self.reference = reference
        self.all = all
        self.any = any
        self.one = one
        self.not = not
    }

    var isOnlyReference: Bool {
        reference != nil && all.isEmpty && any.isEmpty && one.isEmpty && not == nil
    }

    /// All schemas that apply to the same value.
    var inPlace: [Int] {
        all + any + one + [reference, not].compactMap(\.self)
    }
}
