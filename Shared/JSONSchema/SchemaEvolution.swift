internal import JSON
internal import RegularExpressions

/// Compares a schema with a newer one. For one use.
///
/// Each rule of the newer must follow from one of the older; if that cannot be shown it counts as
/// narrower. Schemas may be recursive: a pair that is being compared is assumed to be compatible,
/// and a fault elsewhere ends the whole comparison, or reverts the assumptions of an attempt.
struct SchemaEvolution {
    /// The most pairs that are compared.
    static let maximumSteps = 20_000

    private let older: SchemaTree
    private let newer: SchemaTree
    private let checker = SchemaChecker()
    private var assumed: Set<Pair> = []
    private var steps = 0

    private struct Pair: Hashable {
        /// `nil` accepts all.
        let older: Int?
        let newer: Int?
    }

    private init(_ older: SchemaTree, _ newer: SchemaTree) {
        self.older = older
        self.newer = newer
    }

    static func narrowing(from older: ObjectSchema, to newer: ObjectSchema) -> SchemaError? {
        var evolution = SchemaEvolution(older.tree, newer.tree)
        do throws(SchemaError) {
            try evolution.compare(older.tree.root, newer.tree.root)
            try evolution.compareColumns(older, newer)
            return nil
        } catch {
            return error
        }
    }

    private func compareColumns(
        _ older: ObjectSchema,
        _ newer: ObjectSchema
    ) throws(SchemaError) {
        let columns = ExactStringMap(
            older.properties.map { ($0.name, $0.column) },
            uniquingKeysWith: { first, _ in first }
        )
        for (name, column) in newer.properties {
            guard let before = columns[name], before != column,
                !(before == .integer && column == .number)
            else { continue }
            let pointer = "/properties/\(SchemaCompiler.escaped(name))"
            throw SchemaError(pointer: pointer, "must keep its type")
        }
    }

    // MARK: One pair

    private mutating func compare(_ old: Int?, _ new: Int?) throws(SchemaError) {
        let old = old.map { older.resolved($0) }
        let new = new.map { newer.resolved($0) }
        guard let new, assumed.insert(Pair(older: old, newer: new)).inserted else { return }
        steps += 1
        let before = old.map { older.nodes[$0] } ?? SchemaNode(SchemaDraft(pointer: ""))
        let after = newer.nodes[new]
        guard steps <= Self.maximumSteps else {
            throw SchemaError(pointer: after.pointer, "takes too long to compare")
        }
        if before.boolean == false || after.boolean == true { return }
        if after.boolean == false { throw error(after, "", "takes nothing any more") }
        if let old, isSame(old, new) { return }
        try compareKinds(before, after)
        if let values = before.values {
            try compareListed(values, old, after, new)
            return
        }
        if let values = after.values {
            throw error(after, values.keyword, "took other values too")
        }
        try compareNumbers(before.number, after)
        try compareTexts(before.text, after)
        try compareArrays(before.array, after)
        try compareObjects(before.object, after)
        try compareCombined(old, before.combined, after)
    }

    private func error(_ node: SchemaNode, _ keyword: String, _ reason: String) -> SchemaError {
        SchemaError(pointer: keyword.isEmpty ? node.pointer : "\(node.pointer)/\(keyword)", reason)
    }

    private func compareKinds(
        _ before: SchemaNode,
        _ after: SchemaNode
    ) throws(SchemaError) {
        guard before.kinds != after.kinds else { return }
        // The keyword as in the newer schema.
        let keyword = after.kinds == nil ? "" : after.isAtlas ? "bsonType" : "type"
        guard let old = before.kinds, let new = after.kinds else {
            // A boolean schema `true` accepted everything, as one without a type does.
            throw error(after, keyword, "must keep its type")
        }
        guard old.each.allSatisfy({ !$0.wider.isDisjoint(with: new) }) else {
            throw error(after, keyword, "took more types")
        }
        guard
            new.each.allSatisfy({ kind in
                kind == .null || old.each.contains { $0.wider.contains(kind) }
            })
        else { throw error(after, keyword, "must keep its type") }
    }

    /// Compares listed values, each of which can be checked.
    private mutating func compareListed(
        _ values: ValueRules,
        _ old: Int?,
        _ after: SchemaNode,
        _ new: Int
    ) throws(SchemaError) {
        for value in values.values {
            steps += 1
            if let old, checker.check(value, older, from: old) != nil { continue }
            guard checker.check(value, newer, from: new) == nil else {
                throw error(after, after.values?.keyword ?? "", "took more of the values before")
            }
        }
    }

    // MARK: Numbers, strings

    private func compareNumbers(
        _ before: NumberRules?,
        _ after: SchemaNode
    ) throws(SchemaError) {
        guard let rules = after.number else { return }
        func isAbove(_ bound: JSONValue?, _ other: JSONValue, _ least: Int) -> Bool {
            bound.map { Numbers.compare($0, other) >= least } ?? false
        }
        func isBelow(_ bound: JSONValue?, _ other: JSONValue, _ most: Int) -> Bool {
            bound.map { Numbers.compare($0, other) <= most } ?? false
        }
        if let bound = rules.minimum, !isAbove(before?.minimum, bound, 0),
            !isAbove(before?.exclusiveMinimum, bound, 0)
        {
            throw error(after, "minimum", "took lower values")
        }
        if let bound = rules.exclusiveMinimum, !isAbove(before?.minimum, bound, 1),
            !isAbove(before?.exclusiveMinimum, bound, 0)
        {
            throw error(after, "exclusiveMinimum", "took lower values")
        }
        if let bound = rules.maximum, !isBelow(before?.maximum, bound, 0),
            !isBelow(before?.exclusiveMaximum, bound, 0)
        {
            throw error(after, "maximum", "took higher values")
        }
        if let bound = rules.exclusiveMaximum, !isBelow(before?.maximum, bound, -1),
            !isBelow(before?.exclusiveMaximum, bound, 0)
        {
            throw error(after, "exclusiveMaximum", "took higher values")
        }
        if let divisor = rules.divisor, before?.divisor?.isMultiple(of: divisor) != true {
            throw error(after, "multipleOf", "took other values too")
        }
    }

    private func compareTexts(_ before: TextRules?, _ after: SchemaNode) throws(SchemaError) {
        guard let rules = after.text else { return }
        guard rules.minimum <= before?.minimum ?? 0 else {
            throw error(after, "minLength", "took shorter texts")
        }
        guard rules.maximum >= before?.maximum ?? .max else {
            throw error(after, "maxLength", "took longer texts")
        }
        if let pattern = rules.pattern?.pattern,
            before?.pattern?.pattern.isSame(as: pattern) != true
        {
            throw error(after, "pattern", "took other texts too")
        }
        if let format = rules.format, format != before?.format {
            throw error(after, "format", "took other texts too")
        }
    }

    // MARK: Arrays, objects

    private mutating func compareArrays(
        _ before: ArrayRules?,
        _ after: SchemaNode
    ) throws(SchemaError) {
        guard let rules = after.array else { return }
        guard rules.minimum <= before?.minimum ?? 0 else {
            throw error(after, "minItems", "took shorter lists")
        }
        guard rules.maximum >= before?.maximum ?? .max else {
            throw error(after, "maxItems", "took longer lists")
        }
        guard !rules.isUnique || before?.isUnique == true else {
            throw error(after, "uniqueItems", "took lists with repeats")
        }
        let prefix = before?.prefix ?? []
        for index in 0..<max(prefix.count, rules.prefix.count) {
            try compare(
                index < prefix.count ? prefix[index] : before?.rest,
                index < rules.prefix.count ? rules.prefix[index] : rules.rest
            )
        }
        try compare(before?.rest, rules.rest)
    }

    private mutating func compareObjects(
        _ before: ObjectRules?,
        _ after: SchemaNode
    ) throws(SchemaError) {
        guard let rules = after.object else { return }
        guard rules.minimum <= before?.minimum ?? 0 else {
            throw error(after, "minProperties", "took smaller objects")
        }
        guard rules.maximum >= before?.maximum ?? .max else {
            throw error(after, "maxProperties", "took larger objects")
        }
        for property in rules.properties {
            let earlier = before?.property(property.name)
            guard !property.isRequired || earlier?.isRequired == true else {
                throw error(after, "required", "\(property.name) was not required")
            }
            guard let node = property.node else { continue }
            if let own = earlier?.node {
                try compare(own, node)
            } else if earlier != nil {
                // It had to be present already, with any value.
                try compare(before?.rest, node)
            } else if let rest = before?.rest, older.nodes[rest].boolean == nil {
                try compare(rest, node)
            }
        }
        guard let rest = rules.rest else { return }
        for property in before?.properties ?? [] {
            guard let own = property.node, rules.property(property.name)?.node == nil else {
                continue
            }
            if newer.nodes[rest].boolean == false, older.nodes[own].boolean != false {
                let name = SchemaCompiler.escaped(property.name)
                throw error(after, "properties/\(name)", "is no longer accepted")
            }
            try compare(own, rest)
        }
        if before?.rest == nil, newer.nodes[rest].boolean == false {
            throw error(after, "additionalProperties", "took other properties too")
        }
        try compare(before?.rest, rest)
    }

    // MARK: Several schemas

    private mutating func compareCombined(
        _ old: Int?,
        _ before: CombinedRules?,
        _ after: SchemaNode
    ) throws(SchemaError) {
        guard let rules = after.combined else { return }
        let earlier = (before?.all ?? []) + [before?.reference].compactMap(\.self)
        for (index, inner) in rules.all.enumerated() {
            guard isTaken(inner, byOneOf: earlier) else {
                throw error(after, "allOf/\(index)", "was not asked before")
            }
        }
        if let reference = rules.reference, !isTaken(reference, byOneOf: earlier) {
            throw error(after, "$ref", "was not asked before")
        }
        if !rules.any.isEmpty {
            let any = before?.any ?? []
            guard !any.isEmpty else { throw error(after, "anyOf", "was not asked before") }
            for inner in any {
                guard takesOne(of: rules.any, inner) else {
                    throw error(after, "anyOf", "took more before")
                }
            }
        }
        if !rules.one.isEmpty {
            let one = before?.one ?? []
            guard one.count == rules.one.count,
                zip(one, rules.one).allSatisfy({ isSame($0, $1) })
            else { throw error(after, "oneOf", "must stay as it was") }
        }
        if let not = rules.not {
            guard let earlier = before?.not, isSame(earlier, not) else {
                throw error(after, "not", "must stay as it was")
            }
        }
    }

    private mutating func isTaken(_ new: Int, byOneOf olds: [Int]) -> Bool {
        for old in olds where attempt(old, new) { return true }
        return false
    }

    private mutating func takesOne(of news: [Int], _ old: Int) -> Bool {
        for new in news where attempt(old, new) { return true }
        return false
    }

    /// Whether the pair is compatible; if not, all its assumptions are reverted.
    private mutating func attempt(_ old: Int, _ new: Int) -> Bool {
        let before = assumed
        do throws(SchemaError) {
            try compare(old, new)
            return true
        } catch {
            assumed = before
            return false
        }
    }

    // MARK: Equality

    private func isSame(_ old: Int, _ new: Int) -> Bool {
        var seen: Set<Pair> = []
        return isSame(old, new, &seen)
    }

    /// Whether both have the same rules, in the same form.
    private func isSame(_ old: Int?, _ new: Int?, _ seen: inout Set<Pair>) -> Bool {
        guard let old, let new else { return old == nil && new == nil }
        guard seen.insert(Pair(older: old, newer: new)).inserted else { return true }
        guard seen.count <= 10_000 else { return false }
        let before = older.nodes[old]
        let after = newer.nodes[new]
        guard before.boolean == after.boolean, before.kinds == after.kinds,
            Self.same(before.values, after.values), Self.same(before.number, after.number),
            Self.same(before.text, after.text)
        else { return false }
        let inner = Self.inner(of: before)
        let others = Self.inner(of: after)
        guard let inner, let others else { return inner == nil && others == nil }
        guard inner.shape == others.shape, inner.names.areSame(as: others.names) else {
            return false
        }
        for (place, other) in zip(inner.places, others.places)
        where !isSame(place, other, &seen) { return false }
        return true
    }

    private static func same(_ left: ValueRules?, _ right: ValueRules?) -> Bool {
        guard let left, let right else { return left == nil && right == nil }
        return left.values == right.values
    }

    private static func same(_ left: NumberRules?, _ right: NumberRules?) -> Bool {
        left?.minimum == right?.minimum && left?.exclusiveMinimum == right?.exclusiveMinimum
            && left?.maximum == right?.maximum && left?.exclusiveMaximum == right?.exclusiveMaximum
            && left?.multipleOf == right?.multipleOf
    }

    private static func same(_ left: TextRules?, _ right: TextRules?) -> Bool {
        guard let left, let right else { return left == nil && right == nil }
        return left.minimum == right.minimum && left.maximum == right.maximum
            && left.format == right.format
            && (left.pattern?.pattern).isSame(as: right.pattern?.pattern)
    }

    /// Returns the schemas within one, and its rules for lists, objects and combinations without
    /// the schemas.
    private static func inner(
        of node: SchemaNode
    ) -> (shape: [Int], names: [String], places: [Int?])? {
        guard node.array != nil || node.object != nil || node.combined != nil else { return nil }
        var shape: [Int] = []
        var names: [String] = []
        var places: [Int?] = []
        if let array = node.array {
            shape += [1, array.minimum, array.maximum, array.prefix.count, array.isUnique ? 1 : 0]
            places += array.prefix + [array.rest]
        }
        if let object = node.object {
            shape += [2, object.minimum, object.maximum]
            shape += object.properties.map { $0.isRequired ? 1 : 0 }
            names += object.properties.map(\.name)
            places += object.properties.map(\.node) + [object.rest]
        }
        if let combined = node.combined {
            shape += [3, combined.all.count, combined.any.count, combined.one.count]
            places += combined.all + combined.any + combined.one
            places += [combined.reference, combined.not]
        }
        return (shape, names, places)
    }
}
