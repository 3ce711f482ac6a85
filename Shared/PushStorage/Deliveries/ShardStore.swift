import InstallationStorage
import JSON
import Postgres
package import PushCore
import Storage

/// Claims, reads and releases the shards of broadcasts. `PushLedger+Members.swift` records their
/// members, and `Planning/` cuts them.
///
/// A shard's owner is a session, whose id is the epoch. Each checkpoint carries it, and a session
/// that stalled past its lease finds that it no longer owns the shard. So a member is sent to again
/// only if it is after the last checkpoint of an owner that died (promise 3).
package struct ShardStore: Sendable {
    let database: Database

    /// Claims shards that are due, fairly between apps: always the next shard of the app of which
    /// this session holds fewest, and of that app's oldest push.
    ///
    /// - Parameters:
    ///   - session: The session that claims them.
    ///   - lane: Their lane.
    ///   - limit: 1...1000 shards.
    ///   - holding: The number of shards of each app that the session holds already.
    ///   - most: The maximum number of shards of one app that it may hold.
    ///   - leavesFree: Whether an app gets a further shard only if it then holds at most one more
    ///     than there are places left. So it never takes the last place, unless it has no other.
    ///   - includesPaced: Whether shards of pushes with a pace are claimed too.
    /// - Returns: The claimed shards; empty when nothing is due.
    /// - Throws: `StorageError` of kind `sessionLost`.
    package func claim(
        session: Int,
        lane: Lane = .broadcast,
        limit: Int,
        holding: [String: Int],
        most: Int = 1000,
        leavesFree: Bool = false,
        includesPaced: Bool = true
    ) async throws -> [ClaimedShard] {
        let limit = min(max(limit, 1), 1000)
        let apps = holding.keys.sorted()
        return try await database.transaction { transaction in
            try await SessionStore.holdByIndex(session, transaction)
            let taken = try await transaction.execute(
                lane == .direct ? Self.directClaimSQL : Self.broadcastClaimSQL,
                [
                    .integer(session), .textArray(apps),
                    .integerArray(apps.map { holding[$0] ?? 0 }), .integer(limit),
                    // Other sessions may be claiming the same shards.
                    .integer(limit * 4), .boolean(includesPaced), .integer(most),
                    .boolean(leavesFree),
                ]
            )
            guard !taken.isEmpty else { return [] }
            let pushIDs = Set(try taken.rows.map { try $0.uuid("push_id") })
            let pushes = try await Self.pushes(pushIDs, transaction)
            var claimed: [ClaimedShard] = []
            var ended: [(pushID: String, shard: Int)] = []
            for row in taken.rows {
                let pushID = try row.uuid("push_id")
                if let push = pushes[pushID] {
                    claimed.append(try Self.shard(row, of: push))
                } else {
                    ended.append((pushID, try row.integer("shard")))
                }
            }
            if !ended.isEmpty { try await Self.release(ended, session: session, transaction) }
            return claimed
        }
    }

    /// Releases shards that were just claimed and whose push has ended. No task works on them, and
    /// `AppStore.delete`, which waits until nothing is sent, would wait for the end of the session.
    private static func release(
        _ shards: [(pushID: String, shard: Int)],
        session: Int,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            UPDATE shards s SET owner = NULL, updated_at = now()
            FROM unnest($2::uuid[], $3::integer[]) AS i(push_id, shard)
            WHERE s.push_id = i.push_id AND s.shard = i.shard AND s.owner = $1 AND s.finished
            """,
            [
                .integer(session), .uuidArray(shards.map(\.pushID)),
                .integerArray(shards.map(\.shard)),
            ]
        )
    }

    /// Reads the next members of a shard.
    ///
    /// - Parameters:
    ///   - shard: The shard.
    ///   - after: The last object id that was read; `nil` to begin at the shard's cursor.
    ///   - limit: 1...50,000 members.
    /// - Returns: At most `limit` members, in the order of their object ids.
    /// - Throws: `StorageError`.
    package func page(
        _ shard: ClaimedShard,
        after: String?,
        limit: Int
    ) async throws -> ShardPage {
        let limit = min(max(limit, 1), 50_000)
        let start = after ?? shard.cursor ?? shard.lowerID
        var parameters: [PostgresValue] = [
            .text(shard.app), .text(start), .timestamp(shard.plannedUntil), .integer(limit),
        ]
        let sql =
            shard.isChosen
            ? Self.chosenPageSQL(shard, &parameters) : try Self.pageSQL(shard, &parameters)
        let arguments = parameters
        let rows = try await database.transaction { transaction in
            try await transaction.pipeline([
                (IndexPlan.sql, []), (sql, arguments),
            ])[1].rows
        }
        var members: [Delivery] = []
        members.reserveCapacity(rows.count)
        for row in rows { members.append(try Self.member(row, of: shard)) }
        // They were looked up in this order. They are sorted again, as the cursor depends on it.
        if shard.isChosen { members.sort { $0.key.target < $1.key.target } }
        let isLast =
            members.count < limit
            || shard.upperID != nil && members.last?.key.target == shard.upperID
        return ShardPage(members: members, isLast: isLast)
    }

    /// Releases shards. Shards that this session does not own are left alone.
    ///
    /// - Parameters:
    ///   - session: The session that owns them.
    ///   - shards: The shards.
    ///   - dueAt: When they are due again; `nil` for at once.
    /// - Throws: `StorageError`.
    package func release(
        session: Int,
        _ shards: [ClaimedShard],
        dueAt: Instant?
    ) async throws {
        let shards = shards.sorted { ($0.pushID, $0.shard) < ($1.pushID, $1.shard) }
        guard !shards.isEmpty else { return }
        _ = try await database.execute(
            """
            WITH found AS (
                SELECT s.push_id, s.shard FROM unnest($2::uuid[], $3::integer[]) AS i(push_id, shard)
                JOIN shards s ON s.push_id = i.push_id AND s.shard = i.shard AND s.owner = $1
                ORDER BY s.push_id, s.shard FOR UPDATE OF s
            ), freed AS (
                UPDATE shards s SET owner = NULL, due_at = coalesce($4, now()), updated_at = now()
                FROM found f WHERE s.push_id = f.push_id AND s.shard = f.shard
                RETURNING s.finished
            )
            SELECT pg_notify('\(NotifyChannel.shards.rawValue)', '')
            FROM freed WHERE NOT finished AND $4::timestamptz IS NULL LIMIT 1
            """,
            [
                .integer(session), .uuidArray(shards.map(\.pushID)),
                .integerArray(shards.map(\.shard)),
                .optional(timestamp: dueAt?.microseconds),
            ]
        )
    }

    /// Releases strays: after the reply to a claim was lost, there may be shards that no task works
    /// on.
    ///
    /// - Parameters:
    ///   - session: The session that owns them.
    ///   - lane: Their lane.
    ///   - known: The shards that a task works on.
    /// - Returns: The number of released shards.
    /// - Throws: `StorageError`.
    @discardableResult
    package func releaseAll(
        session: Int,
        lane: Lane = .broadcast,
        except known: [ClaimedShard]
    ) async throws -> Int {
        try await database.execute(
            """
            UPDATE shards s SET owner = NULL, updated_at = now()
            WHERE s.owner = $1 AND (s.lane = 0) = $4 AND NOT EXISTS (
                SELECT FROM unnest($2::uuid[], $3::integer[]) AS i(push_id, shard)
                WHERE i.push_id = s.push_id AND i.shard = s.shard)
            """,
            [
                .integer(session), .uuidArray(known.map(\.pushID)),
                .integerArray(known.map(\.shard)), .boolean(lane == .direct),
            ]
        ).affectedRows
    }

    /// Returns when the next shard of a lane without an owner is due.
    package func nextDue(in lane: Lane = .broadcast) async throws -> Instant? {
        try await database.execute(
            """
            SELECT min(due_at) AS due FROM shards
            WHERE NOT finished AND owner IS NULL AND \(Self.isOf(lane, "shards"))
            """
        ).first?.instantOrNil("due")
    }
}

// MARK: Claiming

extension ShardStore {
    // Only one shard of a push with a pace is sent at a time, the first that is due, so that one
    // process applies the pace.
    private static let isHeldBackByPace = """
        (s.is_paced AND EXISTS (SELECT FROM shards o
            WHERE o.push_id = s.push_id AND o.shard <> s.shard AND NOT o.finished
                AND (o.owner IS NOT NULL OR o.shard < s.shard AND o.due_at <= now())))
        """

    private static let directClaimSQL = claimSQL(of: .direct)
    private static let broadcastClaimSQL = claimSQL(of: .broadcast)

    /// Returns the condition with the lane as a literal, as partial indexes need it.
    private static func isOf(_ lane: Lane, _ row: String) -> String {
        lane == .direct ? "\(row).lane = 0" : "\(row).lane > 0"
    }

    // Apps are found one by one in the index, so that an app with ten thousand shards does not hide
    // others. Candidates are checked again by their primary key, as another session may have
    // claimed them meanwhile; "IS FALSE" keeps the partial indexes out of this check. A shard that
    // an older dispatcher cut does not store when its members are first due. Such a shard was never
    // claimed before, so the time when it is due is right.
    private static func claimSQL(of lane: Lane) -> String {
        """
        WITH RECURSIVE apps AS (
            (SELECT s.app FROM shards s WHERE NOT s.finished AND s.owner IS NULL
                AND \(isOf(lane, "s")) ORDER BY s.app LIMIT 1)
            UNION ALL
            SELECT (SELECT s.app FROM shards s
                WHERE NOT s.finished AND s.owner IS NULL AND \(isOf(lane, "s")) AND s.app > a.app
                ORDER BY s.app LIMIT 1)
            FROM apps a WHERE a.app IS NOT NULL
        ), candidates AS (
            SELECT c.*, coalesce(h.held, 0)
                + row_number() OVER (PARTITION BY a.app ORDER BY c.pushed_at, c.push_id, c.shard)
                AS place
            FROM apps a
            LEFT JOIN unnest($2::text[], $3::integer[]) AS h(app, held) ON h.app = a.app
            CROSS JOIN LATERAL (
                SELECT s.push_id, s.shard, s.pushed_at FROM shards s
                WHERE s.app = a.app AND NOT s.finished AND s.owner IS NULL AND s.due_at <= now()
                    AND \(isOf(lane, "s")) AND ($6 OR NOT s.is_paced) AND NOT \(isHeldBackByPace)
                ORDER BY s.pushed_at, s.push_id, s.shard LIMIT $5) c
            WHERE a.app IS NOT NULL
        ), turns AS (
            SELECT c.*, row_number() OVER (ORDER BY c.place, c.pushed_at, c.push_id, c.shard) AS turn
            FROM candidates c
        ), taken AS (
            SELECT s.push_id, s.shard FROM turns c
            JOIN shards s ON s.push_id = c.push_id AND s.shard = c.shard
            WHERE (s.finished OR s.owner IS NOT NULL) IS FALSE AND c.place <= $7
                AND (NOT $8 OR c.place = 1 OR c.place <= $4 - c.turn + 1)
            ORDER BY c.place, c.pushed_at, c.push_id, c.shard LIMIT $4
            FOR UPDATE OF s SKIP LOCKED
        )
        UPDATE shards s SET owner = $1, updated_at = now(),
            created_at = CASE WHEN s.updated_at = s.created_at
                THEN greatest(s.created_at, s.due_at) ELSE s.created_at END
        FROM taken t WHERE s.push_id = t.push_id AND s.shard = t.shard
        RETURNING s.push_id, s.shard, s.app, s.day::text AS day, s.lower_id, s.upper_id,
            s.is_sparse, s.members IS NOT NULL AS is_chosen, s.zones, s.zones_excluded, s.cursor,
            s.expected, s.recorded, s.created_at, s.expires_at
        """
    }

    private struct Push {
        let id: String
        let lane: Int
        let expiresAt: Instant?
        let createdAt: Instant
        let plannedUntil: Int64
        let environment: PushEnvironment
        let selectors: PushRequest.Selectors
        let templateFields: [String]
        let badgeChanges: [Platform: BadgeChange]
        let isCancelled: Bool
    }

    /// Returns the values that all shards of a push share. Ends the shards of a push that failed or
    /// cannot be read.
    private static func pushes(
        _ ids: Set<String>,
        _ transaction: PostgresTransaction
    ) async throws -> [String: Push] {
        let rows = try await transaction.execute(
            """
            SELECT id, app, request, status, lane, expires_at, created_at, planned_until, environment
            FROM pushes WHERE id = ANY ($1::uuid[])
            """,
            [.uuidArray(ids.sorted())]
        ).rows
        var found: [String: Push] = [:]
        for row in rows {
            let id = try row.uuid("id")
            let status = PushStatus(rawValue: try row.text("status"))
            guard status != .failed else {
                try await PushLedger.endUnfinished(of: id, transaction)
                continue
            }
            guard let push = try? PlanningPush(row),
                let selectors = push.request.audience.selectors
            else {
                // Otherwise these shards would come before all others for ever.
                _ = try await LedgerSQL.fail(
                    id,
                    error: "its request cannot be read",
                    from: PushStatus.unfinished,
                    transaction
                )
                try await PushLedger.endUnfinished(of: id, transaction)
                continue
            }
            found[id] = Push(
                id: id,
                lane: try row.integer("lane"),
                expiresAt: try row.instantOrNil("expires_at"),
                createdAt: try row.instant("created_at"),
                plannedUntil: try row.timestampMicroseconds("planned_until"),
                environment: PushEnvironment(rawValue: try row.text("environment")) ?? .none,
                selectors: selectors,
                templateFields: status == .cancelled ? [] : push.request.templateFields,
                badgeChanges: status == .cancelled ? [:] : push.request.badgeChanges,
                isCancelled: status == .cancelled
            )
        }
        return found
    }

    private static func shard(_ row: PostgresRow, of push: Push) throws -> ClaimedShard {
        let zones = try row.textArrayOrNil("zones")
        let isExclusion = try row.boolean("zones_excluded")
        // A device-local push was released up to 26 hours before its last devices are due. So the
        // age is counted from when its shard was first due. Its present `due_at` moves with each
        // release.
        let createdAt =
            zones == nil ? push.createdAt : max(push.createdAt, try row.instant("created_at"))
        return ClaimedShard(
            pushID: push.id,
            shard: try row.integer("shard"),
            app: try row.text("app"),
            day: try row.text("day"),
            cursor: try row.textOrNil("cursor"),
            upperID: try row.textOrNil("upper_id"),
            expected: try row.integer("expected"),
            recorded: try row.integer("recorded"),
            lane: push.lane,
            expiresAt: try row.instantOrNil("expires_at") ?? push.expiresAt,
            createdAt: createdAt,
            lowerID: try row.text("lower_id"),
            isSparse: try row.boolean("is_sparse"),
            isChosen: try row.boolean("is_chosen"),
            zones: zones.map { ZoneFilter(names: $0.compactMap { $0 }, isExclusion: isExclusion) },
            environment: push.environment,
            plannedUntil: push.plannedUntil,
            selectors: push.selectors,
            templateFields: push.templateFields,
            badgeChanges: push.badgeChanges,
            isCancelled: push.isCancelled
        )
    }
}

// MARK: Reading

extension ShardStore {
    /// Returns the query of a page, without values that all members share.
    private static func pageSQL(
        _ shard: ClaimedShard,
        _ parameters: inout [PostgresValue]
    ) throws -> String {
        var conditions = ""
        if let upperID = shard.upperID {
            parameters.append(.text(upperID))
            conditions += " AND n.object_id <= $\(parameters.count)"
        }
        if let zones = shard.zones {
            conditions += zones.condition(&parameters)
            // A device that has moved here from another zone may have got the push there.
            parameters += [.text(shard.day), .uuid(shard.pushID)]
            conditions += """
                 AND NOT EXISTS (SELECT FROM deliveries d
                    WHERE d.day = $\(parameters.count - 1)::date
                        AND d.push_id = $\(parameters.count) AND d.target = n.object_id)
                """
        }
        var source = "installations n"
        if shard.isSparse {
            parameters.append(.textArray(shard.selectors.channels ?? []))
            source = """
                (SELECT * FROM installations m
                    WHERE m.channels && $\(parameters.count)::text[] OFFSET 0) n
                """
            conditions += shard.selectors.besideTopic(&parameters)
        } else {
            conditions += try shard.selectors.conditions(&parameters, app: shard.app)
        }
        return """
            SELECT \(memberColumns(shard, &parameters)) FROM \(source)
            WHERE n.app = $1 AND n.object_id > $2 AND n.valid AND n.token IS NOT NULL
                AND n.created_at <= $3\(conditions)
            ORDER BY n.object_id LIMIT $4
            """
    }

    /// Returns the query of a page of a chosen shard. The members are looked up one by one, in
    /// their order. The planner must not choose the order or the access path, as its statistics are
    /// wrong for a new app. A named device that cannot be sent to is a member too, with the reason.
    private static func chosenPageSQL(
        _ shard: ClaimedShard,
        _ parameters: inout [PostgresValue]
    ) -> String {
        parameters += [.uuid(shard.pushID), .integer(shard.shard)]
        let last = parameters.count
        let isNamed = shard.lane == 0
        let columns = memberColumns(shard, &parameters)
        return """
            WITH chosen AS MATERIALIZED (
                SELECT s.app, m.id FROM shards s CROSS JOIN LATERAL unnest(s.members) AS m(id)
                WHERE s.push_id = $\(last - 1) AND s.shard = $\(last) AND s.app = $1 AND m.id > $2
            )
            SELECT \(columns), \(isNamed ? "n.suppression" : "NULL") AS suppression
            FROM chosen c CROSS JOIN LATERAL (
                SELECT i.object_id, i.provider, i.environment, i.locale, i.apns_topic, i.app,
                    i.created_at, i.fields, i.device_type, i.installation_id, i.vendor,
                    i.device_profile, i.time_zone, i.badge, i.identity, i.channels, i.valid,
                    \(DirectRows.reach(of: "i"))
                FROM installations i
                WHERE i.app = c.app AND i.object_id = c.id OFFSET 0) n
            WHERE n.provider IS NOT NULL AND \(isNamed ? "true" : "n.suppression IS NULL")
                AND n.created_at <= $3 LIMIT $4
            """
    }

    private static func memberColumns(
        _ shard: ClaimedShard,
        _ parameters: inout [PostgresValue]
    ) -> String {
        let columns = """
            n.object_id, n.provider, n.environment, n.token, n.locale,
            \(InstallationTopic.sql(of: "n"))
            """
        guard !shard.templateFields.isEmpty else { return columns }
        parameters.append(.textArray(shard.templateFields))
        return columns + ", " + TemplateValues.sql("$\(parameters.count)::text[]", of: "n")
    }

    private static func member(
        _ row: PostgresRow,
        of shard: ClaimedShard
    ) throws -> Delivery {
        let objectID = try row.text(0)
        guard let platform = Platform(rawValue: try row.text(1)) else {
            throw StorageError(.corrupt, "an installation is for an unknown provider")
        }
        let named = try row.text(2)
        let isExplicit = !named.isEmpty
        return Delivery(
            key: DeliveryKey(day: shard.day, pushID: shard.pushID, target: objectID),
            app: shard.app,
            installationID: objectID,
            device: DeviceTarget(
                provider: platform,
                token: try row.text(3),
                environment: isExplicit || platform != .apns
                    ? PushEnvironment(rawValue: named) ?? .none : shard.environment,
                environmentIsExplicit: isExplicit
            ),
            locale: try row.textOrNil(4),
            apnsTopic: try row.textOrNil(5),
            lane: shard.lane,
            attempts: 0,
            unanswered: 0,
            expiresAt: shard.expiresAt,
            createdAt: shard.createdAt,
            suppression: shard.isCancelled
                ? Delivery.cancelledReason
                : shard.isChosen ? try row.textOrNil("suppression") : nil,
            values: shard.templateFields.isEmpty ? nil : try row.jsonOrNil(6)?.object
        )
    }
}
