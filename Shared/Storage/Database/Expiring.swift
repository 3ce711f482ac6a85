import Postgres
package import PushCore

/// A table whose rows are deleted after their retention. To bound a table, add an entry to a list
/// (`Maintenance.expiring`, `IngestMaintenance.expiring`).
package struct Expiring: Sendable {
    /// The column that has a row's age.
    package enum Age: Sendable {
        /// A column with a time that has an index.
        case time(String)
        /// The column `day`.
        case day
        /// A column with a time that has a BRIN index, as old rows are stored together.
        case ranges(String)
    }

    let table: String
    /// The columns that identify a row.
    let key: String
    let age: Age
    /// A further condition on the rows, as SQL.
    let condition: String
    /// The column that is emptied; `nil`: the row is deleted.
    let column: String?

    private static let batch = 1000

    package init(
        table: String,
        key: String,
        age: Age,
        condition: String = "true",
        column: String? = nil
    ) {
        self.table = table
        self.key = key
        self.age = age
        self.condition = condition
        self.column = column
    }

    /// Deletes old rows in small batches; each skips locked rows.
    ///
    /// - Parameters:
    ///   - limit: Rows that are older than this are deleted.
    ///   - batches: The maximum number of batches; at least one batch runs.
    ///   - database: The table's database.
    /// - Returns: The number of rows.
    /// - Throws: `StorageError`.
    package func remove(before limit: Instant, batches: Int, in database: Database) async throws
        -> Int
    {
        let statement = (sql, [PostgresValue.timestamp(limit.microseconds), .integer(Self.batch)])
        var removed = 0
        for _ in 0..<max(1, batches) {
            let count: Int
            if case .ranges = age {
                // Otherwise Postgres reads a whole table to find nothing in it.
                let plan = (IndexPlan.sql, [PostgresValue]())
                count = try await database.transaction(of: [plan, statement])[1].affectedRows
            } else {
                count = try await database.execute(statement.0, statement.1).affectedRows
            }
            removed += count
            if count < Self.batch { break }
        }
        return removed
    }

    private var sql: String {
        let change = column.map { "UPDATE \(table) SET \($0) = NULL" } ?? "DELETE FROM \(table)"
        let (isOld, order) =
            switch age {
            case .time(let column): ("\(column) < $1", "ORDER BY \(column) ")
            case .day: ("day < ($1::timestamptz AT TIME ZONE 'UTC')::date", "ORDER BY day ")
            case .ranges(let column): ("\(column) < $1", "")
            }
        return """
            \(change) WHERE (\(key)) IN (
                SELECT \(key) FROM \(table) WHERE \(isOld) AND \(condition)
                \(order)LIMIT $2 FOR UPDATE SKIP LOCKED)
            """
    }
}
