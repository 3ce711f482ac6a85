import JSON
import Postgres
import PushCore

/// Cutting a broadcast: where its shards end, instead of a row for each of its members.
enum CutShards {
    /// The next shards of an audience, in the order of the object ids; the cursor is the last id that
    /// was looked at. The last shard of all has no upper bound.
    static func page(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        _ start: PageStart,
        size: Int,
        _ zones: ZoneTimes?,
        looksAt most: Int?,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        if selectors.selectsNobody { return AudiencePage() }
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
            .integer(size), .integer(size * AudiencePage.shardsAtOnce),
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
        let cursor = total < size * AudiencePage.shardsAtOnce ? start.end : uppers.last ?? nil
        let lowers = [start.cursor ?? ""] + uppers.dropLast().map { $0 ?? "" }
        if cursor == nil, !uppers.isEmpty { uppers[uppers.count - 1] = nil }
        let shards = zip(zip(lowers, uppers), members).map { bounds, members in
            NewShard(lowerID: bounds.0, upperID: bounds.1, members: members)
        }
        try await insert(shards, of: push, isSparse: false, transaction)
        return AudiencePage(inserted: total, shards: uppers.count, cursor: cursor)
    }

    /// Whether so few installations, of all apps together, are in these channels that one shard has
    /// room for them: then they are found by their channels, and not by reading all of the app's.
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
        /// `nil`: now.
        var dueAt: Instant?
        /// `nil`: when the push does.
        var expiresAt: Instant?
        /// `nil`: all.
        var zones: ZoneFilter?
    }

    static func insert(
        _ shards: [NewShard],
        of push: PlanningPush,
        isSparse: Bool,
        _ transaction: PostgresTransaction
    ) async throws {
        guard !shards.isEmpty else { return }
        // A list of lists is none of Postgres' arrays.
        let zones = shards.map { shard in
            shard.zones.map { JSONValue.array($0.names.map(JSONValue.string)) }
        }
        _ = try await transaction.pipeline([
            (
                """
                INSERT INTO shards (push_id, shard, app, day, pushed_at, lower_id, upper_id,
                    is_sparse, expected, due_at, created_at, expires_at, zones, zones_excluded,
                    is_paced)
                SELECT p.id, known.next + i.place - 1, p.app,
                    (p.created_at AT TIME ZONE 'UTC')::date, p.created_at, i.lower_id, i.upper_id,
                    $5, i.members, coalesce(i.due_at, \(due(push))), greatest(i.due_at, now()), i.expires_at,
                    CASE WHEN i.zones IS NOT NULL
                        THEN ARRAY(SELECT jsonb_array_elements_text(i.zones)) END, i.excluded, $10
                FROM pushes p
                CROSS JOIN (SELECT coalesce(max(shard) + 1, 0) AS next
                    FROM shards WHERE push_id = $1) known
                CROSS JOIN unnest($2::text[], $3::text[], $4::integer[], $6::timestamptz[],
                        $7::timestamptz[], $8::jsonb[], $9::boolean[])
                    WITH ORDINALITY AS i(lower_id, upper_id, members, due_at, expires_at, zones,
                        excluded, place)
                WHERE p.id = $1
                """,
                [
                    .uuid(push.id), .textArray(shards.map(\.lowerID)),
                    .textArray(shards.map(\.upperID)), .integerArray(shards.map(\.members)),
                    .boolean(isSparse), .timestampArray(shards.map { $0.dueAt?.microseconds }),
                    .timestampArray(shards.map { $0.expiresAt?.microseconds }),
                    .jsonArray(zones),
                    .booleanArray(shards.map { $0.zones?.isExclusion ?? false }),
                    .boolean(push.request.isPaced),
                ]
            ), ("SELECT pg_notify('\(StorageChannel.shards.rawValue)', '')", []),
        ])
    }
}
