internal import JSON

/// A compiled schema: its nodes, which refer to each other by index. Immutable.
struct SchemaTree: Sendable {
    let nodes: [SchemaNode]
    let root: Int

    /// Returns the node itself, or its target if it has nothing but `$ref`.
    func resolved(_ place: Int) -> Int {
        var place = place
        while let next = nodes[place].onlyReference { place = next }
        return place
    }

    /// Returns how a view shows such a value.
    func column(of place: Int) -> SchemaColumn {
        let node = nodes[resolved(place)]
        guard let kinds = node.kinds ?? node.values.flatMap(Self.kinds) else { return .json }
        let shown = kinds.subtracting(.null)
        switch shown {
        case .boolean: return .boolean
        case .string: return node.text?.format == .dateTime ? .time : .text
        case .date: return .time
        case .objectID, .uuid, .decimal, [.objectID, .uuid]: return .text
        case []: return .json
        default:
            if shown.isSubset(of: [.integer, .int32, .int64]) { return .integer }
            if shown.isSubset(of: [.integer, .int32, .int64, .number, .double]) { return .number }
            return .json
        }
    }

    /// Returns the kinds of listed values, if all are of JSON's plain kinds.
    private static func kinds(_ rules: ValueRules) -> ValueKinds? {
        var kinds: ValueKinds = []
        for value in rules.values {
            switch value {
            case .null: kinds.insert(.null)
            case .bool: kinds.insert(.boolean)
            case .string: kinds.insert(.string)
            case .integer: kinds.insert(.integer)
            case .double, .number: kinds.insert(.number)
            case .array, .object: return nil
            }
        }
        return kinds
    }
}
