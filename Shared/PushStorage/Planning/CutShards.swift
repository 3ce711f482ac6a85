import InstallationStorage
import JSON
import Postgres
import PushCore
import Storage

/// Cuts a broadcast: stores the bounds of its shards, instead of a row for each of its members.
enum CutShards {
    /// Writes the next shards of an audience, in the order of the object ids. The cursor is the
    /// last id that was read. The very last shard has no upper bound.
    static func page(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        _ start: PageStart,
        size: Int,
        _ zones: ZoneTimes?,
        pageSize most: Int?,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        if selectors.selectsNothing { return AudiencePage() }
        try await IndexPlan.require(transaction)
        var start = start
        if let most {
            start.end = try await start.pageEnd(
                of: push.app,
                installations: max(1, most),
                transaction
            )
        }
        var sparse: [String]?
        if start.cursor == nil, let channels = selectors.channels,
            try await isSparse(channels, size, transaction)
        {
            sparse = channels
        }
        if let zones {
            return try await page(push, selectors, start, size, by: zones, sparse, transaction)
        }
        if let sparse {
            return try await cutSparse(push, selectors, sparse, start, transaction)
        }
        var parameters: [PostgresValue] = [
            .text(push.app), .text(start.cursor ?? ""), .timestamp(start.plannedUntil),
            .integer(size), .integer(size * AudiencePage.maximumShards),
        ]
        let conditions =
            start.bound(&parameters) + (try selectors.conditions(&parameters, app: push.app))
        let parts = try await transaction.execute(
            """
            SELECT max(m.object_id) AS upper, count(*) AS members
            FROM (SELECT page.object_id, row_number() OVER (ORDER BY page.object_id) AS place
                FROM (SELECT n.object_id FROM installations n
                    WHERE n.app = $1 AND n.object_id > $2 AND n.valid AND n.token IS NOT NULL
                        AND n.created_at <= $3\(conditions)
                    ORDER BY n.object_id LIMIT $5) page) m
            GROUP BY (m.place - 1) / $4 ORDER BY 1
            """,
            parameters
        )
        var uppers: [String?] = try parts.rows.map { try $0.text("upper") }
        let members = try parts.rows.map { try $0.integer("members") }
        let total = members.reduce(0, +)
        let cursor = total < size * AudiencePage.maximumShards ? start.end : uppers.last ?? nil
        let lowers = [start.cursor ?? ""] + uppers.dropLast().map { $0 ?? "" }
        if cursor == nil, !uppers.isEmpty { uppers[uppers.count - 1] = nil }
        let shards = zip(zip(lowers, uppers), members).map { bounds, members in
            NewShard(lowerID: bounds.0, upperID: bounds.1, members: members)
        }
        try await insert(shards, of: push, isSparse: false, transaction)
        return AudiencePage(inserted: total, shards: uppers.count, cursor: cursor)
    }

    /// Whether the channels have so few installations, of all apps together, that they fit into one
    /// shard. Then the shard's members are found by their channels, without reading all of the
    /// app's installations.
    static func isSparse(
        _ channels: [String],
        _ size: Int,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        let found = try await transaction.execute(
            """
            SELECT count(*) AS count FROM (
                SELECT FROM installations n WHERE n.channels && $1::text[] LIMIT $2) few
            """,
            [.textArray(channels), .integer(size + 1)]
        )
        return try found.first?.integer("count") ?? 0 <= size
    }

    private static func cutSparse(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        _ channels: [String],
        _ start: PageStart,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        var parameters: [PostgresValue] = [
            .text(push.app), .timestamp(start.plannedUntil), .textArray(channels),
        ]
        let conditions = selectors.besideTopic(&parameters)
        let found = try await transaction.execute(
            """
            WITH found AS MATERIALIZED (
                SELECT * FROM installations n WHERE n.channels && $3::text[])
            SELECT count(*) AS members FROM found n
            WHERE n.app = $1 AND n.valid AND n.token IS NOT NULL AND n.created_at <= $2\(conditions)
            """,
            parameters
        )
        let members = try found.first?.integer("members") ?? 0
        guard members > 0 else { return AudiencePage() }
        let shard = NewShard(lowerID: "", upperID: nil, members: members)
        try await insert([shard], of: push, isSparse: true, transaction)
        return AudiencePage(inserted: members, shards: 1)
    }

    struct NewShard {
        var lowerID: String
        var upperID: String?
        var members: Int
        /// `nil` if it is due now.
        var dueAt: Instant?
        /// `nil` if it expires with the push.
        var expiresAt: Instant?
        /// `nil` for all zones.
        var zones: ZoneFilter?

        fileprivate static let columns = Columns<NewShard>([
            .text("lower_id", \.lowerID), .text("upper_id", \.upperID),
            .integer("members", \.members), .time("due_at", \.dueAt),
            .time("expires_at", \.expiresAt),
            // Postgres' arrays cannot hold lists of different lengths.
            .jsonb("zones") { $0.zones.map { .array($0.names.map(JSONValue.string)) } },
            .boolean("excluded") { $0.zones?.isExclusion ?? false },
        ])
    }

    static func insert(
        _ shards: [NewShard],
        of push: PlanningPush,
        isSparse: Bool,
        _ transaction: PostgresTransaction
    ) async throws {
        guard !shards.isEmpty else { return }
        _ = try await transaction.pipeline([
            (
                """
                INSERT INTO shards (push_id, shard, app, day, pushed_at, lower_id, upper_id,
                    is_sparse, expected, due_at, created_at, expires_at, zones, zones_excluded,
                    is_paced)
                SELECT p.id, known.next + i.place - 1, p.app,
                    (p.created_at AT TIME ZONE 'UTC')::date, p.created_at, i.lower_id, i.upper_id,
                    $2, i.members, coalesce(i.due_at, \(due(push))), greatest(i.due_at, now()), i.expires_at,
                    CASE WHEN i.zones IS NOT NULL
                        THEN ARRAY(SELECT jsonb_array_elements_text(i.zones)) END, i.excluded, $3
                FROM pushes p
                CROSS JOIN (SELECT coalesce(max(shard) + 1, 0) AS next
                    FROM shards WHERE push_id = $1) known
                CROSS JOIN \(NewShard.columns.source(as: "i", after: 3, place: "place"))
                WHERE p.id = $1
                """,
                [.uuid(push.id), .boolean(isSparse), .boolean(push.request.isPaced)]
                    + NewShard.columns.parameters(of: shards)
            ), ("SELECT pg_notify('\(NotifyChannel.shards.rawValue)', '')", []),
        ])
    }
}
