import Postgres
package import PushCore
import Storage

extension InstallationStore {
    /// Returns the installations that a condition selects; the nearest first if the condition says
    /// so.
    ///
    /// - Throws: `WhereError` for a condition on a field that is not stored, `StorageError` if the
    ///   database fails, its statement timeout included; `PageTooLarge`.
    package func query(
        app: String,
        where condition: Where,
        order: [SortKey] = [],
        limit: Int = 100,
        skip: Int = 0
    ) async throws -> [Installation] {
        try await page(app: app, where: condition, order: order, limit: limit, skip: skip).whole()
    }

    /// Returns the same installations, cut at `bytes`: by default the size of one response.
    package func page(
        app: String,
        where condition: Where,
        order: [SortKey] = [],
        limit: Int = 100,
        skip: Int = 0,
        bytes: Int = PageBound.bytes
    ) async throws -> ObjectPage<Installation> {
        let rows = try await rows(app, condition, order, limit, skip, .whole(bytes: bytes))
        return try PageBound.read(rows, bytes: bytes, InstallationRow.read)
    }

    /// Returns the ids of the installations, up to the size of one response.
    package func places(
        app: String,
        where condition: Where,
        order: [SortKey],
        limit: Int,
        skip: Int
    ) async throws -> ObjectLocations {
        let rows = try await rows(app, condition, order, limit, skip, .places("object_id"))
        return try PageBound.places(rows)
    }

    /// Returns the installations of these ids that still exist, in the same order: as many as fit
    /// into `PageBound.partBytes`, at least one.
    package func part(app: String, of ids: [String]) async throws -> ObjectPage<Installation> {
        try await PageBound.part(
            of: """
                SELECT \(InstallationRow.columns) FROM installations
                WHERE app = $1 AND object_id = ANY ($2::text[])
                ORDER BY array_position($2::text[], object_id)
                """,
            weight: Self.weight,
            [.text(app), .textArray(ids)],
            in: database,
            InstallationRow.read
        )
    }

    private func rows(
        _ app: String,
        _ condition: Where,
        _ order: [SortKey],
        _ limit: Int,
        _ skip: Int,
        _ pageRows: PageRows
    ) async throws -> [PostgresRow] {
        let (limit, skip) = (min(max(limit, 0), 1000), max(skip, 0))
        if condition.isIndexed(in: .installations),
            let found = try await fewRows(app, condition, order, limit, skip, pageRows)
        {
            return found
        }
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let selected = try compiler.installations(condition, as: "n")
        let order = compiler.order(order, of: condition, as: "n")
        let page = """
            SELECT \(InstallationRow.columns) FROM installations n WHERE n.app = $1 AND \(selected)
            ORDER BY \(order) LIMIT \(compiler.bind(.integer(limit)))
            OFFSET \(compiler.bind(.integer(skip)))
            """
        return try await Array(
            database.ask(
                PageBound.statement(page, weight: Self.weight, pageRows),
                compiler.parameters
            ).rows
        )
    }

    /// The bytes of one installation in a response.
    private static let weight = """
        octet_length(fields::text) + octet_length(array_to_string(channels, '","'))
        """

    /// Returns the rows if the condition selects few; `nil` if it selects more.
    private func fewRows(
        _ app: String,
        _ condition: Where,
        _ order: [SortKey],
        _ limit: Int,
        _ skip: Int,
        _ pageRows: PageRows
    ) async throws -> [PostgresRow]? {
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let statement = try compiler.few(
            condition,
            order,
            limit: limit,
            skip: skip,
            in: .installations,
            columns: InstallationRow.columns,
            weight: Self.weight,
            pageRows
        )
        return try WhereCompiler.few(
            in: await database.ask(statement, compiler.parameters).rows
        )
    }

    package func count(app: String, where condition: Where) async throws -> Int {
        var compiler = WhereCompiler(app: app, parameters: [.text(app)])
        let condition = try compiler.installations(condition, as: "n")
        return try await database.ask(
            "SELECT count(*) AS count FROM installations n WHERE n.app = $1 AND \(condition)",
            compiler.parameters
        ).first?.integer("count") ?? 0
    }

    /// Returns the plan by which the database would count the selected installations, a line for
    /// each step. It contains the condition's values.
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
