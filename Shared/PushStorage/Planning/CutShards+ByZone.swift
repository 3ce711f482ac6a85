import InstallationStorage
import Postgres
import PushCore
import Storage

/// Cuts a device-local broadcast. A shard is due when its members' clocks show the push's time.
extension CutShards {
    /// Writes the next shards like the other `page`, but divides the members of a page by due time.
    /// A device's zone is read here, and again when its shard is sent. If a device has moved to
    /// another zone meanwhile, it gets the push there, unless the time has passed there.
    static func page(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        _ start: PageStart,
        _ size: Int,
        by zones: ZoneTimes,
        _ sparse: [String]?,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        let limit = size * AudiencePage.maximumShards
        var parameters: [PostgresValue] = [
            .text(push.app), .text(start.cursor ?? ""), .timestamp(start.plannedUntil),
            .integer(size), .integer(limit),
        ]
        var source = "installations n"
        if let sparse {
            parameters.append(.textArray(sparse))
            source = """
                (SELECT * FROM installations m
                    WHERE m.channels && $\(parameters.count)::text[] OFFSET 0) n
                """
        }
        let conditions =
            start.bound(&parameters) + (try selectors.conditions(&parameters, app: push.app))
        let due = zones.due("n.time_zone", &parameters)
        let rows = try await transaction.execute(
            """
            WITH page AS (
                SELECT n.object_id, \(due) AS due FROM \(source)
                WHERE n.app = $1 AND n.object_id > $2 AND n.valid AND n.token IS NOT NULL
                    AND n.created_at <= $3\(conditions)
                ORDER BY n.object_id LIMIT $5
            ), placed AS (
                SELECT object_id, due,
                    (row_number() OVER (PARTITION BY due ORDER BY object_id) - 1) / $4 AS part
                FROM page
            )
            SELECT due, part, max(object_id) AS upper, count(*) AS members,
                (SELECT max(object_id) FROM page) AS last
            FROM placed GROUP BY due, part ORDER BY due, part
            """,
            parameters
        ).rows
        let total = try rows.reduce(0) { $0 + (try $1.integer("members")) }
        let cursor = total < limit ? start.end : try rows.first?.text("last")
        var shards: [NewShard] = []
        for row in rows {
            let due = try row.instant("due")
            let previous = shards.last.flatMap { $0.dueAt == due ? $0 : nil }
            // The last shard of each due time ends with the page.
            if previous == nil, !shards.isEmpty { shards[shards.count - 1].upperID = cursor }
            shards.append(
                NewShard(
                    lowerID: previous?.upperID ?? start.cursor ?? "",
                    upperID: try row.text("upper"),
                    members: try row.integer("members"),
                    dueAt: due,
                    expiresAt: zones.expiry(of: due),
                    zones: zones.filter(due: due)
                )
            )
        }
        if !shards.isEmpty { shards[shards.count - 1].upperID = cursor }
        try await insert(shards, of: push, isSparse: sparse != nil, transaction)
        return AudiencePage(inserted: total, shards: shards.count, cursor: cursor)
    }
}
