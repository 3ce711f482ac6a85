internal import JSON
internal import RegularExpressions

/// The working state of checks: confined to its owner.
///
/// A check has a budget of steps, about one for each value that a schema is applied to, and one for
/// its patterns: 1 ms each, and more for an object of many values or long strings, in proportion to
/// its size. Objects that need more are refused. Both are counts, so an object is refused on every
/// machine or on none.
package final class SchemaChecker {
    /// The base budget of a check; a step takes some 40 ns.
    package static let stepsPerCheck = 25_000
    /// The additional budget for each value of the object: a value rarely has more schemas.
    package static let stepsPerValue = 16
    /// The base budget of the patterns of a check; a step takes some 10 ns.
    package static let patternStepsPerCheck = 100_000
    /// The additional budget for each byte of the object's strings.
    package static let patternStepsPerByte = 4
    /// The greatest depth of schemas, values and schemas counted together.
    static let maximumDepth = 768
    /// The longest pointer in an answer; it is cut at a property.
    static let maximumPointerBytes = 1024

    private let matcher = RegularExpressionMatcher()
    private var steps = 0
    private var patternSteps = 0
    private var root = JSONValue.null
    /// Whether the budgets include the allowance for the object's size.
    private var isExtended = false
    private var depth = 0
    private var isSpent = false
    /// The path, from the innermost part out.
    private var path: [PathPart] = []
    private var fault = ViolationKind.never

    package init() {}

    func check(_ value: JSONValue, _ tree: SchemaTree, from place: Int) -> SchemaViolation? {
        steps = Self.stepsPerCheck
        patternSteps = Self.patternStepsPerCheck
        root = value
        isExtended = false
        depth = 0
        isSpent = false
        defer { root = .null }
        guard !takes(value, tree, place) else { return nil }
        let violation = SchemaViolation(pointer: pointer, fault.reason)
        path.removeAll(keepingCapacity: path.count < 128)
        return violation
    }

    private var pointer: String {
        var pointer = ""
        for part in path.reversed() {
            let next =
                switch part {
                case .key(let key): SchemaCompiler.escaped(key)
                case .index(let index): String(index)
                }
            guard pointer.utf8.count + next.utf8.count < Self.maximumPointerBytes else { break }
            pointer += "/" + next
        }
        return pointer
    }

    private func fails(_ fault: ViolationKind) -> Bool {
        path.removeAll(keepingCapacity: true)
        self.fault = fault
        return false
    }

    private func spent() -> Bool {
        isSpent = true
        return fails(.tooLong)
    }

    private func spend(_ count: Int) -> Bool {
        steps -= count
        return steps > 0 || (extend() && steps > 0)
    }

    /// Adds the allowance for the object's size, once, if it is needed: most objects need none of
    /// it.
    private func extend() -> Bool {
        guard !isExtended else { return false }
        isExtended = true
        let size = Self.size(root)
        steps += size.values * Self.stepsPerValue
        patternSteps += size.textBytes * Self.patternStepsPerByte
        return true
    }

    private static func size(_ value: JSONValue) -> (values: Int, textBytes: Int) {
        var (values, textBytes) = (1, 0)
        func add(_ inner: JSONValue) {
            let size = Self.size(inner)
            values += size.values
            textBytes += size.textBytes
        }
        switch value {
        case .null, .bool, .integer, .double, .number: break
        case .string(let text): textBytes = text.utf8.count
        case .array(let elements): for element in elements { add(element) }
        case .object(let members): for (_, member) in members { add(member) }
        }
        return (values, textBytes)
    }

    // MARK: One value

    private func takes(_ value: JSONValue, _ tree: SchemaTree, _ place: Int) -> Bool {
        guard spend(1), depth < Self.maximumDepth else { return spent() }
        depth += 1
        defer { depth -= 1 }
        let node = tree.nodes[place]
        if let boolean = node.boolean { return boolean || fails(.never) }
        if let kinds = node.kinds, !kinds.takes(value) { return fails(.kinds(kinds)) }
        if let values = node.values {
            // A long list is searched by a hash; in a short one each may be compared to its end.
            let comparisons = values.keys == nil ? values.values.count : 2
            guard spend(comparisons * SchemaKey.size(value)) else { return spent() }
            guard values.takes(value) else { return fails(.values(values)) }
        }
        switch value {
        case .null, .bool: break
        case .integer, .double, .number:
            if let rules = node.number, !takes(value, number: rules) { return false }
        case .string(let text):
            if let rules = node.text, !takes(text, text: rules) { return false }
        case .array(let array):
            if let rules = node.array, !takes(array, array: rules, tree) { return false }
        case .object(let object):
            if let rules = node.object, !takes(object, object: rules, tree) { return false }
        }
        guard let combined = node.combined else { return true }
        return takes(value, combined: combined, tree)
    }

    private func takes(_ value: JSONValue, number rules: NumberRules) -> Bool {
        if let bound = rules.minimum, Numbers.compare(value, bound) < 0 {
            return fails(.bound("must be at least", bound))
        }
        if let bound = rules.exclusiveMinimum, Numbers.compare(value, bound) <= 0 {
            return fails(.bound("must be above", bound))
        }
        if let bound = rules.maximum, Numbers.compare(value, bound) > 0 {
            return fails(.bound("must be at most", bound))
        }
        if let bound = rules.exclusiveMaximum, Numbers.compare(value, bound) >= 0 {
            return fails(.bound("must be below", bound))
        }
        if let divisor = rules.multipleOf, !rules.isMultiple(value) {
            return fails(.bound("must be a multiple of", divisor))
        }
        return true
    }

    private func takes(_ text: String, text rules: TextRules) -> Bool {
        let bytes = text.utf8.count
        guard spend(bytes / 16) else { return spent() }
        if rules.minimum > 0 || bytes > rules.maximum {
            let count = text.utf8.count { $0 & 0xC0 != 0x80 }
            if count < rules.minimum { return fails(.fewer(rules.minimum, "characters")) }
            if count > rules.maximum { return fails(.more(rules.maximum, "characters")) }
        }
        if let format = rules.format, !format.takes(text) { return fails(.format(format)) }
        guard let pattern = rules.pattern else { return true }
        if patternSteps < RegularExpressionMatcher.stepsPerSearch { _ = extend() }
        switch matcher.search(pattern, in: text, steps: &patternSteps) {
        case .found: return true
        case .notFound: return fails(.pattern)
        case .tookTooLong: return spent()
        }
    }

    private func takes(_ array: [JSONValue], array rules: ArrayRules, _ tree: SchemaTree) -> Bool {
        if array.count < rules.minimum { return fails(.fewer(rules.minimum, "items")) }
        if array.count > rules.maximum { return fails(.more(rules.maximum, "items")) }
        if !rules.prefix.isEmpty || rules.rest != nil {
            for (index, value) in array.enumerated() {
                let inner = index < rules.prefix.count ? rules.prefix[index] : rules.rest
                guard let inner else { break }
                guard takes(value, tree, inner) else {
                    path.append(.index(index))
                    return false
                }
            }
        }
        return !rules.isUnique || isUnique(array)
    }

    private func isUnique(_ array: [JSONValue]) -> Bool {
        guard array.count > 1 else { return true }
        var keys = Set<SchemaKey>(minimumCapacity: array.count)
        for (index, value) in array.enumerated() {
            guard spend(SchemaKey.size(value)) else { return spent() }
            guard keys.insert(SchemaKey(value)).inserted else {
                _ = fails(.repeated)
                path.append(.index(index))
                return false
            }
        }
        return true
    }

    private func takes(
        _ object: JSONObject,
        object rules: ObjectRules,
        _ tree: SchemaTree
    ) -> Bool {
        if object.count < rules.minimum { return fails(.fewer(rules.minimum, "properties")) }
        if object.count > rules.maximum { return fails(.more(rules.maximum, "properties")) }
        guard !rules.properties.isEmpty || rules.rest != nil else { return true }
        var required = 0
        var hint = 0
        for (key, value) in object {
            guard spend(1) else { return spent() }
            var inner = rules.rest
            if let place = rules.place(of: key, hint: hint) {
                hint = place + 1
                let property = rules.properties[place]
                if property.isRequired { required += 1 }
                inner = property.node ?? rules.rest
            } else if let rest = inner, tree.nodes[rest].boolean == false {
                _ = fails(.unknown)
                path.append(.key(key))
                return false
            }
            guard let inner else { continue }
            guard takes(value, tree, inner) else {
                path.append(.key(key))
                return false
            }
        }
        guard required < rules.required else { return true }
        guard spend(rules.properties.count) else { return spent() }
        _ = fails(.missing)
        let missing = rules.properties.first { $0.isRequired && object[$0.name] == nil }
        if let missing { path.append(.key(missing.name)) }
        return false
    }

    // MARK: Several schemas

    private func takes(
        _ value: JSONValue,
        combined rules: CombinedRules,
        _ tree: SchemaTree
    ) -> Bool {
        if let reference = rules.reference, !takes(value, tree, reference) { return false }
        for inner in rules.all where !takes(value, tree, inner) { return false }
        if !rules.any.isEmpty {
            var isTaken = false
            for inner in rules.any {
                isTaken = takes(value, tree, inner)
                if isTaken || isSpent { break }
            }
            if isSpent { return false }
            // For a single alternative the fault itself says more.
            guard isTaken else { return rules.any.count == 1 ? false : fails(.noneOfAny) }
        }
        if !rules.one.isEmpty {
            var count = 0
            for inner in rules.one {
                if takes(value, tree, inner) { count += 1 }
                if isSpent { return false }
                if count > 1 { return fails(.severalOfOne) }
            }
            guard count == 1 else { return rules.one.count == 1 ? false : fails(.noneOfOne) }
        }
        if let not = rules.not {
            let isTaken = takes(value, tree, not)
            if isSpent { return false }
            if isTaken { return fails(.taken) }
        }
        return true
    }
}

private enum PathPart {
    case key(String)
    case index(Int)
}

/// A fault, rendered only for an answer.
private enum ViolationKind {
    case never, missing, unknown, pattern, repeated, noneOfAny, noneOfOne, severalOfOne, taken
    case tooLong
    case kinds(ValueKinds)
    case values(ValueRules)
    case bound(StaticString, JSONValue)
    case fewer(Int, StaticString)
    case more(Int, StaticString)
    case format(SchemaFormat)

    var reason: String {
        switch self {
        case .never: "is not allowed here"
        case .missing: "is required"
        case .unknown: "is not a property of this type"
        case .pattern: "must match the pattern"
        case .repeated: "must not be there twice"
        case .noneOfAny: "must match one of the schemas of anyOf"
        case .noneOfOne: "must match one of the schemas of oneOf"
        case .severalOfOne: "must match no more than one of the schemas of oneOf"
        case .taken: "must not match the schema of not"
        case .tooLong: "takes too long to check"
        case .kinds(let kinds): "must be \(kinds.phrase)"
        case .values(let rules):
            rules.keyword == "enum" ? "must be one of the listed values" : "must be the one value"
        case .bound(let phrase, let bound):
            "\(phrase) \(bound.text)"
        case .fewer(let count, let what): "must have at least \(count) \(what)"
        case .more(let count, let what): "must have at most \(count) \(what)"
        case .format(let format): format.phrase
        }
    }
}
