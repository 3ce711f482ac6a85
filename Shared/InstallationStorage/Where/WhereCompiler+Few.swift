import Postgres
import PushCore
import Storage

extension WhereCompiler {
    /// The number of objects up to which it is faster to read and sort all of them than to read
    /// them in order until a page is full. The planner cannot decide that, as it knows too little
    /// of the contents of `jsonb`.
    private static let maximumFew = 5000

    /// Returns the query of a page for a condition that selects few objects. If it selects more,
    /// only their number in the result counts.
    mutating func few(
        _ condition: Where,
        _ order: [SortKey],
        limit: Int,
        skip: Int,
        in table: WhereTable,
        columns: String,
        weight: String,
        _ pageRows: PageRows = .whole(bytes: PageBound.bytes)
    ) throws(WhereError) -> String {
        let rows = WhereRows(table: table, alias: "n")
        let selected = try bounded(compile(condition, rows))
        let terms = orderTerms(order, of: condition, rows).enumerated()
        let keys = terms.map { ", \($1.sql) AS k\($0)" }.joined()
        let places = (terms.map { "k\($0) \($1.direction)" } + ["few_id"]).joined(separator: ", ")
        let page = """
            SELECT t.found, p.place, \(rows.objectID) IS NOT NULL AS is_there, \(columns)
            FROM (SELECT count(*) AS found FROM few) t
            LEFT JOIN page p ON true
            LEFT JOIN \(table.name) n ON n.app = $1 AND \(rows.objectID) = p.few_id
            """
        return """
            WITH few AS MATERIALIZED (
                SELECT \(rows.objectID) AS few_id\(keys) FROM \(table.name) n
                WHERE n.app = $1 AND \(selected)
                LIMIT \(bind(.integer(Self.maximumFew + 1)))::bigint
            ), page AS MATERIALIZED (
                SELECT few_id, row_number() OVER (ORDER BY \(places)) AS place FROM few
                ORDER BY place LIMIT \(bind(.integer(limit)))::bigint
                OFFSET \(bind(.integer(skip)))::bigint
            )
            \(PageBound.statement(page, weight: weight, order: "place", pageRows))
            """
    }

    /// Returns the page's rows; `nil` if there are more than `maximumFew` objects.
    static func few(in rows: PostgresRows) throws -> [PostgresRow]? {
        guard let first = rows.first, try first.integer("found") <= maximumFew else { return nil }
        return try rows.filter { try $0.boolean("is_there") }
    }
}
