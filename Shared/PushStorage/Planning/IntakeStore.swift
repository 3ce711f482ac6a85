import JSON
import Postgres
import PushCore

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

/// Takes events in: each becomes a push, once, and those that name their devices one by one are planned at
/// once. The audiences of the others are for `PlanningStore`, their time is for `ScheduleStore`.
package struct IntakeStore: Sendable {
    let database: Database

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
                inPages ? nil : try await MemberCounts.count(of: pushes, transaction)
            let (now, later) = members?.firstPortion(of: pushes) ?? (pushes, [])
            _ = try await transaction.pipeline([
                ErasedNames.passBarrier(of: Set(now.map(\.app)).sorted()),
                PushLock.take(now.map(\.id)),
            ])
            let fresh = try await Self.insertKeys(now, transaction)
            var audience = DirectAudience(
                fresh.filter { $0.releaseAt == nil },
                members
            )
            let new = try await Self.insert(fresh, audience, transaction)
            audience.keep(only: new)
            let scheduled = fresh.filter { new.contains($0.id) && $0.releaseAt != nil }
            var deliveries: [Delivery] = []
            if !audience.isEmpty {
                deliveries = try await DirectRows.insert(
                    audience,
                    owner: session,
                    isCounted: true,
                    transaction
                )
            }
            if !audience.paged.isEmpty { try await StorageChannel.planning.notify(transaction) }
            if !scheduled.isEmpty { try await StorageChannel.scheduled.notify(transaction) }
            return PlannedBatch(
                newPushIDs: new,
                deliveries: deliveries,
                planningPushIDs: audience.paged,
                scheduledPushIDs: Set(scheduled.map(\.id)),
                deferredPushIDs: Set(later.map(\.id))
            )
        }
    }
}

// MARK: One transaction's steps

extension IntakeStore {
    /// - Returns: Those whose events were not known. What HTTP accepted has its times in its row, by Postgres'
    ///   clock as it was then: they hold, and are not computed again.
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
}
