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

/// The size of an audience, for a person who chooses it.
package struct AudienceCount: Sendable, Equatable {
    /// The devices that a push would go to now, by provider; `nil` if counting took too long.
    package var reachable: [Platform: Int]?
    /// The devices that meet the selectors: counted, or the planner's estimate.
    package var selected: Int

    package var reachableCount: Int? { reachable?.values.reduce(0, +) }
}

extension InstallationStore {
    /// Counts an audience within a time; if that is too short, returns the planner's estimate.
    ///
    /// - Throws: As `explain`, except for the time limit.
    package func count(
        app: String,
        _ selectors: PushRequest.Selectors,
        withinMilliseconds limit: Int
    ) async throws -> AudienceCount {
        if selectors.selectsNothing { return AudienceCount(reachable: [:], selected: 0) }
        var parameters: [PostgresValue] = [.text(app)]
        let conditions = try selectors.conditions(&parameters, app: app)
        let arguments = parameters
        let ofApp = "FROM installations n WHERE n.app = $1\(conditions)"
        do {
            let rows = try await database.asking { transaction in
                try await transaction.pipeline(
                    [
                        (ConditionPlan.sql, []),
                        (
                            "SELECT set_config('statement_timeout', $1, true)",
                            [.text(String(max(1, limit)))]
                        ),
                        (
                            """
                            SELECT n.provider, count(*) AS count,
                                count(*) FILTER (WHERE n.valid AND n.token IS NOT NULL) AS reachable
                            \(ofApp) GROUP BY n.provider
                            """, arguments
                        ),
                    ],
                    isPrepared: false
                )[2].rows
            }
            return try Self.count(rows)
        } catch let error as StorageError where error.isStatementTimeout {
            let plan = try await database.transaction { transaction in
                try await transaction.pipeline(
                    [
                        (ConditionPlan.sql, []),
                        ("EXPLAIN (FORMAT JSON) SELECT 1 \(ofApp)", arguments),
                    ],
                    isPrepared: false
                )[1]
            }
            guard let plan = try plan.first?.json("QUERY PLAN") else {
                throw StorageError(.corrupt, "the database explained nothing")
            }
            return AudienceCount(
                reachable: nil,
                selected: Int(min(max(0, try QueryPlan(plan).rows), 1e15))
            )
        }
    }

    private static func count(_ rows: PostgresRows) throws -> AudienceCount {
        var count = AudienceCount(reachable: [:], selected: 0)
        for row in rows {
            count.selected += try row.integer("count")
            let name = try row.textOrNil("provider")
            guard let platform = name.flatMap(Platform.init(rawValue:)) else { continue }
            let reachable = try row.integer("reachable")
            if reachable > 0 { count.reachable?[platform] = reachable }
        }
        return count
    }
}
