import Postgres
package import PushCore

/// How long things that devices have sent are kept; their objects as their types say.
package struct IngestRetention: Sendable, Equatable {
    /// `INGEST_KEY_RETENTION`.
    package var keys: Duration
    /// `PUSH_RETENTION`.
    package var receipts: Duration

    package init(
        keys: Duration = .seconds(30 * 86_400),
        receipts: Duration = .seconds(90 * 86_400)
    ) {
        self.keys = keys
        self.receipts = receipts
    }
}

/// What one round did.
package struct IngestUpkeepReport: Sendable, Equatable {
    package var partitionsCreated = 0
    package var partitionsDropped = 0
    package var rowsDeleted = 0
}

/// Keeps the sink's tables within their bounds. Any replica may call it at any time.
package struct IngestUpkeep: Sendable {
    let database: Database

    private static let batch = 1000

    /// One round by Postgres' clock, as `Maintenance` has it.
    ///
    /// - Parameters:
    ///   - hostTime: This machine's clock.
    ///   - retention: How long what is kept.
    ///   - batches: At most so many of each kind.
    /// - Returns: What was done.
    /// - Throws: `StorageError`, of kind `clocksDisagree` where nothing was done for that.
    package func maintain(
        hostTime: Instant,
        retention: IngestRetention = IngestRetention(),
        batches: Int = 20
    ) async throws -> IngestUpkeepReport {
        try await maintain(
            now: try await agreed(hostTime),
            retention: retention,
            batches: batches
        )
    }

    package func maintain(
        now: Instant,
        retention: IngestRetention = IngestRetention(),
        batches: Int = 20
    ) async throws -> IngestUpkeepReport {
        var report = IngestUpkeepReport()
        try await turnDays(now: now, &report)
        for table in try await tables() {
            guard let days = table.days else { continue }
            let limit = now.adding(milliseconds: -Int64(days) * IngestTable.day)
            try await drop(table.table, before: limit, batches, &report)
        }
        report.rowsDeleted += try await delete(
            from: "ingest_keys",
            by: "stored_at",
            before: now.adding(milliseconds: -retention.keys.wholeMilliseconds),
            batches
        )
        report.rowsDeleted += try await delete(
            from: "push_receipts",
            by: "at",
            before: now.adding(milliseconds: -retention.receipts.wholeMilliseconds),
            batches
        )
        return report
    }

    /// Partitions for the days to come, by Postgres' clock.
    package func turnDays(hostTime: Instant) async throws -> IngestUpkeepReport {
        var report = IngestUpkeepReport()
        try await turnDays(now: try await agreed(hostTime), &report)
        return report
    }

    private func agreed(_ hostTime: Instant) async throws -> Instant {
        let answer = try await database.execute("SELECT clock_timestamp() AS now")
        guard let now = try answer.first?.instant("now"),
            abs(now.milliseconds - hostTime.milliseconds) < IngestTable.day
        else { throw StorageError.clocksDisagree }
        return now
    }

    private func turnDays(now: Instant, _ report: inout IngestUpkeepReport) async throws {
        let maintenance = Maintenance(database: database)
        for item in try await tables() {
            report.partitionsCreated +=
                try await maintenance.locked { transaction in
                    try await item.table.makeDays(around: now, transaction)
                } ?? 0
        }
    }

    private func tables() async throws -> [(table: IngestTable, days: Int?)] {
        try await database.execute(
            "SELECT number, retention_days FROM ingest_types ORDER BY number"
        ).rows.map {
            (
                IngestTable(number: try $0.integer("number")),
                try $0.integerOrNil("retention_days")
            )
        }
    }

    /// The days before that of a time.
    private func drop(
        _ table: IngestTable,
        before limit: Instant,
        _ batches: Int,
        _ report: inout IngestUpkeepReport
    ) async throws {
        let oldest = table.partition(of: limit)
        for name in try await table.partitions(in: database)
        where name != table.strays && name < oldest {
            let dropped = try await Maintenance(database: database).locked { transaction in
                try await transaction.script("DROP TABLE IF EXISTS \(quotedIdentifier(name))")
                return true
            }
            if dropped == true { report.partitionsDropped += 1 }
        }
        for _ in 0..<max(1, batches) {
            let count = try await database.execute(
                """
                DELETE FROM \(table.strays) WHERE ctid IN (
                    SELECT ctid FROM \(table.strays) WHERE day < $1::date LIMIT $2
                    FOR UPDATE SKIP LOCKED)
                """,
                [.text(limit.day), .integer(Self.batch)]
            ).affectedRows
            report.rowsDeleted += count
            if count < Self.batch { break }
        }
    }

    /// Old rows lie together: of an index of ranges a few are read.
    private func delete(
        from table: String,
        by column: String,
        before limit: Instant,
        _ batches: Int
    ) async throws -> Int {
        var deleted = 0
        for _ in 0..<max(1, batches) {
            let count = try await database.transaction { transaction in
                // Else a whole table is read to find nothing in it.
                try await IndexPlan.require(transaction)
                return try await transaction.execute(
                    """
                    DELETE FROM \(table) WHERE ctid IN (
                        SELECT ctid FROM \(table) WHERE \(column) < $1 LIMIT $2
                        FOR UPDATE SKIP LOCKED)
                    """,
                    [.timestamp(limit.microseconds), .integer(Self.batch)]
                ).affectedRows
            }
            deleted += count
            if count < Self.batch { break }
        }
        return deleted
    }
}
