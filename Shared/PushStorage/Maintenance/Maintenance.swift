import Postgres
package import PushCore

/// How long things are kept.
package struct Retention: Sendable, Equatable {
    /// `DELIVERY_RETENTION`, whole days.
    package var deliveryDays: Int
    /// `IDEMPOTENCY_RETENTION`.
    package var eventKeys: Duration
    /// `PUSH_RETENTION`.
    package var pushes: Duration
    /// `AUDIT_RETENTION`.
    package var audit: Duration

    package init(
        deliveryDays: Int = 7,
        eventKeys: Duration = .seconds(7 * 86_400),
        pushes: Duration = .seconds(90 * 86_400),
        audit: Duration = .seconds(90 * 86_400)
    ) {
        self.deliveryDays = max(1, deliveryDays)
        self.eventKeys = eventKeys
        self.pushes = pushes
        self.audit = audit
    }
}

/// What one round of maintenance did.
package struct MaintenanceReport: Sendable, Equatable {
    package var partitionsCreated = 0
    package var partitionsDropped = 0
    package var eventKeysDeleted = 0
    package var pushesDeleted = 0
    package var auditDeleted = 0
    package var erasuresFinished = 0
}

/// Keeps what grows within its bounds. Any replica may call it at any time, as often as it likes.
package struct Maintenance: Sendable {
    let database: Database

    private static let batch = 1000

    /// What clocks may differ by, of two machines that both know what day it is.
    private static let plausibleDifference: Int64 = 86_400_000

    /// One round by Postgres' clock. Age decides over what cannot be had back, and one machine may
    /// have a wrong year: where its clock and Postgres' do not agree, nothing is done.
    ///
    /// - Parameters:
    ///   - hostTime: This machine's clock.
    ///   - retention: How long what is kept.
    ///   - batches: At most so many of each kind.
    /// - Returns: What was done.
    /// - Throws: `StorageError` of kind `clocksDisagree`.
    package func maintain(
        hostTime: Instant,
        retention: Retention = Retention(),
        batches: Int = 20
    ) async throws -> MaintenanceReport {
        let answer = try await database.execute("SELECT clock_timestamp() AS now")
        guard let now = try answer.first?.instant("now"),
            abs(now.milliseconds - hostTime.milliseconds) < Self.plausibleDifference
        else { throw StorageError.clocksDisagree }
        return try await maintain(now: now, retention: retention, batches: batches)
    }

    /// One round: partitions for the days to come, none for those that are over, at most `batches`
    /// small batches of old keys and pushes, and as many erasures that were cut short.
    package func maintain(
        now: Instant,
        retention: Retention = Retention(),
        batches: Int = 20
    ) async throws -> MaintenanceReport {
        var report = MaintenanceReport()
        try await turnDays(now: now, retention, &report)
        _ = try await delete(
            """
            DELETE FROM deliveries_default WHERE (day, push_id, target) IN (
                SELECT day, push_id, target FROM deliveries_default
                WHERE day < ($1::timestamptz AT TIME ZONE 'UTC')::date AND state <> \(DeliveryState.pending.sql)
                ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            olderThan: .seconds(Int64(retention.deliveryDays) * 86_400),
            now,
            batches
        )
        _ = try await delete(
            """
            DELETE FROM delivery_chunks_default WHERE ctid IN (
                SELECT ctid FROM delivery_chunks_default
                WHERE day < ($1::timestamptz AT TIME ZONE 'UTC')::date
                ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            olderThan: .seconds(Int64(retention.deliveryDays) * 86_400),
            now,
            batches
        )
        _ = try await delete(
            """
            UPDATE pushes SET deliveries = NULL WHERE id IN (
                SELECT id FROM pushes WHERE created_at < $1 AND deliveries IS NOT NULL
                ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            olderThan: .seconds(Int64(retention.deliveryDays + 1) * 86_400),
            now,
            batches
        )
        _ = try await expireHubInstallations(now: now, batches: batches)
        _ = try await delete(
            """
            DELETE FROM event_pushes_default WHERE (id, day) IN (
                SELECT id, day FROM event_pushes_default
                WHERE day < ($1::timestamptz AT TIME ZONE 'UTC')::date
                ORDER BY day LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            olderThan: .seconds(Int64(DayTable.eventPushes.days(retention)) * 86_400),
            now,
            batches
        )
        report.eventKeysDeleted = try await delete(
            """
            DELETE FROM event_keys WHERE (app, source, id) IN (
                SELECT app, source, id FROM event_keys WHERE created_at < $1
                ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            olderThan: retention.eventKeys,
            now,
            batches
        )
        report.pushesDeleted = try await delete(
            """
            DELETE FROM pushes WHERE id IN (
                SELECT id FROM pushes
                WHERE created_at < $1 AND status IN \(PushStatus.sql(where: \.isFinal))
                ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            // An event is known by its push.
            olderThan: max(retention.pushes, retention.eventKeys),
            now,
            batches
        )
        report.auditDeleted = try await delete(
            """
            DELETE FROM audit WHERE id IN (
                SELECT id FROM audit WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            olderThan: retention.audit,
            now,
            batches
        )
        _ = try await delete(
            """
            DELETE FROM retired_keys WHERE (app, kind, digest) IN (
                SELECT app, kind, digest FROM retired_keys WHERE valid_until < $1
                ORDER BY valid_until LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            olderThan: .zero,
            now,
            batches
        )
        _ = try await delete(
            """
            DELETE FROM erased_names WHERE (app, digest) IN (
                SELECT app, digest FROM erased_names WHERE at < $1
                ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            olderThan: ErasedNames.kept,
            now,
            batches
        )
        while report.erasuresFinished < batches,
            try await Erasures(database: database).finishAbandoned()
        {
            report.erasuresFinished += 1
        }
        return report
    }

    private func delete(
        _ sql: String,
        olderThan age: Duration,
        _ now: Instant,
        _ batches: Int
    ) async throws -> Int {
        let limit = now.adding(milliseconds: -Int64(age / .milliseconds(1)))
        var deleted = 0
        for _ in 0..<max(1, batches) {
            let count = try await database.execute(
                sql,
                [.timestamp(limit.microseconds), .integer(Self.batch)]
            ).affectedRows
            deleted += count
            if count < Self.batch { break }
        }
        return deleted
    }

    /// How long a lock is waited for: as long waits what comes after it. Then it is tried again, a few
    /// times.
    private static let lockTimeout = "50ms"
    private static let lockAttempts = 10

    /// Runs what only one replica may do at a time; `nil` where another is at it, or where the
    /// tables are too busy just now: the next round tries again.
    func locked<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value? {
        for attempt in 1...Self.lockAttempts {
            do {
                return try await lockedOnce(body)
            } catch let error as StorageError where error.sqlState == "55P03" {
                guard attempt < Self.lockAttempts else { break }
                try await Task.sleep(for: .milliseconds(100) * Double.random(in: 1...3))
            }
        }
        return nil
    }

    private func lockedOnce<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value? {
        try await database.transaction { transaction in
            let lock = try await transaction.execute(
                """
                SELECT pg_try_advisory_xact_lock(
                    hashtextextended('carillon maintenance ' || current_schema(), 0)) AS mine
                """
            )
            guard try lock.first?.boolean("mine") == true else { return nil }
            _ = try await transaction.execute(
                "SET LOCAL lock_timeout = '\(Self.lockTimeout)'"
            )
            return try await body(transaction)
        }
    }
}
