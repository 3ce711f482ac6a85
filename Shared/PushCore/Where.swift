package import JSON

/// A selection of objects: LeanCloud's and Parse's `where`, parsed once, typed and bounded. Pure.
/// deploy/guides/push-request.md explains its meaning.
///
/// It has the meaning of MongoDB. An absent field equals `null`. It matches only negative tests
/// (`$ne`, `$nin`, `$nor`, `$notInQuery`, `$dontSelect`) and `$exists: false`. Values of different
/// types never compare. An array matches a test if the array itself or one of its elements does.
/// Dotted paths go through objects, not through arrays.
package enum Where: Sendable, Equatable {
    /// All of these hold. An empty list matches everything.
    case all([Where])
    case any([Where])
    /// None of these holds.
    case none([Where])
    case field(WherePath, WhereTest)

    package static let everything = Where.all([])

    /// The maximum depth of conditions, sub-queries and values.
    package static let maximumDepth = 16
    /// The maximum total number of conditions, tests and members of values.
    package static let maximumNodes = 1000
    /// The maximum total number of elements of all lists.
    package static let maximumElements = 10_000
    package static let maximumPatternBytes = 1000
    /// The maximum total size of all patterns.
    package static let maximumPatternBytesInAll = 4000
    /// The maximum depth of sub-queries.
    package static let maximumQueryDepth = 3
    package static let maximumPathSegments = 8
    package static let maximumKeyBytes = 128
}

/// A field's name, or a dotted path into a field.
package struct WherePath: Sendable, Hashable {
    package let segments: [String]

    package init(segments: [String]) { self.segments = segments }

    package var text: String { segments.joined(separator: ".") }
}

/// The test of one field.
package indirect enum WhereTest: Sendable, Equatable {
    case equal(WhereValue)
    case notEqual(WhereValue)
    case compare(Comparison, WhereValue)
    case among([WhereValue])
    case notAmong([WhereValue])
    /// Each of these equals the field or an element of it. An empty list matches nothing.
    case holdsAll([WhereElement])
    /// An array of which every element is one of these.
    case containedBy([WhereValue])
    case size(Int)
    case exists(Bool)
    case pattern(WherePattern)
    /// A pointer to an object that the query selects.
    case inQuery(WhereQuery)
    case notInQuery(WhereQuery)
    /// Equal to the value of that field in an object that the query selects.
    case selected(WherePath, by: WhereQuery)
    case notSelected(WherePath, by: WhereQuery)
    /// A point whose distance, in radians, is within these limits, inclusive.
    case near(GeoPoint, minimum: Double?, maximum: Double?)
    case inBox(southWest: GeoPoint, northEast: GeoPoint)
    /// A point inside of a polygon on the plane of longitude and latitude.
    case inPolygon([GeoPoint])

    package enum Comparison: String, Sendable {
        case less = "$lt"
        case lessOrEqual = "$lte"
        case greater = "$gt"
        case greaterOrEqual = "$gte"
    }
}

package enum WhereElement: Sendable, Equatable {
    case value(WhereValue)
    case pattern(WherePattern)
}

/// A value to compare with. Strings contain no NUL, numbers are finite.
package enum WhereValue: Sendable, Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    case double(Double)
    case string(String)
    case date(Instant)
    case pointer(className: String, objectID: String)
    case point(GeoPoint)
    /// An array, or an object of an unknown type. It is compared only as a whole.
    case structure(JSONValue)
}

/// A query inside of a `where`.
package struct WhereQuery: Sendable, Equatable {
    package var condition: Where
    /// The class; `nil` for the class of the pointer that is compared (the short form, which has no
    /// limit either).
    package var className: String?
    package var limit: Int?
    package var skip: Int
    package var order: [SortKey]

    package static let defaultLimit = 100
    package static let maximumLimit = 1000

    package init(
        condition: Where,
        className: String?,
        limit: Int?,
        skip: Int = 0,
        order: [SortKey] = []
    ) {
        self.condition = condition
        self.className = className
        self.limit = limit
        self.skip = skip
        self.order = order
    }
}

/// One of the keys of `order`.
package struct SortKey: Sendable, Equatable {
    package let path: WherePath
    package let isDescending: Bool

    package init(path: WherePath, isDescending: Bool) {
        self.path = path
        self.isDescending = isDescending
    }
}

/// The reason why a `where` is invalid. Names the field and the operator, never contains a value.
package struct WhereError: Error, Equatable, Sendable, CustomStringConvertible {
    /// LeanCloud's error code.
    package let code: Int
    /// Empty if no single field is at fault.
    package let field: String
    package let problem: String

    package init(code: Int, field: String = "", _ problem: String) {
        self.code = code
        self.field = field
        self.problem = problem
    }

    package var description: String { field.isEmpty ? problem : "\(field): \(problem)" }

    static func unsupported(_ field: String, _ what: String) -> WhereError {
        WhereError(code: 102, field: field, "\(what) is not supported")
    }

    static func malformed(_ field: String, _ problem: String) -> WhereError {
        WhereError(code: 107, field: field, problem)
    }
}

extension Where {
    /// The point by whose distance objects are sorted if the query has no order.
    package var nearest: (path: WherePath, point: GeoPoint)? {
        switch self {
        case .field(let path, .near(let point, _, _)): return (path, point)
        case .all(let parts):
            for part in parts { if let nearest = part.nearest { return nearest } }
            return nil
        case .field, .any, .none: return nil
        }
    }
}
