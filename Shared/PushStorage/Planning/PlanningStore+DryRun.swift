import InstallationStorage
package import JSON
import Postgres
package import PushCore
import Storage

/// Dry runs: everything except sending. A dry run creates no deliveries and leaves the ledger at 0, and
/// only adds its result to the push's record.
extension PlanningStore {
    /// Counts the devices of each platform that a push would go to. The session has claimed the
    /// push.
    ///
    /// - Throws: `StorageError`; `WhereError` for a condition on a field that is not stored.
    package func countAudience(_ push: PlanningPush) async throws -> [Platform: Int] {
        switch push.request.audience {
        case .tokens(let tokens):
            return Dictionary(grouping: tokens, by: \.platform).mapValues(\.count)
        case .topic(let topic):
            var counts = try await count(topic.selectors, of: push)
            let found = try await database.execute(
                "SELECT \(TopicRows.hasCredential(of: "$1")) AS found",
                [.text(push.app)]
            )
            if try found.first?.boolean("found") == true { counts[.fcm] = 1 }
            return counts
        case .installations(let selectors): return try await count(selectors, of: push)
        }
    }

    private func count(
        _ selectors: PushRequest.Selectors,
        of push: PlanningPush
    ) async throws -> [Platform: Int] {
        if selectors.selectsNothing { return [:] }
        var parameters: [PostgresValue] = [.text(push.app), .uuid(push.id)]
        let conditions = try selectors.conditions(&parameters, app: push.app)
        let (sql, arguments) = (
            """
            SELECT n.provider, count(*) AS count FROM installations n
            WHERE n.app = $1 AND n.valid AND n.token IS NOT NULL
                AND n.created_at <= (SELECT planned_until FROM pushes WHERE id = $2)\(conditions)
            GROUP BY n.provider
            """, parameters
        )
        let rows = try await database.transaction { transaction in
            try await transaction.pipeline(
                [(ConditionPlan.sql, []), (sql, arguments)],
                isPrepared: false
            )[1].rows
        }
        var counts: [Platform: Int] = [:]
        for row in rows {
            guard let platform = Platform(rawValue: try row.text("provider")) else { continue }
            counts[platform] = try row.integer("count")
        }
        return counts
    }

    /// Stores the result under `dryRun` in the push's notes, and ends the push.
    ///
    /// - Throws: `StorageError` of kind `sessionLost` if the session has not claimed the push.
    package func finishDryRun(session: Int, pushID: String, result: JSONObject) async throws {
        let changed = try await database.execute(
            """
            UPDATE pushes SET \(LedgerSQL.counted), notes = notes || $3::jsonb
            WHERE id = $1 AND planner = $2 AND status = \(PushStatus.planning.sql)
            """,
            [
                .uuid(pushID), .integer(session), .json(.object(["dryRun": .object(result)])),
            ]
        )
        guard changed.affectedRows == 1 else { throw StorageError.sessionLost }
    }
}
