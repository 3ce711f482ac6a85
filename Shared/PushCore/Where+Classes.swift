extension Where {
    /// The known classes.
    package static let classNames: Set<String> = ["_Installation", "_User"]

    /// Validates the classes that sub-queries select from.
    ///
    /// - Throws: `WhereError` 103 that names an unknown class.
    package func checkClasses() throws(WhereError) {
        switch self {
        case .all(let parts), .any(let parts), .none(let parts):
            for part in parts { try part.checkClasses() }
        case .field(let path, let test):
            guard let query = test.query else { return }
            if let name = query.className, !Self.classNames.contains(name) {
                throw WhereError(
                    code: 103,
                    field: path.text,
                    "the class \(name.prefix(100)) cannot be queried here"
                )
            }
            try query.condition.checkClasses()
        }
    }
}

extension WhereTest {
    /// The sub-query of the test.
    fileprivate var query: WhereQuery? {
        switch self {
        case .inQuery(let query), .notInQuery(let query), .selected(_, by: let query),
            .notSelected(_, by: let query):
            query
        case .equal, .notEqual, .compare, .among, .notAmong, .holdsAll, .containedBy, .size,
            .exists, .pattern, .near, .inBox, .inPolygon:
            nil
        }
    }
}
