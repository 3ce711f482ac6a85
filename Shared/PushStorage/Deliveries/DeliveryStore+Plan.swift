import JSON
import Postgres
package import PushCore

/// What became of the pushes of one batch.
package struct PlannedBatch: Sendable {
    /// The pushes that are new, by id; the others were there already.
    package var newPushIDs: Set<String>
    /// The deliveries to devices that a push names one by one. The session owns them.
    package var deliveries: [Delivery]
    /// The new pushes whose audience is still to be written down, page by page.
    package var planningPushIDs: Set<String>
    /// The new pushes that wait for their time.
    package var scheduledPushIDs: Set<String> = []
    /// Those that were left for another transaction: nothing was done with them.
    package var deferredPushIDs: Set<String> = []
}

/// A push whose audience a session is writing down.
package struct PlanningPush: Sendable, Equatable {
    package var id: String
    package var app: String
    package var request: PushRequest

    package init(id: String, app: String, request: PushRequest) {
        self.id = id
        self.app = app
        self.request = request
    }
}

/// What one page of an audience came to.
package struct PlannedPage: Sendable, Equatable {
    /// Deliveries that are on the books now, due now, and nobody's: rows, or members of shards.
    package var inserted: Int
    /// With those of the pages before.
    package var total: Int
    package var isFinished: Bool
}

extension DeliveryStore {
    /// Devices of one batch that are planned at once; what is more is planned page by page.
    static let directLimit = 10_000
    /// Identities of one batch that are looked up at once.
    static let directIdentityLimit = 1000

    /// Makes pushes of a batch of events, all or none: their keys, their records, and the
    /// deliveries of those that name their devices one by one. An event that is known already
    /// changes nothing.
    ///
    /// - Parameters:
    ///   - session: Whose the deliveries become.
    ///   - pushes: In the order in which they came.
    ///   - inPages: Nothing is planned at once: for those with which that takes too long.
    /// - Returns: What became of them. Where there are too many devices behind their identities for
    ///   one transaction, some are left for another.
    /// - Throws: `StorageError` of kind `sessionLost`; then nothing was written.
    package func plan(
        session: Int,
        _ pushes: [NewPush],
        inPages: Bool = false
    ) async throws -> PlannedBatch {
        var seen: Set<String> = []
        let pushes = pushes.filter { seen.insert($0.id).inserted }.sorted { $0.id < $1.id }
        guard !pushes.isEmpty else {
            return PlannedBatch(newPushIDs: [], deliveries: [], planningPushIDs: [])
        }
        return try await database.transaction { transaction in
            try await SessionStore.holdByIndex(session, transaction)
            let members =
                inPages ? nil : try await Self.countMembers(of: pushes, transaction)
            let (now, later) = members?.firstPortion(of: pushes) ?? (pushes, [])
            let fresh = try await Self.insertKeys(now, transaction)
            var audience = DirectAudience(
                fresh.filter { $0.releaseAt == nil },
                members,
                limit: Self.directLimit,
                identityLimit: Self.directIdentityLimit
            )
            let new = try await Self.insert(fresh, audience, transaction)
            audience.keep(only: new)
            let scheduled = fresh.filter { new.contains($0.id) && $0.releaseAt != nil }
            var deliveries: [Delivery] = []
            if !audience.isEmpty {
                deliveries = try await Self.insertDirect(
                    audience,
                    owner: session,
                    isCounted: true,
                    transaction
                )
            }
            if !audience.paged.isEmpty { try await Self.notify(.planning, transaction) }
            if !scheduled.isEmpty { try await Self.notify(.scheduled, transaction) }
            return PlannedBatch(
                newPushIDs: new,
                deliveries: deliveries,
                planningPushIDs: audience.paged,
                scheduledPushIDs: Set(scheduled.map(\.id)),
                deferredPushIDs: Set(later.map(\.id))
            )
        }
    }

    static func notify(
        _ channel: StorageChannel,
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute("SELECT pg_notify('\(channel.rawValue)', '')")
    }

    /// Writes the next page of an audience down and moves the cursor, in one transaction. The
    /// audience is fixed: installations created after the push are not in it. One that names neither
    /// devices nor identities is cut into shards, ten at a time; the others become rows.
    ///
    /// - Parameters:
    ///   - session: Has claimed the push.
    ///   - pushID: Which push.
    ///   - limit: Rows of a page.
    ///   - shardSize: Members of a shard; `nil`: rows for everyone.
    ///   - looksAt: After a page that took too long: how many of the app's installations a statement
    ///     looks at, whatever it finds there; `nil`: as many as it takes.
    ///   - keepsClaim: Whether the push stays the session's where it is not finished.
    /// - Returns: What the page came to.
    /// - Throws: `StorageError` of kind `sessionLost` where the push is not this session's.
    package func planPage(
        session: Int,
        pushID: String,
        limit: Int = 5000,
        shardSize: Int? = nil,
        looksAt: Int? = nil,
        keepsClaim: Bool = true
    ) async throws -> PlannedPage {
        try await database.transaction { transaction in
            try await SessionStore.hold(session, transaction)
            let found = try await transaction.execute(
                """
                SELECT id, app, request, lane, cursor, planned_until, release_at FROM pushes
                WHERE id = $1 AND planner = $2 AND status = \(PushStatus.planning.sql)
                """,
                [.uuid(pushID), .integer(session)]
            )
            guard let row = found.first else { throw StorageError.sessionLost }
            let push = try Self.planningPush(row)
            let start = PageStart(
                cursor: try row.textOrNil("cursor"),
                plannedUntil: try row.timestampMicroseconds("planned_until"),
                limit: max(1, min(limit, looksAt.map { $0 / 100 } ?? limit))
            )
            let isLarge = try row.integer("lane") > 0 || looksAt != nil
            let zones = try await zoneNames.times(
                of: push.request,
                releasedAt: try row.instantOrNil("release_at"),
                transaction
            )
            let page: AudiencePage
            switch push.request.audience {
            case .tokens(let tokens):
                page = try await Self.insertTokenPage(push, tokens, start, zones, transaction)
            case .installations(let selectors):
                if let shardSize, selectors.isChosen(isLarge: isLarge) {
                    page = try await Self.choose(
                        push,
                        selectors,
                        start,
                        size: max(1, shardSize),
                        zones,
                        looksAt: looksAt,
                        transaction
                    )
                } else if let shardSize, !selectors.isDirect {
                    page = try await Self.cut(
                        push,
                        selectors,
                        start,
                        size: max(1, shardSize),
                        zones,
                        looksAt: looksAt,
                        transaction
                    )
                } else {
                    page = try await Self.insertPage(push, selectors, start, zones, transaction)
                }
            }
            let isFinished = page.cursor == nil
            // Not locked before: checkpoints of its first shards would wait for the next page. Who
            // cancels it takes it from us.
            let changed = try await transaction.execute(
                """
                UPDATE pushes p SET
                    \(PushBooks.planned(members: "$2", shards: "$5", isLast: "$4")),
                    cursor = coalesce($3, p.cursor),
                    planner = CASE WHEN $4 OR NOT $7 THEN NULL ELSE p.planner END
                WHERE p.id = $1 AND p.planner = $6 AND p.status = \(PushStatus.planning.sql)
                RETURNING p.targeted
                """,
                [
                    .uuid(pushID), .integer(page.inserted), .optional(text: page.cursor),
                    .boolean(isFinished), .integer(page.shards), .integer(session),
                    .boolean(keepsClaim),
                ]
            )
            guard let books = changed.first else { throw StorageError.sessionLost }
            return PlannedPage(
                inserted: page.inserted,
                total: try books.integer("targeted"),
                isFinished: isFinished
            )
        }
    }

    static func planningPush(_ row: PostgresRow) throws -> PlanningPush {
        let object = try row.json("request").object ?? [:]
        let request: PushRequest
        do throws(PushRequestError) {
            // It was judged when it came in; what was past then is past now.
            request = try PushRequest.parse(object, now: .latest, isStored: true)
        } catch {
            throw StorageError(.corrupt, "a push's request cannot be read: \(error.description)")
        }
        return PlanningPush(
            id: try row.uuid("id"),
            app: try row.text("app"),
            request: request
        )
    }
}

// MARK: One transaction's steps

extension DeliveryStore {
    /// - Returns: Those whose events were not known.
    private static func insertKeys(
        _ pushes: [NewPush],
        _ transaction: PostgresTransaction
    ) async throws -> [NewPush] {
        let byKey = pushes.sorted {
            ($0.app, $0.eventSource, $0.eventID) < ($1.app, $1.eventSource, $1.eventID)
        }
        let keys = try await transaction.execute(
            """
            INSERT INTO event_keys (app, source, id, push_id)
            SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[])
            ON CONFLICT DO NOTHING RETURNING push_id
            """,
            [
                .textArray(byKey.map(\.app)), .textArray(byKey.map(\.eventSource)),
                .textArray(byKey.map(\.eventID)), .uuidArray(byKey.map(\.id)),
            ]
        )
        let fresh = Set(try keys.rows.map { try $0.uuid("push_id") })
        return pushes.filter { fresh.contains($0.id) }
    }

    /// Writes pushes with the books that their direct audiences should come to: nearly always they
    /// do, and the row is written once.
    private static func insert(
        _ new: [NewPush],
        _ audience: DirectAudience,
        _ transaction: PostgresTransaction
    ) async throws -> Set<String> {
        guard !new.isEmpty else { return [] }
        let expected = new.map { audience.expected[$0.id] }
        // A push that HTTP accepted has its record already, and waits for this.
        let records = try await transaction.execute(
            """
            INSERT INTO pushes (id, app, event_source, event_id, request,
                \(PushBooks.arrivalColumns), notes, lane, expires_at, environment, release_at,
                schedule_id, planned_until, is_conditional, created_at, updated_at)
            SELECT i.id, i.app, i.source, i.event_id, i.request,
                \(PushBooks.arrival(expected: "i.expected", releaseAt: "i.release_at")),
                i.notes, i.lane, i.expires_at, i.environment, i.release_at,
                CASE WHEN i.release_at IS NOT NULL THEN nextval('pushes_schedule_id') END, now(),
                i.is_conditional, date_trunc('milliseconds', now()), now()
            FROM unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::json[], $6::jsonb[],
                $7::smallint[], $8::timestamptz[], $9::text[], $10::timestamptz[], $11::bigint[],
                $12::boolean[])
                AS i(id, app, source, event_id, request, notes, lane, expires_at, environment,
                    release_at, expected, is_conditional)
            ON CONFLICT (id) DO UPDATE SET \(PushBooks.arrivalOfQueued), planned_until = now(),
                lane = excluded.lane, is_conditional = excluded.is_conditional,
                release_at = coalesce(excluded.release_at, pushes.release_at),
                schedule_id = coalesce(pushes.schedule_id, excluded.schedule_id),
                updated_at = now()
            WHERE pushes.status = \(PushStatus.queued.sql)
            RETURNING id
            """,
            [
                .uuidArray(new.map(\.id)), .textArray(new.map(\.app)),
                .textArray(new.map(\.eventSource)), .textArray(new.map(\.eventID)),
                .jsonArray(new.map { .object($0.object) }),
                .jsonArray(new.map { .object($0.notes) }),
                .integerArray(new.map { audience.large.contains($0.id) ? 1 : $0.lane }),
                .timestampArray(new.map { $0.expiresAt?.microseconds }),
                .textArray(new.map(\.request.environment.rawValue)),
                .timestampArray(new.map { $0.releaseAt?.microseconds }), .integerArray(expected),
                .booleanArray(new.map(\.request.hasCondition)),
            ]
        )
        return Set(try records.rows.map { try $0.uuid("id") })
    }

    /// Where a page of an audience begins.
    struct PageStart {
        let cursor: String?
        /// Microseconds since 1970.
        let plannedUntil: Int64
        let limit: Int
        /// The last id that is looked at; `nil`: there is no such.
        var end: String?

        /// What holds of an installation `n` up to there.
        func bound(_ parameters: inout [PostgresValue]) -> String {
            guard let end else { return "" }
            parameters.append(.text(end))
            return " AND n.object_id <= $\(parameters.count)"
        }
    }

    struct AudiencePage {
        var inserted = 0
        var shards = 0
        /// Where the next page begins; `nil`: there is none.
        var cursor: String?
    }

    /// A page of a list of tokens; the cursor is how many of them are done.
    private static func insertTokenPage(
        _ push: PlanningPush,
        _ tokens: [PushRequest.DirectToken],
        _ start: PageStart,
        _ zones: ZoneTimes?,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        let done = start.cursor.flatMap { Int($0) } ?? 0
        let page = tokens.dropFirst(done).prefix(start.limit)
        guard !page.isEmpty else { return AudiencePage() }
        let (sql, parameters) = insertTokens(
            page.map { DirectAudience.Token(pushID: push.id, token: $0) },
            owner: nil,
            zones: zones
        )
        let inserted = try await transaction.execute(sql, parameters)
        let end = done + page.count
        return AudiencePage(
            inserted: inserted.count,
            cursor: end < tokens.count ? String(end) : nil
        )
    }

    /// A page of installations in the order of their ids; the cursor is the last id that was
    /// looked at.
    private static func insertPage(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        _ start: PageStart,
        _ zones: ZoneTimes?,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        if selectors.selectsNobody { return AudiencePage() }
        // The app and the time are parameters, not a join: the page is then read from the primary
        // key, from the cursor on, and not from a sort of all that is left.
        var parameters: [PostgresValue] = [
            .uuid(push.id), .text(push.app), .text(start.cursor ?? ""),
            .timestamp(start.plannedUntil), .integer(start.limit),
        ]
        var source = "installations n"
        if selectors.isDirect, selectors.condition != nil {
            // Those that are named are found first, by their names, however little the condition
            // seems to cost.
            let named = selectors.names(&parameters, of: "m")
            source = "(SELECT * FROM installations m WHERE m.app = $2\(named) OFFSET 0) n"
        }
        let conditions = try selectors.conditions(&parameters, app: push.app)
        let times = RowTimes(zones, zone: "i.time_zone", &parameters)
        var values = "NULL::json"
        if !push.request.templateFields.isEmpty {
            parameters.append(.textArray(push.request.templateFields))
            values = TemplateValues.sql("$\(parameters.count)::text[]", of: "i")
        }
        let result = try await transaction.execute(
            """
            WITH page AS (
                SELECT n.* FROM \(source)
                WHERE n.app = $2 AND n.object_id > $3 AND n.valid AND n.token IS NOT NULL
                    AND n.created_at <= $4\(conditions)
                ORDER BY n.object_id LIMIT $5
            ), inserted AS (
                INSERT INTO deliveries (\(deliveryColumns))
                SELECT \(installationRow(times)), \(values), NULL::bigint
                FROM page i JOIN pushes p ON p.id = $1
                ON CONFLICT DO NOTHING RETURNING 1)
            SELECT (SELECT count(*) FROM inserted) AS inserted, count(*) AS seen,
                max(object_id) AS last FROM page
            """,
            parameters,
            isPrepared: selectors.condition == nil
        )
        guard let row = result.first else { return AudiencePage() }
        let isLast = try row.integer("seen") < start.limit
        if let last = try row.textOrNil("last") {
            try await raiseBadges(of: push, after: start.cursor ?? "", upTo: last, transaction)
        }
        return AudiencePage(
            inserted: try row.integer("inserted"),
            cursor: isLast ? nil : try row.textOrNil("last")
        )
    }
}

extension PushRequest.Selectors {
    /// Whether their members are chosen when the push is planned, and kept with its shards: as an
    /// answer to the condition, or as an identity may change hands. Others are cut, or become rows.
    fileprivate func isChosen(isLarge: Bool) -> Bool {
        isDirect ? identities != nil && isLarge : condition != nil
    }

    /// What an installation `n` has to fulfil, each condition behind an `AND`.
    ///
    /// - Throws: `WhereError` for a condition over what is not kept.
    func conditions(
        _ parameters: inout [PostgresValue],
        app: String
    ) throws(WhereError) -> String {
        var conditions = ""
        if let channels {
            parameters.append(.textArray(channels))
            conditions += " AND n.channels && $\(parameters.count)::text[]"
        }
        conditions += names(&parameters, of: "n")
        if let condition {
            var compiler = WhereCompiler(app: app, parameters: parameters)
            conditions += " AND " + (try compiler.installations(condition, as: "n"))
            parameters = compiler.parameters
        }
        return conditions
    }

    /// The part of them that names installations one by one.
    func names(_ parameters: inout [PostgresValue], of alias: String) -> String {
        var conditions = ""
        if let identities {
            parameters.append(.textArray(identities))
            conditions += " AND \(alias).identity = ANY ($\(parameters.count)::text[])"
        }
        if let installations {
            parameters.append(.textArray(installations))
            let list = "ANY ($\(parameters.count)::text[])"
            conditions +=
                " AND (\(alias).object_id = \(list) OR \(alias).installation_id = \(list))"
        }
        return conditions
    }
}
