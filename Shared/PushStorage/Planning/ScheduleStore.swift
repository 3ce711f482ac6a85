import JSON
import Postgres
package import PushCore
package import Storage

/// The pushes that one transaction has released.
package struct ReleasedBatch: Sendable {
    package struct Push: Sendable {
        package var id: String
        package var eventSource: String
        package var eventID: String
        package var request: PushRequest
    }

    package var pushes: [Push]
    /// The deliveries to devices that a push names one by one. The session owns them. The
    /// deliveries of a device-local push are not among them: they are rows without an owner, each
    /// due at its device's time.
    package var deliveries: [Delivery]
    /// Whether one of the pushes has an audience that is still to be planned, page by page.
    package var isPlanning: Bool
    /// Whether more pushes may be due.
    package var isFull: Bool
}

/// A push that no session can release.
package struct UnreleasablePush: Error {
    package var id: String
    package var cause: StorageError

    package init(id: String, cause: StorageError) {
        self.id = id
        self.cause = cause
    }
}

/// Scheduled pushes. Each is released once, by the first session that locks it.
package struct ScheduleStore: Sendable {
    let database: Database
    let zoneNames: ZoneNames

    /// Releases the pushes whose time has come, the oldest first. From now on their audience is
    /// fixed, and their deliveries are stored in today's partition. A push is locked until its
    /// release is committed, and other sessions skip it, so that it is released once.
    ///
    /// - Parameters:
    ///   - session: The session that owns the deliveries.
    ///   - limit: The most pushes of one transaction.
    ///   - backingOff: Pushes that are in backoff.
    ///   - inPages: Pushes whose audiences are only planned later, page by page, as they would take
    ///     too long.
    /// - Returns: The released pushes, and the deliveries to send at once.
    /// - Throws: `StorageError`, for example of kind `sessionLost`; then nothing was released.
    ///   `UnreleasablePush` if there was only one push, and Postgres refuses it or it takes too
    ///   long.
    package func release(
        session: Int,
        limit: Int = 100,
        except backingOff: [String] = [],
        inPages: Set<String> = []
    ) async throws -> ReleasedBatch {
        try await database.transaction { transaction in
            try await IndexPlan.require(transaction)
            try await SessionStore.hold(session, transaction)
            let rows = try await Self.takeDue(limit: max(1, limit), except: backingOff, transaction)
            do {
                return try await release(
                    rows,
                    session,
                    isFull: rows.count >= limit,
                    inPages: inPages,
                    transaction
                )
            } catch let error as PostgresError where rows.count == 1 {
                let cause = StorageError(error)
                guard cause.mayBeOfThePush, let id = try rows.first?.uuid("id") else { throw error }
                throw UnreleasablePush(id: id, cause: cause)
            }
        }
    }

    private static func takeDue(
        limit: Int,
        except backingOff: [String],
        _ transaction: PostgresTransaction
    ) async throws -> PostgresRows {
        try await transaction.execute(
            """
            UPDATE pushes p SET \(LedgerSQL.released)
            FROM (SELECT id FROM pushes
                WHERE is_waiting AND status = \(PushStatus.scheduled.sql) AND release_at <= now()
                    AND id <> ALL ($2::uuid[])
                ORDER BY release_at LIMIT $1 FOR UPDATE SKIP LOCKED) due
            WHERE p.id = due.id
            RETURNING p.id, p.app, p.event_source, p.event_id, p.request, p.release_at,
                p.expires_at
            """,
            [.integer(limit), .uuidArray(backingOff)]
        ).rows
    }

    private func release(
        _ rows: PostgresRows,
        _ session: Int,
        isFull: Bool,
        inPages: Set<String>,
        _ transaction: PostgresTransaction
    ) async throws -> ReleasedBatch {
        var batch = ReleasedBatch(
            pushes: [],
            deliveries: [],
            isPlanning: false,
            isFull: isFull
        )
        var atOnce: [NewPush] = []
        for row in rows {
            guard let push = try await Self.released(row, transaction) else { continue }
            batch.pushes.append(
                .init(
                    id: push.id,
                    eventSource: push.eventSource,
                    eventID: push.eventID,
                    request: push.request
                )
            )
            let zones = try await zoneNames.times(
                of: push.request,
                releasedAt: push.releaseAt,
                transaction
            )
            let isInPages = inPages.contains(push.id)
            if zones == nil, !isInPages {
                atOnce.append(push)
                continue
            }
            let isPaged = try await Self.planDirect(
                [push],
                owner: nil,
                zones,
                inPages: isInPages,
                transaction
            ).isPaged
            if isPaged { batch.isPlanning = true }
        }
        let planned = try await Self.planDirect(
            atOnce,
            owner: session,
            nil,
            inPages: false,
            transaction
        )
        batch.deliveries = planned.deliveries
        if planned.isPaged { batch.isPlanning = true }
        if batch.isPlanning { try await NotifyChannel.planning.notify(transaction) }
        return batch
    }

    /// Returns the time until the next release, by Postgres' clock; zero if a push is due, `nil` if
    /// no push waits.
    package func untilNextRelease(except backingOff: [String] = []) async throws -> Duration? {
        let row = try await database.execute(
            """
            SELECT extract(epoch FROM min(release_at) - clock_timestamp())::double precision
                AS seconds
            FROM pushes WHERE is_waiting AND status = \(PushStatus.scheduled.sql)
                AND id <> ALL ($1::uuid[])
            """,
            [.uuidArray(backingOff)]
        ).first
        return try row?.doubleOrNil("seconds").map { .milliseconds(Int64(max(0, $0) * 1000)) }
    }

    private static func planDirect(
        _ pushes: [NewPush],
        owner: Int?,
        _ zones: ZoneTimes?,
        inPages: Bool,
        _ transaction: PostgresTransaction
    ) async throws -> (deliveries: [Delivery], isPaged: Bool) {
        let audience = DirectAudience(
            pushes.sorted { $0.id < $1.id },
            inPages ? nil : try await MemberCounts.count(of: pushes, transaction),
            areZoned: zones != nil
        )
        var deliveries: [Delivery] = []
        if !audience.isEmpty {
            deliveries = try await DirectRows.insert(
                audience,
                owner: owner,
                zones: zones,
                transaction
            ).deliveries
        }
        if !audience.large.isEmpty {
            _ = try await transaction.execute(
                "UPDATE pushes SET lane = 1 WHERE id = ANY ($1::uuid[])",
                [.uuidArray(audience.large.sorted())]
            )
        }
        return (deliveries, !audience.paged.isEmpty)
    }

    /// - Returns: The push; `nil` if its request can no longer be read: the push then fails.
    private static func released(
        _ row: PostgresRow,
        _ transaction: PostgresTransaction
    ) async throws -> NewPush? {
        do {
            let push = try PlanningPush(row)
            return NewPush(
                id: push.id,
                app: push.app,
                eventSource: try row.text("event_source"),
                eventID: try row.text("event_id"),
                object: [:],
                request: push.request,
                expiresAt: try row.instantOrNil("expires_at"),
                releaseAt: try row.instant("release_at")
            )
        } catch let error as StorageError where error.kind == .corrupt {
            let id = try row.uuid("id")
            _ = try await LedgerSQL.fail(id, error: error.description, transaction)
            return nil
        }
    }
}
