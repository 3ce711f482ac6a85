import InstallationStorage
import Postgres
import PushCore
import Storage

/// Cuts a broadcast that has a condition, or that goes to an identity with too many devices.
///
/// Its members are chosen once, when the shards are cut, and the shards store their object ids. The
/// fields of a condition may change while the push is sent, at times by the push itself (a badge,
/// the time of the last opening), and a second evaluation could cost more than sending. So if a
/// field or an identity changes after its page was planned, the members stay the same. A device
/// that is deleted or invalid at its turn is left out as usual.
///
/// A condition that uses an index and matches few devices is evaluated for the whole app at once.
/// Any other condition is evaluated page by page, in the order of object ids and for a limited
/// number of installations. So no statement grows with the app.
enum ChosenShards {
    /// Writes the next shards of an audience, each of at most `size` members. The cursor is the
    /// last object id that was read.
    ///
    /// - Throws: `WhereError` for a condition on a field that is not stored.
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
        _ = try await transaction.execute(ConditionPlan.sql)
        let limit = max(1, min(size * AudiencePage.maximumShards, most ?? .max))
        var choice = Choice(
            push: push,
            selectors: selectors,
            start: start,
            size: size,
            zones: zones
        )
        if most == nil, start.cursor == nil, try await isIndexed(choice, transaction) {
            choice.limit = limit
            let (found, page) = try await insert(choice, transaction)
            if found <= limit { return page }
            choice.limit = nil
        }
        choice.start.end = try await start.pageEnd(of: push.app, installations: limit, transaction)
        var (_, page) = try await insert(choice, transaction)
        page.cursor = choice.start.end
        return page
    }

    /// The selection of installations.
    private struct Choice {
        let push: PlanningPush
        let selectors: PushRequest.Selectors
        var start: PageStart
        let size: Int
        let zones: ZoneTimes?
        /// The maximum number of matches; if there are more, nothing is written. `nil` for no
        /// limit.
        var limit: Int?

        /// Returns the condition that selects installations `n`.
        func conditions(_ parameters: inout [PostgresValue]) throws(WhereError) -> String {
            parameters = [
                .text(push.app), .timestamp(start.plannedUntil), .text(start.cursor ?? ""),
            ]
            let bounds = """
                n.app = $1 AND n.valid AND n.token IS NOT NULL AND n.created_at <= $2
                AND n.object_id > $3\(start.bound(&parameters))
                """
            return bounds + (try selectors.conditions(&parameters, app: push.app))
        }
    }

    /// Whether the planner expects the condition to cost less than reading all of the app's
    /// installations.
    private static func isIndexed(
        _ choice: Choice,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        var parameters: [PostgresValue] = []
        let conditions = try choice.conditions(&parameters)
        let (some, all) = (
            try await transaction.execute(
                "EXPLAIN (FORMAT JSON) SELECT n.object_id FROM installations n WHERE \(conditions)",
                parameters,
                isPrepared: false
            ),
            try await transaction.execute(
                """
                EXPLAIN (FORMAT JSON) SELECT n.object_id FROM installations n
                WHERE n.app = $1 AND n.object_id > $3 AND n.created_at <= $2
                """,
                Array(parameters.prefix(3))
            )
        )
        guard let some = try some.first.map({ try QueryPlan($0.json("QUERY PLAN")) }),
            let all = try all.first.map({ try QueryPlan($0.json("QUERY PLAN")) })
        else { return false }
        return some.cost < all.cost
    }

    /// Writes the shards of the chosen installations.
    ///
    /// - Returns: The number of matches, counted up to one above the limit, and the page that was
    ///   written.
    private static func insert(
        _ choice: Choice,
        _ transaction: PostgresTransaction
    ) async throws -> (found: Int, AudiencePage) {
        var parameters: [PostgresValue] = []
        let conditions = try choice.conditions(&parameters)
        let due = choice.zones?.due("n.time_zone", &parameters) ?? "NULL::timestamptz"
        func bind(_ value: PostgresValue) -> String {
            parameters.append(value)
            return "$\(parameters.count)"
        }
        let limit = choice.limit
        let size = bind(.integer(choice.size)) + "::bigint"
        let pushID = bind(.uuid(choice.push.id)) + "::uuid"
        let lifetime = bind(.optional(integer: choice.zones?.lifetimeSeconds)) + "::bigint"
        let isZoned = bind(.boolean(choice.zones != nil)) + "::boolean"
        let isPaced = bind(.boolean(choice.push.request.isPaced)) + "::boolean"
        let (taken, withinLimit): (String, String)
        if let limit {
            taken = " LIMIT " + bind(.integer(limit + 1)) + "::bigint"
            withinLimit =
                " AND (SELECT count(*) FROM chosen) <= " + bind(.integer(limit)) + "::bigint"
        } else {
            (taken, withinLimit) = ("", "")
        }
        let results = try await transaction.pipeline(
            [
                (
                    """
                    WITH chosen AS MATERIALIZED (
                        SELECT n.object_id, \(due) AS due FROM installations n
                        WHERE \(conditions)\(taken)
                    ), placed AS (
                        SELECT object_id, due,
                            (row_number() OVER (PARTITION BY due ORDER BY object_id) - 1) / \(size)
                                AS part
                        FROM chosen
                    ), parts AS (
                        SELECT due, array_agg(object_id ORDER BY object_id) AS members,
                            max(object_id) AS upper,
                            row_number() OVER (ORDER BY due, part) AS place
                        FROM placed GROUP BY due, part
                    ), inserted AS (
                        INSERT INTO shards (push_id, shard, app, day, pushed_at, lower_id, upper_id,
                            expected, due_at, created_at, expires_at, zones, zones_excluded, is_paced,
                            members)
                        SELECT p.id, known.next + s.place - 1, p.app,
                            (p.created_at AT TIME ZONE 'UTC')::date, p.created_at, '', s.upper,
                            cardinality(s.members), coalesce(s.due, \(CutShards.due(choice.push))),
                            greatest(s.due, now()),
                            s.due + make_interval(secs => \(lifetime)),
                            CASE WHEN \(isZoned) THEN '{}'::text[] END, \(isZoned), \(isPaced),
                            s.members
                        FROM parts s CROSS JOIN pushes p
                        CROSS JOIN (SELECT coalesce(max(shard) + 1, 0) AS next
                            FROM shards WHERE push_id = \(pushID)) known
                        WHERE p.id = \(pushID)\(withinLimit)
                        RETURNING expected
                    )
                    SELECT (SELECT count(*) FROM chosen) AS found,
                        count(*) AS shards, coalesce(sum(expected), 0) AS members FROM inserted
                    """, parameters
                ), ("SELECT pg_notify('\(NotifyChannel.shards.rawValue)', '')", []),
            ],
            isPrepared: false
        )
        guard let row = results[0].first else { return (0, AudiencePage()) }
        let page = AudiencePage(
            inserted: try row.integer("members"),
            shards: try row.integer("shards")
        )
        return (try row.integer("found"), page)
    }
}
