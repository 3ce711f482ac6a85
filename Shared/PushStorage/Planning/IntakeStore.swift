import JSON
import Postgres
import PushCore
import Storage

/// The result of planning the pushes of one batch.
package struct PlannedBatch: Sendable {
    /// The pushes that are new, by id; the others existed already.
    package var newPushIDs: Set<String>
    /// The deliveries to devices that a push names one by one. The session owns them.
    package var deliveries: [Delivery]
    /// The devices that became members of shards.
    package var members = 0
    /// The new pushes whose audience is still to be planned, page by page.
    package var planningPushIDs: Set<String>
    /// The new pushes that wait for their time.
    package var scheduledPushIDs: Set<String> = []
    /// The pushes that were left for another transaction, unchanged.
    package var deferredPushIDs: Set<String> = []
}

/// Stores events as pushes, each once, and plans those that name their devices one by one.
/// `PlanningStore` plans the audiences of the others, and `ScheduleStore` releases pushes that wait
/// for their time.
package struct IntakeStore: Sendable {
    let database: Database

    /// Stores the pushes of a batch of events, all or none: their keys, their records, and the
    /// deliveries to devices that they name one by one. An event that is stored already changes
    /// nothing.
    ///
    /// - Parameters:
    ///   - session: The session that owns the deliveries.
    ///   - pushes: The pushes, in the order in which they arrived.
    ///   - inPages: Whether the audiences are only planned later, page by page: for pushes that
    ///     would take too long.
    /// - Returns: The result. Some pushes are deferred if their identities have too many devices
    ///   for one transaction.
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
            let counts =
                inPages ? nil : try await MemberCounts.count(of: pushes, transaction)
            let (now, later) = counts?.firstPortion(of: pushes) ?? (pushes, [])
            _ = try await transaction.pipeline([
                ErasureFence.passBarrier(of: Set(now.map(\.app)).sorted()),
                PushLock.take(now.map(\.id)),
            ])
            let fresh = try await Self.insertKeys(now, transaction)
            var audience = DirectAudience(
                fresh.filter { $0.releaseAt == nil },
                counts
            )
            let new = try await Self.insert(fresh, audience, transaction)
            audience.keep(only: new)
            let scheduled = fresh.filter { new.contains($0.id) && $0.releaseAt != nil }
            var (deliveries, members) = ([Delivery](), 0)
            if !audience.isEmpty {
                (deliveries, members) = try await DirectRows.insert(
                    audience,
                    owner: session,
                    isCounted: true,
                    transaction
                )
            }
            if !audience.paged.isEmpty { try await NotifyChannel.planning.notify(transaction) }
            if !scheduled.isEmpty { try await NotifyChannel.scheduled.notify(transaction) }
            return PlannedBatch(
                newPushIDs: new,
                deliveries: deliveries,
                members: members,
                planningPushIDs: audience.paged,
                scheduledPushIDs: Set(scheduled.map(\.id)),
                deferredPushIDs: Set(later.map(\.id))
            )
        }
    }
}

// MARK: Steps of the transaction

extension IntakeStore {
    /// - Returns: The pushes whose events are new. If HTTP accepted a push, its row has the times,
    ///   which Postgres' clock gave when it was accepted. They are valid, and are not computed
    ///   again.
    private static func insertKeys(
        _ pushes: [NewPush],
        _ transaction: PostgresTransaction
    ) async throws -> [NewPush] {
        let byKey = pushes.sorted {
            ($0.app, $0.eventSource, $0.eventID) < ($1.app, $1.eventSource, $1.eventID)
        }
        let results = try await transaction.pipeline([
            (
                """
                INSERT INTO event_keys (app, source, id, push_id)
                SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::uuid[])
                ON CONFLICT DO NOTHING RETURNING push_id
                """,
                [
                    .textArray(byKey.map(\.app)), .textArray(byKey.map(\.eventSource)),
                    .textArray(byKey.map(\.eventID)), .uuidArray(byKey.map(\.id)),
                ]
            ),
            (
                """
                SELECT id, release_at, expires_at FROM pushes
                WHERE id = ANY ($1::uuid[]) AND status = \(PushStatus.queued.sql)
                """,
                [.uuidArray(pushes.map(\.id))]
            ),
        ])
        let fresh = Set(try results[0].rows.map { try $0.uuid("push_id") })
        var accepted: [String: (releaseAt: Instant?, expiresAt: Instant?)] = [:]
        for row in results[1].rows {
            accepted[try row.uuid("id")] = (
                try row.instantOrNil("release_at"), try row.instantOrNil("expires_at")
            )
        }
        return pushes.filter { fresh.contains($0.id) }.map { push in
            guard let row = accepted[push.id] else { return push }
            return push.with(releaseAt: row.releaseAt, expiresAt: row.expiresAt)
        }
    }

    /// Writes pushes with the expected ledgers of their direct audiences. The expected numbers are
    /// nearly always right, and then each row is written only once.
    private static func insert(
        _ new: [NewPush],
        _ audience: DirectAudience,
        _ transaction: PostgresTransaction
    ) async throws -> Set<String> {
        guard !new.isEmpty else { return [] }
        let pushes = new.map { push in
            ArrivedPush(
                push: push,
                expected: audience.expected[push.id],
                lane: audience.large.contains(push.id) ? 1 : push.lane
            )
        }
        let columns = ArrivedPush.columns
        let source = columns + Columns([.bigint("expected", \.expected)])
        // A push that HTTP accepted has its row already, in the state `queued`.
        let records = try await transaction.execute(
            """
            INSERT INTO pushes (\(columns.names), \(LedgerSQL.arrivalColumns), schedule_id,
                planned_until, created_at, updated_at)
            SELECT \(columns.names(of: "i")),
                \(LedgerSQL.arrival(expected: "i.expected", releaseAt: "i.release_at")),
                CASE WHEN i.release_at IS NOT NULL THEN nextval('pushes_schedule_id') END, now(),
                date_trunc('milliseconds', now()), now()
            FROM \(source.source(as: "i"))
            ON CONFLICT (id) DO UPDATE SET \(LedgerSQL.arrivalOfQueued), planned_until = now(),
                lane = excluded.lane, is_conditional = excluded.is_conditional,
                updated_at = now()
            WHERE pushes.status = \(PushStatus.queued.sql)
            RETURNING id
            """,
            source.parameters(of: pushes)
        )
        return Set(try records.rows.map { try $0.uuid("id") })
    }
}

/// A push that is planned as rows or shards.
private struct ArrivedPush {
    let push: NewPush
    /// The number of deliveries that are planned at once; `nil` if the push is planned page by
    /// page.
    let expected: Int?
    let lane: Int

    static let columns = Columns<ArrivedPush>([
        .uuid("id") { $0.push.id }, .text("app") { $0.push.app },
        .text("event_source") { $0.push.eventSource }, .text("event_id") { $0.push.eventID },
        .json("request") { .object($0.push.object) }, .jsonb("notes") { .object($0.push.notes) },
        .smallint("lane") { $0.lane }, .time("expires_at") { $0.push.expiresAt },
        .text("environment") { $0.push.request.environment.rawValue },
        .time("release_at") { $0.push.releaseAt },
        .boolean("is_conditional") { $0.push.request.hasCondition },
    ])
}
