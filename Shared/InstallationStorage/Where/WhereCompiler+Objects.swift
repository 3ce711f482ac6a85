package import PushCore
import Storage

extension WhereCompiler {
    /// Returns the condition on rows of `identities`, like `installations`.
    mutating func identities(
        _ condition: Where,
        as alias: String
    ) throws(WhereError) -> String {
        try bounded(compile(condition, WhereRows(table: .identities, alias: alias)))
    }

    /// Returns the condition on rows of `PushStore.records`, like `installations`.
    package mutating func pushRecords(
        _ condition: Where,
        as alias: String
    ) throws(WhereError) -> String {
        for path in condition.paths { try Self.checkPushField(path) }
        return try bounded(compile(condition, WhereRows(table: .pushRecords, alias: alias)))
    }

    package mutating func order(
        _ keys: [SortKey],
        of condition: Where,
        in table: WhereTable,
        as alias: String
    ) throws(WhereError) -> String {
        if case .pushRecords = table { for key in keys { try Self.checkPushField(key.path) } }
        return order(keys, of: condition, WhereRows(table: table, alias: alias))
    }

    /// Throws for the contents of a push, which are stored as they were received and cannot be queried.
    private static func checkPushField(_ path: WherePath) throws(WhereError) {
        if case .nothing = WhereTable.pushRecords.column(of: path) {
            throw WhereError(
                code: 102,
                field: path.text,
                "push records cannot be asked for this field"
            )
        }
    }
}

extension Where {
    /// The fields that the condition tests, except in sub-queries.
    var paths: [WherePath] {
        switch self {
        case .all(let parts), .any(let parts), .none(let parts): parts.flatMap(\.paths)
        case .field(let path, _): [path]
        }
    }

    /// The only object id that can meet the condition; `nil` if it does not name one.
    package var onlyObjectID: String? {
        switch self {
        case .field(let path, .equal(.string(let id))) where path.text == "objectId": return id
        case .all(let parts):
            for part in parts { if let id = part.onlyObjectID { return id } }
            return nil
        case .field, .any, .none: return nil
        }
    }
}
