import Postgres
package import PushCore
import Storage

/// The retention times of device data; the types of objects have their own.
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

/// The result of one round.
package struct IngestMaintenanceReport: Sendable, Equatable {
    package var partitionsCreated = 0
    package var partitionsDropped = 0
    package var rowsDeleted = 0
}

/// The maintenance of the sink's tables. Any replica may call it at any time.
package struct IngestMaintenance: Sendable {
    let database: Database

    /// Runs one round by Postgres' clock, as other maintenance does.
    ///
    /// - Parameters:
    ///   - hostTime: This machine's clock.
    ///   - retention: The retention times.
    ///   - batches: The maximum of batches of each kind.
    /// - Returns: The counts.
    /// - Throws: `StorageError`, of kind `clocksDisagree` if nothing was done for that reason.
    package func maintain(
        hostTime: Instant,
        retention: IngestRetention = IngestRetention(),
        batches: Int = 20
    ) async throws -> IngestMaintenanceReport {
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
    ) async throws -> IngestMaintenanceReport {
        var report = IngestMaintenanceReport()
        try await rotatePartitions(now: now, &report)
        for table in try await tables() {
            guard let days = table.days else { continue }
            let limit = now.adding(milliseconds: -Int64(days) * IngestTable.day)
            try await drop(table.table, before: limit, batches, &report)
        }
        for (rows, age) in Self.expiring(retention) {
            let limit = now.adding(milliseconds: -age.wholeMilliseconds)
            report.rowsDeleted +=
                try await rows.remove(before: limit, batches: batches, in: database)
        }
        return report
    }

    /// Creates the partitions of the next days, by Postgres' clock.
    package func rotatePartitions(hostTime: Instant) async throws -> IngestMaintenanceReport {
        var report = IngestMaintenanceReport()
        try await rotatePartitions(now: try await agreed(hostTime), &report)
        return report
    }

    private func agreed(_ hostTime: Instant) async throws -> Instant {
        let answer = try await database.execute("SELECT clock_timestamp() AS now")
        guard let now = try answer.first?.instant("now"),
            abs(now.milliseconds - hostTime.milliseconds) < IngestTable.day
        else { throw StorageError.clocksDisagree }
        return now
    }

    private func rotatePartitions(now: Instant, _ report: inout IngestMaintenanceReport)
        async throws
    {
        for item in try await tables() {
            report.partitionsCreated +=
                try await database.locked { transaction in
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

    /// Drops the days before that of a time.
    private func drop(
        _ table: IngestTable,
        before limit: Instant,
        _ batches: Int,
        _ report: inout IngestMaintenanceReport
    ) async throws {
        let oldest = table.partition(of: limit)
        for name in try await table.partitions(in: database)
        where name != table.strays && name < oldest {
            let dropped = try await database.locked { transaction in
                try await transaction.script("DROP TABLE IF EXISTS \(quotedIdentifier(name))")
                return true
            }
            if dropped == true { report.partitionsDropped += 1 }
        }
        report.rowsDeleted += try await Expiring(table: table.strays, key: "ctid", age: .day)
            .remove(before: limit, batches: batches, in: database)
    }

    /// Returns the tables whose rows are deleted by age, besides objects, with their retention.
    private static func expiring(_ retention: IngestRetention) -> [(Expiring, Duration)] {
        [
            (
                Expiring(table: "ingest_keys", key: "ctid", age: .ranges("stored_at")),
                retention.keys
            ),
            (
                Expiring(table: "push_receipts", key: "ctid", age: .ranges("at")),
                retention.receipts
            ),
        ]
    }
}
