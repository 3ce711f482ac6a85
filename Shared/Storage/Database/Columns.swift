package import JSON
package import Postgres
package import PushCore

/// The columns of a statement that takes many rows as arrays: name, type and values of each are declared
/// together, so that no parallel lists and no numbers such as `$40` must be maintained.
package struct Columns<Row>: Sendable {
    package struct Column: Sendable {
        fileprivate let name: String
        fileprivate let type: String
        fileprivate let values: @Sendable ([Row]) -> PostgresValue
    }

    private let list: [Column]
    /// `day, push_id`
    package let names: String

    package init(_ list: [Column]) {
        self.list = list
        names = list.map(\.name).joined(separator: ", ")
    }

    package static func + (first: Self, second: Self) -> Self { Self(first.list + second.list) }

    package var count: Int { list.count }

    /// Returns the columns with the name of a row: `d.day, d.push_id`.
    package func names(of row: String) -> String {
        list.map { "\(row).\($0.name)" }.joined(separator: ", ")
    }

    /// Returns the source of the rows: `unnest($1::date[], $2::uuid[]) AS d(day, push_id)`.
    ///
    /// - Parameters:
    ///   - row: The statement's name for a row.
    ///   - count: The number of parameters before those of the columns.
    ///   - place: The name for the number of a row, from 1; `nil`: without numbers.
    /// - Returns: An item of FROM.
    package func source(as row: String, after count: Int = 0, place: String? = nil) -> String {
        let arrays = list.enumerated().map { "$\(count + $0 + 1)::\($1.type)[]" }
        let rows = "unnest(\(arrays.joined(separator: ", ")))"
        guard let place else { return "\(rows) AS \(row)(\(names))" }
        return "\(rows) WITH ORDINALITY AS \(row)(\(names), \(place))"
    }

    /// Returns an array for each column, in their order.
    package func parameters(of rows: [Row]) -> [PostgresValue] { list.map { $0.values(rows) } }
}

extension Columns.Column {
    package typealias Cell<Value> = @Sendable (Row) -> Value

    package static func text(_ name: String, _ cell: @escaping Cell<String?>) -> Self {
        Self(name: name, type: "text") { .textArray($0.map(cell)) }
    }

    package static func uuid(_ name: String, _ cell: @escaping Cell<String?>) -> Self {
        Self(name: name, type: "uuid") { .uuidArray($0.map(cell)) }
    }

    /// Makes a column of days as `YYYY-MM-DD`.
    package static func date(_ name: String, _ cell: @escaping Cell<String?>) -> Self {
        Self(name: name, type: "date") { .textArray($0.map(cell)) }
    }

    package static func smallint(_ name: String, _ cell: @escaping Cell<Int?>) -> Self {
        Self(name: name, type: "smallint") { .integerArray($0.map(cell)) }
    }

    package static func integer(_ name: String, _ cell: @escaping Cell<Int?>) -> Self {
        Self(name: name, type: "integer") { .integerArray($0.map(cell)) }
    }

    package static func bigint(_ name: String, _ cell: @escaping Cell<Int?>) -> Self {
        Self(name: name, type: "bigint") { .integerArray($0.map(cell)) }
    }

    package static func boolean(_ name: String, _ cell: @escaping Cell<Bool?>) -> Self {
        Self(name: name, type: "boolean") { .booleanArray($0.map(cell)) }
    }

    package static func bytes(_ name: String, _ cell: @escaping Cell<[UInt8]?>) -> Self {
        Self(name: name, type: "bytea") { .bytesArray($0.map(cell)) }
    }

    package static func time(_ name: String, _ cell: @escaping Cell<Instant?>) -> Self {
        Self(name: name, type: "timestamptz") { rows in
            .timestampArray(rows.map { cell($0)?.microseconds })
        }
    }

    package static func json(_ name: String, _ cell: @escaping Cell<JSONValue?>) -> Self {
        Self(name: name, type: "json") { .jsonArray($0.map(cell)) }
    }

    package static func jsonb(_ name: String, _ cell: @escaping Cell<JSONValue?>) -> Self {
        Self(name: name, type: "jsonb") { .jsonArray($0.map(cell)) }
    }
}
