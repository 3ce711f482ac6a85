import JSON
package import Postgres
package import PushCore

/// Turns a `where` into a condition of SQL. Pure.
///
/// Everything that came from outside, field names included, travels as a bound parameter. No accepted
/// condition makes the statement fail: casts are guarded by the value's type (`CASE` keeps the order),
/// and the parser or the functions of migration 9 exclude what could still overflow.
///
/// A test may yield NULL instead of false, as SQL's AND and OR allow; a negation asks `IS NOT TRUE`, so
/// a missing field is matched by "not", as it should.
///
/// Conditions are written so that an index can serve them: equality of an app's own field as
/// `fields @> …` (GIN), channels as `@>` and `&&` (GIN), object ids and times by their columns.
/// Numbers and dates of an app's own fields are compared by one expression for single values, and
/// another for arrays, as the indexes that an operator creates contain these.
package struct WhereCompiler: Sendable {
    /// The values of `$1` and following.
    package private(set) var parameters: [PostgresValue]
    private let app: String
    private var appParameter: String?
    private var known: ExactStringMap<String> = [:]
    private var tables = 0

    /// The most values that are each looked up in an index; more are compared by hashing.
    static let maximumProbes = 100
    /// The characters of a string that an operator's index contains. Each has up to four bytes, and
    /// an index accepts 2,700 bytes.
    static let indexedCharacters = 500

    /// - Parameters:
    ///   - app: The app whose objects sub-queries select.
    ///   - parameters: The parameters that the enclosing statement has already.
    package init(app: String, parameters: [PostgresValue] = []) {
        self.app = app
        self.parameters = parameters
    }

    /// Returns the condition on rows of `installations`, which the enclosing statement names
    /// `alias`. It does not test the app.
    ///
    /// - Throws: `WhereError` for a sub-query over a class that is not stored.
    package mutating func installations(
        _ condition: Where,
        as alias: String
    ) throws(WhereError) -> String {
        try bounded(compile(condition, WhereRows(table: .installations, alias: alias)))
    }

    /// The size above which a condition is rejected, because the database would take too long to plan
    /// it.
    static let maximumBytes = 256 * 1024

    func bounded(_ sql: String) throws(WhereError) -> String {
        guard sql.utf8.count <= Self.maximumBytes else {
            throw WhereError(code: 102, "too large a condition")
        }
        return sql
    }

    /// Returns the order. The object id decides between equals.
    package mutating func order(
        _ keys: [SortKey],
        of condition: Where,
        as alias: String
    ) -> String {
        order(keys, of: condition, WhereRows(table: .installations, alias: alias))
    }

    /// Returns the order term by term, without the object id.
    mutating func orderTerms(
        _ keys: [SortKey],
        of condition: Where,
        as alias: String
    ) -> [(sql: String, direction: String)] {
        orderTerms(keys, of: condition, WhereRows(table: .installations, alias: alias))
    }

    package mutating func bind(_ value: PostgresValue) -> String {
        parameters.append(value)
        return "$\(parameters.count)"
    }

    // MARK: Structure

    mutating func compile(_ condition: Where, _ rows: WhereRows) throws(WhereError) -> String {
        switch condition {
        case .all(let parts):
            return parts.isEmpty ? "TRUE" : try conjunction(parts, rows)
        case .any(let parts):
            return parts.isEmpty ? "FALSE" : try join(parts, " OR ", rows)
        case .none(let parts):
            return try "(\(compile(.any(parts), rows)) IS NOT TRUE)"
        case .field(let path, let test):
            return try compile(test, of: WhereField(path, rows))
        }
    }

    /// Combines comparisons of one field with one type of value, so that an index is searched for the
    /// range between them.
    private mutating func conjunction(
        _ parts: [Where],
        _ rows: WhereRows
    ) throws(WhereError) -> String {
        var ranges: [WhereRange: [WhereComparison]] = [:]
        for part in parts {
            if let (range, comparison) = WhereRange.of(part, in: rows.table) {
                ranges[range, default: []].append(comparison)
            }
        }
        var terms: [String] = []
        for part in parts {
            if let (range, _) = WhereRange.of(part, in: rows.table) {
                guard let comparisons = ranges.removeValue(forKey: range) else { continue }
                terms.append(compareInFields(comparisons, WhereField(range.path, rows)))
            } else {
                terms.append(try compile(part, rows))
            }
        }
        return "(" + terms.joined(separator: " AND ") + ")"
    }

    private mutating func join(
        _ parts: [Where],
        _ word: String,
        _ rows: WhereRows
    ) throws(WhereError) -> String {
        var terms: [String] = []
        for part in parts { terms.append(try compile(part, rows)) }
        return "(" + terms.joined(separator: word) + ")"
    }

    // MARK: Parameters

    /// Binds a string once, however often it is used.
    mutating func bind(text: String) -> String {
        if let name = known[text] { return name }
        let name = bind(.text(text)) + "::text"
        known[text] = name
        return name
    }

    mutating func bind(json: JSONValue) -> String { bind(.json(json)) + "::jsonb" }

    mutating func bind(number: JSONValue) -> String { bind(.text(number.text)) + "::numeric" }

    /// Binds a time within the years that `timestamptz` accepts; no column contains a time beyond
    /// them.
    mutating func bind(timestamp: Instant) -> String {
        let instant = min(max(timestamp, .earliest), .latest)
        return bind(.timestamp(instant.microseconds)) + "::timestamptz"
    }

    private mutating func bindApp() -> String {
        if let appParameter { return appParameter }
        let name = bind(.text(app))
        appParameter = name
        return name
    }

    // MARK: Sub-queries

    /// Returns SQL for the objects of a class that meet a condition, beginning with `FROM`.
    mutating func source(
        _ condition: Where,
        over className: String,
        of field: WherePath
    ) throws(WhereError) -> (rows: WhereRows, sql: String) {
        guard let table = WhereTable(className: className) else {
            throw WhereError(
                code: 103,
                field: field.text,
                "the class \(className.prefix(100)) cannot be queried here"
            )
        }
        tables += 1
        let rows = WhereRows(table: table, alias: "q\(tables)")
        let app = bindApp()
        let condition = try compile(condition, rows)
        return (
            rows,
            "FROM \(table.name) \(rows.alias) WHERE \(rows.alias).app = \(app) AND \(condition)"
        )
    }

    /// Returns SQL for the rows that a sub-query selects, each as `value`.
    mutating func select(
        _ value: (WhereRows, inout WhereCompiler) -> String,
        _ query: WhereQuery,
        over className: String,
        of field: WherePath
    ) throws(WhereError) -> String {
        let (rows, source) = try source(query.condition, over: className, of: field)
        var sql = "SELECT \(value(rows, &self)) AS value \(source)"
        if let limit = query.limit {
            let order = order(query.order, of: query.condition, rows)
            sql += " ORDER BY \(order) LIMIT \(bind(.integer(limit)))::bigint"
            if query.skip > 0 { sql += " OFFSET \(bind(.integer(query.skip)))::bigint" }
        }
        return sql
    }
}

/// A field of the app's own, and the type of value that it is compared with.
private struct WhereRange: Hashable {
    enum ValueType {
        case number, text, date, flag
    }

    let path: WherePath
    let type: ValueType

    static func of(_ part: Where, in table: WhereTable) -> (WhereRange, WhereComparison)? {
        guard case .field(let path, .compare(let comparison, let operand)) = part,
            case .json = table.column(of: path)
        else { return nil }
        let type: ValueType
        switch operand {
        case .integer, .double: type = .number
        case .string: type = .text
        case .date: type = .date
        case .bool: type = .flag
        case .null, .pointer, .point, .structure: return nil
        }
        return (
            WhereRange(path: path, type: type),
            WhereComparison(comparison: comparison, operand: operand)
        )
    }
}

/// A comparison and its operand.
struct WhereComparison {
    let comparison: WhereTest.Comparison
    let operand: WhereValue
}

/// The rows that a condition tests.
package struct WhereRows: Sendable {
    let table: WhereTable
    let alias: String

    func column(_ name: String) -> String { "\(alias).\(name)" }
    var fields: String { column("fields") }
    var objectID: String { column(table.objectID) }
}

/// One field of the rows that a condition tests.
struct WhereField: Sendable {
    let path: WherePath
    let rows: WhereRows

    init(_ path: WherePath, _ rows: WhereRows) {
        self.path = path
        self.rows = rows
    }

    var column: WhereTable.Column {
        switch rows.table.column(of: path) {
        case .text(let name): .text(rows.column(name))
        case .textArray(let name, let mark):
            .textArray(rows.column(name), absentIf: rows.column(mark))
        case .integer(let name, let mark?):
            .integer(
                "CASE WHEN \(rows.column(name)) <> 0 OR NOT \(rows.column(mark)) "
                    + "THEN \(rows.column(name)) END"
            )
        case .integer(let name, nil): .integer(rows.column(name))
        case .boolean(let name): .boolean(rows.column(name))
        case .timestamp(let name): .timestamp(rows.column(name))
        case .json: .json
        case .nothing: .nothing
        }
    }

    /// Returns an object for `@>`: all of `fields` with just this value.
    func document(_ value: JSONValue) -> JSONValue {
        path.segments.reversed().reduce(value) { inner, segment in
            .object(JSONObject([(segment, inner)]))
        }
    }
}
