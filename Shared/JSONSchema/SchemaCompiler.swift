internal import JSON
internal import RegularExpressions

/// Compiles a schema into a `SchemaTree`. For one use.
struct SchemaCompiler {
    /// The most schemas nested within each other that may apply to one value.
    static let maximumHeight = 64
    /// The most schemas that may apply to one value, in all: the target of a `$ref` counts each
    /// time. Some 40 µs a value.
    static let maximumApplications = 1000
    /// The memory limit of all patterns of a schema.
    static let maximumPatternBytes = 1 << 20
    /// The limit over all patterns of a schema; see `RegularExpression.maximumFoldedCharacters`.
    static let maximumFoldedCharacters = 4 * RegularExpression.maximumFoldedCharacters

    private static let annotations: ExactStringSet = [
        "$schema", "$comment", "title", "description", "default", "examples", "deprecated",
        "readOnly", "writeOnly",
    ]

    private var nodes: [SchemaDraft] = []
    /// The places of possible `$ref` targets, by pointer.
    private var places = ExactStringMap<Int>()
    /// The unresolved references: the node, and the pointer that it names.
    private var references: [(node: Int, target: String)] = []
    private var patternBytes = 0
    private var foldedCharacters = 0
    private let isStored: Bool

    private init(isStored: Bool) { self.isStored = isStored }

    /// - Parameters:
    ///   - document: The schema.
    ///   - isStored: Whether it was accepted before: its cost is limited at checks.
    /// - Returns: The schema, compiled.
    /// - Throws: `SchemaError` with the place and the reason.
    static func compile(
        _ document: JSONValue,
        isStored: Bool = false
    ) throws(SchemaError) -> SchemaTree {
        var compiler = SchemaCompiler(isStored: isStored)
        let root = try compiler.read(document, at: "")
        try compiler.resolve()
        let tree = SchemaTree(nodes: compiler.nodes.map { SchemaNode($0) }, root: root)
        try compiler.measure()
        return tree
    }

    /// Escapes a key for a pointer.
    static func escaped(_ key: String) -> String {
        guard key.utf8.contains(where: { $0 == UInt8(ascii: "~") || $0 == UInt8(ascii: "/") })
        else { return key }
        var result: [UInt8] = []
        for byte in key.utf8 {
            switch byte {
            case UInt8(ascii: "~"): result += Array("~0".utf8)
            case UInt8(ascii: "/"): result += Array("~1".utf8)
            default: result.append(byte)
            }
        }
        return String(decoding: result, as: UTF8.self)
    }

    // MARK: Parsing

    private mutating func read(_ schema: JSONValue, at pointer: String) throws(SchemaError) -> Int {
        let place = nodes.count
        nodes.append(SchemaDraft(pointer: pointer))
        places[pointer] = place
        switch schema {
        case .bool(let value): nodes[place].boolean = value
        case .object(let members): nodes[place] = try read(members, at: pointer, place)
        case .null, .integer, .double, .number, .string, .array:
            throw SchemaError(pointer: pointer, "must be a schema: an object, true or false")
        }
        return place
    }

    private mutating func read(
        _ members: JSONObject,
        at pointer: String,
        _ place: Int
    ) throws(SchemaError) -> SchemaDraft {
        for (keyword, value) in members { try check(keyword, value, at: pointer) }
        var node = SchemaDraft(pointer: pointer)
        node.kinds = try kinds(members, at: pointer)
        node.isAtlas = members["bsonType"] != nil
        node.values = try values(members, at: pointer)
        node.number = try numberRules(members, at: pointer)
        node.text = try textRules(members, at: pointer)
        node.array = try arrayRules(members, at: pointer)
        node.object = try objectRules(members, at: pointer)
        node.combined = try combinedRules(members, at: pointer, place)
        if let definitions = members["$defs"] {
            for (name, schema) in try object(definitions, "\(pointer)/$defs") {
                _ = try read(schema, at: "\(pointer)/$defs/\(Self.escaped(name))")
            }
        }
        return node
    }

    /// Checks that the keyword is supported.
    private func check(
        _ keyword: String,
        _ value: JSONValue,
        at pointer: String
    ) throws(SchemaError) {
        let own = "\(pointer)/\(Self.escaped(keyword))"
        switch keyword {
        case "$id":
            guard pointer.isEmpty, value.string != nil else {
                throw SchemaError(pointer: own, "is taken at the top alone, and is a string")
            }
        case "$ref", "$defs", "type", "bsonType", "enum", "const", "minimum", "exclusiveMinimum",
            "maximum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
            "format", "minItems", "maxItems", "prefixItems", "items", "uniqueItems",
            "minProperties", "maxProperties", "properties", "required", "additionalProperties",
            "allOf", "anyOf", "oneOf", "not":
            break
        default:
            guard Self.annotations.contains(keyword) else {
                throw SchemaError(pointer: own, "the keyword is not taken")
            }
        }
    }

    private func kinds(
        _ members: JSONObject,
        at pointer: String
    ) throws(SchemaError) -> ValueKinds? {
        let own = try kinds(members["type"], ValueKinds.ofJSON, "\(pointer)/type")
        let atlas = try kinds(members["bsonType"], ValueKinds.ofAtlas, "\(pointer)/bsonType")
        guard own == nil || atlas == nil else {
            throw SchemaError(pointer: "\(pointer)/bsonType", "must not be used with type")
        }
        return own ?? atlas
    }

    private func kinds(
        _ value: JSONValue?,
        _ known: [(name: String, kind: ValueKinds)],
        _ pointer: String
    ) throws(SchemaError) -> ValueKinds? {
        guard let value else { return nil }
        let names = value.array ?? [value]
        var kinds: ValueKinds = []
        for name in names {
            guard let text = name.string,
                let kind = known.first(where: { $0.name.isSame(as: text) })?.kind
            else {
                let choice = known.map(\.name).joined(separator: ", ")
                throw SchemaError(pointer: pointer, "must be of: \(choice)")
            }
            kinds.formUnion(kind)
        }
        guard !names.isEmpty else { throw SchemaError(pointer: pointer, "must not be empty") }
        return kinds
    }

    private func values(
        _ members: JSONObject,
        at pointer: String
    ) throws(SchemaError) -> ValueRules? {
        let constant = members["const"].map { [$0] }
        guard let value = members["enum"] else {
            return constant.map { ValueRules(keyword: "const", values: $0) }
        }
        guard let values = value.array, !values.isEmpty else {
            throw SchemaError(pointer: "\(pointer)/enum", "must be a list that is not empty")
        }
        guard let constant else { return ValueRules(keyword: "enum", values: values) }
        let both = values.filter { SchemaKey.same($0, constant[0]) }
        return ValueRules(keyword: "const", values: both)
    }

    private func numberRules(
        _ members: JSONObject,
        at pointer: String
    ) throws(SchemaError) -> NumberRules? {
        let minimum = try number(members, "minimum", pointer)
        let exclusiveMinimum = try number(members, "exclusiveMinimum", pointer)
        let maximum = try number(members, "maximum", pointer)
        let exclusiveMaximum = try number(members, "exclusiveMaximum", pointer)
        let multipleOf = try number(members, "multipleOf", pointer)
        if let multipleOf {
            guard let exact = ExactNumber(multipleOf), !exact.isNegative, !exact.isZero else {
                throw SchemaError(pointer: "\(pointer)/multipleOf", "must be above 0")
            }
            guard exact.significand != nil else {
                throw SchemaError(pointer: "\(pointer)/multipleOf", "has more than 18 digits")
            }
        }
        let all = [minimum, exclusiveMinimum, maximum, exclusiveMaximum, multipleOf]
        guard all.contains(where: { $0 != nil }) else { return nil }
        return NumberRules(
            minimum: minimum,
            exclusiveMinimum: exclusiveMinimum,
            maximum: maximum,
            exclusiveMaximum: exclusiveMaximum,
            multipleOf: multipleOf
        )
    }

    private mutating func textRules(
        _ members: JSONObject,
        at pointer: String
    ) throws(SchemaError) -> TextRules? {
        let minimum = try count(members, "minLength", pointer)
        let maximum = try count(members, "maxLength", pointer)
        let pattern = try pattern(members["pattern"], "\(pointer)/pattern")
        let format = try format(members["format"], "\(pointer)/format")
        guard minimum != nil || maximum != nil || pattern != nil || format != nil else {
            return nil
        }
        return TextRules(
            minimum: minimum ?? 0,
            maximum: maximum ?? .max,
            pattern: pattern,
            format: format
        )
    }

    private mutating func pattern(
        _ value: JSONValue?,
        _ pointer: String
    ) throws(SchemaError) -> RegularExpression? {
        guard let value else { return nil }
        guard let text = value.string else {
            throw SchemaError(pointer: pointer, "must be a string")
        }
        let pattern: RegularExpression
        do throws(RegularExpressionError) {
            pattern = try RegularExpression(text, isStored: isStored)
        } catch {
            throw SchemaError(pointer: pointer, error.description)
        }
        foldedCharacters += pattern.foldedCharacters
        guard isStored || foldedCharacters <= Self.maximumFoldedCharacters else {
            throw SchemaError(
                pointer: pointer,
                "(?i) applies to classes of more than \(Self.maximumFoldedCharacters) characters in"
                    + " all patterns together; make them smaller"
            )
        }
        patternBytes += pattern.weightBytes
        guard patternBytes <= Self.maximumPatternBytes else {
            throw SchemaError(pointer: pointer, "all patterns together are too large")
        }
        return pattern
    }

    private func format(
        _ value: JSONValue?,
        _ pointer: String
    ) throws(SchemaError) -> SchemaFormat? {
        guard let value else { return nil }
        guard let name = value.string, let format = SchemaFormat(rawValue: name) else {
            let choice = SchemaFormat.allCases.map(\.rawValue).joined(separator: ", ")
            throw SchemaError(pointer: pointer, "must be one of: \(choice)")
        }
        return format
    }

    private mutating func arrayRules(
        _ members: JSONObject,
        at pointer: String
    ) throws(SchemaError) -> ArrayRules? {
        let minimum = try count(members, "minItems", pointer)
        let maximum = try count(members, "maxItems", pointer)
        let prefix = try list(members, "prefixItems", pointer)
        let rest = try schema(members, "items", pointer)
        let unique = try flag(members, "uniqueItems", pointer)
        guard minimum != nil || maximum != nil || !prefix.isEmpty || rest != nil || unique else {
            return nil
        }
        return ArrayRules(
            minimum: minimum ?? 0,
            maximum: maximum ?? .max,
            prefix: prefix,
            rest: rest,
            isUnique: unique
        )
    }

    private mutating func objectRules(
        _ members: JSONObject,
        at pointer: String
    ) throws(SchemaError) -> ObjectRules? {
        let minimum = try count(members, "minProperties", pointer)
        let maximum = try count(members, "maxProperties", pointer)
        let required = try required(members["required"], "\(pointer)/required")
        let names = ExactStringSet(required)
        var properties: [ObjectRules.Property] = []
        var known = ExactStringSet()
        if let value = members["properties"] {
            for (name, schema) in try object(value, "\(pointer)/properties") {
                let node = try read(schema, at: "\(pointer)/properties/\(Self.escaped(name))")
                let isRequired = names.contains(name)
                properties.append(.init(name: name, node: node, isRequired: isRequired))
                known.insert(name)
            }
        }
        for name in required where !known.contains(name) {
            properties.append(.init(name: name, node: nil, isRequired: true))
        }
        let rest = try schema(members, "additionalProperties", pointer)
        guard minimum != nil || maximum != nil || !properties.isEmpty || rest != nil else {
            return nil
        }
        return ObjectRules(
            minimum: minimum ?? 0,
            maximum: maximum ?? .max,
            properties: properties,
            rest: rest
        )
    }

    private func required(
        _ value: JSONValue?,
        _ pointer: String
    ) throws(SchemaError) -> [String] {
        guard let value else { return [] }
        var names: [String] = []
        var known = ExactStringSet()
        for name in value.array ?? [.null] {
            guard let name = name.string, known.insert(name).inserted else {
                throw SchemaError(pointer: pointer, "must be a list of names, each once")
            }
            names.append(name)
        }
        return names
    }

    private mutating func combinedRules(
        _ members: JSONObject,
        at pointer: String,
        _ place: Int
    ) throws(SchemaError) -> CombinedRules? {
        let all = try list(members, "allOf", pointer)
        let any = try list(members, "anyOf", pointer)
        let one = try list(members, "oneOf", pointer)
        let not = try schema(members, "not", pointer)
        let reference = try members["$ref"].map { value throws(SchemaError) in
            try target(value, "\(pointer)/$ref")
        }
        if let reference { references.append((place, reference)) }
        guard reference != nil || not != nil || !all.isEmpty || !any.isEmpty || !one.isEmpty else {
            return nil
        }
        return CombinedRules(
            reference: reference == nil ? nil : place,
            all: all,
            any: any,
            one: one,
            not: not
        )
    }

    // MARK: Parts

    private func object(_ value: JSONValue, _ pointer: String) throws(SchemaError) -> JSONObject {
        guard let object = value.object else {
            throw SchemaError(pointer: pointer, "must be an object of schemas")
        }
        return object
    }

    private func number(
        _ members: JSONObject,
        _ keyword: String,
        _ pointer: String
    ) throws(SchemaError) -> JSONValue? {
        guard let value = members[keyword] else { return nil }
        guard ExactNumber(value) != nil else {
            throw SchemaError(pointer: "\(pointer)/\(keyword)", "must be a number")
        }
        return value
    }

    private func count(
        _ members: JSONObject,
        _ keyword: String,
        _ pointer: String
    ) throws(SchemaError) -> Int? {
        guard let value = members[keyword] else { return nil }
        guard let exact = ExactNumber(value), exact.isWhole, !exact.isNegative else {
            throw SchemaError(pointer: "\(pointer)/\(keyword)", "must be a whole number from 0")
        }
        return value.integer ?? .max
    }

    private func flag(
        _ members: JSONObject,
        _ keyword: String,
        _ pointer: String
    ) throws(SchemaError) -> Bool {
        guard let value = members[keyword] else { return false }
        guard let flag = value.bool else {
            throw SchemaError(pointer: "\(pointer)/\(keyword)", "must be true or false")
        }
        return flag
    }

    private mutating func schema(
        _ members: JSONObject,
        _ keyword: String,
        _ pointer: String
    ) throws(SchemaError) -> Int? {
        guard let value = members[keyword] else { return nil }
        return try read(value, at: "\(pointer)/\(keyword)")
    }

    private mutating func list(
        _ members: JSONObject,
        _ keyword: String,
        _ pointer: String
    ) throws(SchemaError) -> [Int] {
        guard let value = members[keyword] else { return [] }
        guard let schemas = value.array, !schemas.isEmpty else {
            throw SchemaError(
                pointer: "\(pointer)/\(keyword)",
                "must be a list of schemas that is not empty"
            )
        }
        var places: [Int] = []
        for (index, schema) in schemas.enumerated() {
            places.append(try read(schema, at: "\(pointer)/\(keyword)/\(index)"))
        }
        return places
    }

    // MARK: References

    /// Returns the pointer that a reference names.
    private func target(_ value: JSONValue, _ pointer: String) throws(SchemaError) -> String {
        guard let text = value.string, text.utf8.starts(with: "#/$defs/".utf8),
            let target = Self.percentDecoded(text.utf8.dropFirst())
        else { throw SchemaError(pointer: pointer, "must begin with #/$defs/") }
        return target
    }

    private static func percentDecoded(_ bytes: Substring.UTF8View) -> String? {
        let bytes = Array(bytes)
        var result: [UInt8] = []
        var place = 0
        while place < bytes.count {
            guard bytes[place] == UInt8(ascii: "%") else {
                result.append(bytes[place])
                place += 1
                continue
            }
            guard place + 2 < bytes.count, SchemaFormat.isHex(bytes[place + 1]),
                SchemaFormat.isHex(bytes[place + 2]),
                let byte = UInt8(
                    String(decoding: bytes[place + 1...place + 2], as: UTF8.self),
                    radix: 16
                )
            else { return nil }
            result.append(byte)
            place += 3
        }
        return String(validating: result, as: UTF8.self)
    }

    private mutating func resolve() throws(SchemaError) {
        for (place, target) in references {
            guard let found = places[target], let combined = nodes[place].combined else {
                throw SchemaError(pointer: "\(nodes[place].pointer)/$ref", "names no schema")
            }
            nodes[place].combined = CombinedRules(
                reference: found,
                all: combined.all,
                any: combined.any,
                one: combined.one,
                not: combined.not
            )
        }
    }

    /// The number of schemas that apply to one value, and their nesting.
    private struct Measure {
        var height = 0
        /// The total number, itself included; saturates.
        var applications = 1
    }

    /// Refuses schemas that would apply to one value without end, too deeply or too often.
    private func measure() throws(SchemaError) {
        var measures = [Measure?](repeating: nil, count: nodes.count)
        for place in nodes.indices { _ = try measure(of: place, &measures, 0) }
    }

    private func measure(
        of place: Int,
        _ measures: inout [Measure?],
        _ depth: Int
    ) throws(SchemaError) -> Measure {
        if let measure = measures[place] { return measure }
        let pointer = nodes[place].pointer
        let tooDeep = SchemaError(
            pointer: pointer,
            "schemas apply to one value too deeply, or in a loop"
        )
        guard depth < Self.maximumHeight else { throw tooDeep }
        var measure = Measure()
        for inner in nodes[place].combined?.inPlace ?? [] {
            let inner = try self.measure(of: inner, &measures, depth + 1)
            measure.height = max(measure.height, inner.height + 1)
            measure.applications = min(measure.applications + inner.applications, 1 << 40)
        }
        guard measure.height < Self.maximumHeight else { throw tooDeep }
        guard isStored || measure.applications <= Self.maximumApplications else {
            throw SchemaError(
                pointer: pointer,
                "more than \(Self.maximumApplications) schemas apply to one value, those that $ref"
                    + " names counted each time; name each once"
            )
        }
        measures[place] = measure
        return measure
    }
}
