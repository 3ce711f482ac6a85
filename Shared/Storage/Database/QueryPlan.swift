package import JSON

/// The plan of a statement by `EXPLAIN (FORMAT JSON)`.
package struct QueryPlan: Sendable {
    /// The cost in the planner's unit: reading one page of a table sequentially costs 1.
    package let cost: Double
    /// The number of rows that the planner expects.
    package let rows: Double
    /// The indexes that are read, each once, from the top of the plan.
    package let indexes: [String]
    /// The tables that are scanned sequentially.
    package let scannedTables: [String]

    /// - Throws: `StorageError` of kind `corrupt` if it is not a plan.
    package init(_ value: JSONValue) throws {
        guard let plan = value.array?.first?["Plan"], let cost = plan["Total Cost"]?.double,
            let rows = plan["Plan Rows"]?.double
        else { throw StorageError(.corrupt, "the database explained in a form that is not known") }
        (self.cost, self.rows) = (cost, rows)
        var (indexes, tables): ([String], [String]) = ([], [])
        func walk(_ node: JSONValue) {
            if let name = node["Index Name"]?.string, !indexes.contains(name) {
                indexes.append(name)
            }
            if let type = node["Node Type"]?.string, type.hasSuffix("Seq Scan"),
                let name = node["Relation Name"]?.string, !tables.contains(name)
            {
                tables.append(name)
            }
            for child in node["Plans"]?.array ?? [] { walk(child) }
        }
        walk(plan)
        (self.indexes, scannedTables) = (indexes, tables)
    }
}
