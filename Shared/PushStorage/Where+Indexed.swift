import PushCore

extension Where {
    /// Whether an index that always is there leads to the installations that meet this: that of the
    /// apps' own fields, of channels, or of what names a device or its owner.
    var isIndexed: Bool {
        switch self {
        case .all(let parts): parts.contains(where: \.isIndexed)
        case .any(let parts): !parts.isEmpty && parts.allSatisfy(\.isIndexed)
        case .none: false
        case .field(let path, let test):
            switch WhereTable.installations.column(of: path) {
            case .json: test.isIndexedInFields
            case .textArray: test.values.contains(where: \.isText)
            case .text(let column):
                ["object_id", "installation_id", "identity"].contains(column)
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

    /// The values of a test for equality, one or all of which must be there.
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
