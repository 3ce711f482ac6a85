import PushCore
import Storage

extension Where {
    /// Whether an index that always exists finds the matching objects: the index of the apps' own
    /// fields, of channels, or of the ids of an object, a device or its owner.
    func isIndexed(in table: WhereTable) -> Bool {
        switch self {
        case .all(let parts): parts.contains { $0.isIndexed(in: table) }
        case .any(let parts): !parts.isEmpty && parts.allSatisfy { $0.isIndexed(in: table) }
        case .none: false
        case .field(let path, let test):
            switch table.column(of: path) {
            case .json: test.isIndexedInFields
            case .textArray:
                test.values.contains(where: \.isText)
                    && (test.isOfAll || !test.values.contains(.null))
            case .text(let column):
                [table.objectID, "installation_id", "identity"].contains(column)
                    && !test.isOfAll && !test.values.isEmpty && test.values.allSatisfy(\.isText)
            case .integer, .boolean, .timestamp, .nothing: false
            }
        }
    }
}

extension WhereTest {
    fileprivate var isIndexedInFields: Bool {
        if case .inQuery(let query) = self { return query.limit != nil }
        if isOfAll { return values.contains { $0.isContainable && $0 != .null } }
        return (1...WhereCompiler.maximumProbes).contains(values.count)
            && values.allSatisfy { $0.isContainable && $0 != .null }
    }

    fileprivate var isOfAll: Bool { if case .holdsAll = self { true } else { false } }

    /// The values of a test for equality, of which one or all must be present.
    fileprivate var values: [WhereValue] {
        switch self {
        case .equal(let value): [value]
        case .among(let values): values
        case .holdsAll(let elements):
            elements.compactMap { if case .value(let value) = $0 { value } else { nil } }
        case .notEqual, .notAmong, .compare, .containedBy, .size, .exists, .pattern, .inQuery,
            .notInQuery, .selected, .notSelected, .near, .inBox, .inPolygon:
            []
        }
    }
}

extension WhereValue {
    fileprivate var isText: Bool { if case .string = self { true } else { false } }
}
