import Postgres
package import PushCore
package import Storage

/// The devices that a push would go to, and the plan by which the database finds them.
package struct AudienceExplanation: Sendable {
    /// Installations that meet the selectors.
    package var selected = 0
    /// The selected installations that a push would go to: valid, with a token.
    package var reachable: [Platform: Int] = [:]
    package let plan: QueryPlan
    /// The steps of the plan, in the database's words. They contain the selectors' values.
    package let steps: [String]
}

extension InstallationStore {
    /// Counts an audience, and returns the plan.
    ///
    /// - Throws: `WhereError` for a condition on a field that is not stored; `StorageError`, whose
    ///   `isStatementTimeout` means that the condition takes the database too long.
    package func explain(
        app: String,
        _ selectors: PushRequest.Selectors
    ) async throws -> AudienceExplanation {
        var parameters: [PostgresValue] = [.text(app)]
        let conditions = try selectors.conditions(&parameters, app: app)
        let sql = """
            SELECT n.provider, count(*) AS count,
                count(*) FILTER (WHERE n.valid AND n.token IS NOT NULL) AS reachable
            FROM installations n WHERE n.app = $1\(conditions) GROUP BY n.provider
            """
        let arguments = parameters
        let results = try await database.transaction { transaction in
            try await transaction.pipeline(
                [
                    (ConditionPlan.sql, []),
                    ("EXPLAIN (FORMAT JSON) \(sql)", arguments), ("EXPLAIN \(sql)", arguments),
                    (sql, arguments),
                ],
                isPrepared: false
            )
        }
        guard let plan = try results[1].first?.json("QUERY PLAN") else {
            throw StorageError(.corrupt, "the database explained nothing")
        }
        var explanation = AudienceExplanation(
            plan: try QueryPlan(plan),
            steps: try results[2].rows.map { try $0.text("QUERY PLAN") }
        )
        for row in results[3].rows {
            explanation.selected += try row.integer("count")
            let name = try row.textOrNil("provider")
            guard let platform = name.flatMap(Platform.init(rawValue:)) else { continue }
            let reachable = try row.integer("reachable")
            if reachable > 0 { explanation.reachable[platform] = reachable }
        }
        return explanation
    }
}
