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

    /// Days that have their partition before they come.
    private static let daysAhead = 3
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
        for offset in -1...Self.daysAhead {
            let day = now.adding(milliseconds: Int64(offset) * 86_400_000)
            if try await createPartition(for: day) { report.partitionsCreated += 1 }
        }
        for name in try await oldPartitions(now: now, retention) {
            if try await dropPartition(name) { report.partitionsDropped += 1 }
        }
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
        _ = try await expireHubInstallations(now: now, batches: batches)
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
            olderThan: retention.pushes,
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

    /// - Returns: Whether this call made it.
    private func createPartition(for time: Instant) async throws -> Bool {
        let day = time.day
        let next = time.adding(milliseconds: 86_400_000).day
        let name = "deliveries_" + day.split(separator: "-").joined()
        return try await locked { transaction in
            let known = try await transaction.execute(
                "SELECT to_regclass($1) IS NOT NULL AS known",
                [.text(name)]
            )
            guard try known.first?.boolean("known") != true else { return false }
            // A day that has rows in the default partition stays there: moving them would lock
            // what is being sent.
            let strays = try await transaction.execute(
                "SELECT EXISTS (SELECT FROM deliveries_default WHERE day = $1) AS strays",
                [.text(day)]
            )
            guard try strays.first?.boolean("strays") != true else { return false }
            for statement in [
                "CREATE TABLE \(name) (LIKE deliveries INCLUDING ALL)",
                """
                ALTER TABLE deliveries ATTACH PARTITION \(name)
                    FOR VALUES FROM ('\(day)') TO ('\(next)')
                """,
            ] {
                try await transaction.script(statement)
            }
            return true
        } ?? false
    }

    private func oldPartitions(now: Instant, _ retention: Retention) async throws -> [String] {
        let limit = now.adding(milliseconds: -Int64(retention.deliveryDays) * 86_400_000)
        let oldest = "deliveries_" + limit.day.split(separator: "-").joined()
        return try await database.execute(
            """
            SELECT c.relname::text AS name FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
            WHERE i.inhparent = 'deliveries'::regclass AND c.relname ~ '^deliveries_[0-9]{8}$'
                AND c.relname::text < $1 ORDER BY 1
            """,
            [.text(oldest)]
        ).rows.map { try $0.text("name") }
    }

    /// A partition that still has something pending stays until that is settled, for the books.
    private func dropPartition(_ name: String) async throws -> Bool {
        try await locked { transaction in
            let known = try await transaction.execute(
                "SELECT to_regclass($1) IS NOT NULL AS known",
                [.text(name)]
            )
            guard try known.first?.boolean("known") == true else { return false }
            let open = try await transaction.execute(
                """
                SELECT EXISTS (SELECT FROM \(quotedIdentifier(name)) WHERE state = \(DeliveryState.pending.sql))
                    OR EXISTS (SELECT FROM shards
                        WHERE NOT finished AND day = to_date(right($1, 8), 'YYYYMMDD')) AS open
                """,
                [.text(name)]
            )
            guard try open.first?.boolean("open") != true else { return false }
            try await transaction.script("DROP TABLE \(quotedIdentifier(name))")
            return true
        } ?? false
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

    /// Runs what only one replica may do at a time; `nil` where another is at it, or where the
    /// tables are too busy just now: the next round tries again.
    private func locked<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value? {
        do {
            return try await database.transaction { transaction in
                let lock = try await transaction.execute(
                    """
                    SELECT pg_try_advisory_xact_lock(
                        hashtextextended('carillon maintenance ' || current_schema(), 0)) AS mine
                    """
                )
                guard try lock.first?.boolean("mine") == true else { return nil }
                _ = try await transaction.execute("SET LOCAL lock_timeout = '2s'")
                return try await body(transaction)
            }
        } catch let error as StorageError where error.sqlState == "55P03" {
            return nil
        }
    }
}
