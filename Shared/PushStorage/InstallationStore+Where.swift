import Postgres
package import PushCore

extension InstallationStore {
    /// The installations that a condition selects; the nearest first where it asks for such.
    ///
    /// - Throws: `WhereError` for a condition over what is not kept, `StorageError` where the
    ///   database fails, its statement timeout included.
    package func query(
        app: String,
        where condition: Where,
        order: [SortKey] = [],
        limit: Int = 100,
        skip: Int = 0
    ) async throws -> [Installation] {
        let (limit, skip) = (min(max(limit, 0), 1000), max(skip, 0))
        if condition.isIndexed(in: .installations),
            let found = try await queryFew(app, condition, order, limit, skip)
        {
            return found
        }
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let selected = try compiler.installations(condition, as: "n")
        let order = compiler.order(order, of: condition, as: "n")
        return try await database.ask(
            """
            SELECT \(Self.columns) FROM installations n WHERE n.app = $1 AND \(selected)
            ORDER BY \(order) LIMIT \(compiler.bind(.integer(limit)))
            OFFSET \(compiler.bind(.integer(skip)))
            """,
            compiler.parameters
        ).rows.map(Self.installation)
    }

    /// The same where few are selected; `nil` where there are more.
    private func queryFew(
        _ app: String,
        _ condition: Where,
        _ order: [SortKey],
        _ limit: Int,
        _ skip: Int
    ) async throws -> [Installation]? {
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let statement = try compiler.few(
            condition,
            order,
            limit: limit,
            skip: skip,
            in: .installations,
            columns: Self.columns
        )
        let rows = try await database.ask(statement, compiler.parameters).rows
        return try WhereCompiler.few(in: rows)?.map(Self.installation)
    }

    package func count(app: String, where condition: Where) async throws -> Int {
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let condition = try compiler.installations(condition, as: "n")
        return try await database.ask(
            "SELECT count(*) AS count FROM installations n WHERE n.app = $1 AND \(condition)",
            compiler.parameters
        ).first?.integer("count") ?? 0
    }

    /// How the database would count what a condition selects: its plan, a line for each step. Holds
    /// the condition's values.
    package func plan(app: String, where condition: Where) async throws -> String {
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let condition = try compiler.installations(condition, as: "n")
        return try await database.ask(
            """
            EXPLAIN SELECT count(*) AS count FROM installations n
            WHERE n.app = $1 AND \(condition)
            """,
            compiler.parameters
        ).rows.map { try $0.text("QUERY PLAN") }.joined(separator: "\n")
    }
}
