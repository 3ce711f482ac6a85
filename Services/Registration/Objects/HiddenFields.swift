import JSON
import PushCore

/// The contact fields of identities. The app key does not show them, and must not query them either: a caller
/// that may ask "does it begin with a?" can read the whole value.
enum HiddenFields {
    static let names: ExactStringSet = ["email", "mobilePhoneNumber"]

    /// Returns the first hidden field in a query, including its sub-queries.
    static func first(
        in condition: Where,
        order: [SortKey] = [],
        of className: String
    ) -> WherePath? {
        let isOfIdentities = className == "_User"
        if isOfIdentities, let key = order.first(where: { isHidden($0.path) }) { return key.path }
        switch condition {
        case .all(let parts), .any(let parts), .none(let parts):
            for part in parts { if let found = first(in: part, of: className) { return found } }
            return nil
        case .field(let path, let test):
            if isOfIdentities, isHidden(path) { return path }
            switch test {
            case .inQuery(let query), .notInQuery(let query): return first(in: query)
            case .selected(let key, by: let query), .notSelected(let key, by: let query):
                if query.className ?? "_User" == "_User", isHidden(key) { return key }
                return first(in: query)
            case .equal, .notEqual, .compare, .among, .notAmong, .holdsAll, .containedBy, .size,
                .exists, .pattern, .near, .inBox, .inPolygon:
                return nil
            }
        }
    }

    /// Whether a condition also queries other objects.
    static func hasSubquery(_ condition: Where) -> Bool {
        switch condition {
        case .all(let parts), .any(let parts), .none(let parts): parts.contains(where: hasSubquery)
        case .field(_, .inQuery), .field(_, .notInQuery), .field(_, .selected),
            .field(_, .notSelected):
            true
        case .field: false
        }
    }

    private static func first(in query: WhereQuery) -> WherePath? {
        first(in: query.condition, order: query.order, of: query.className ?? "_User")
    }

    private static func isHidden(_ path: WherePath) -> Bool {
        path.segments.first.map(names.contains) ?? false
    }
}
