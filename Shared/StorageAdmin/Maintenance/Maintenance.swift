import Postgres
package import PushCore
import PushStorage
package import Storage

/// The result of one maintenance round.
package struct MaintenanceReport: Sendable, Equatable {
    package var partitionsCreated = 0
    package var partitionsDropped = 0
    package var eventKeysDeleted = 0
    package var pushesDeleted = 0
    package var auditDeleted = 0
    package var erasuresFinished = 0
}

/// The maintenance of growing tables. Any replica may call it at any time, as often as it likes.
package struct Maintenance: Sendable {
    let database: Database

    /// The largest plausible difference of two machines' clocks that agree about the day.
    private static let plausibleDifference: Int64 = 86_400_000

    /// Runs one round by Postgres' clock. Deletion by age cannot be undone, and a machine's clock
    /// may show a wrong year. So nothing is done if that clock and Postgres' disagree.
    ///
    /// - Parameters:
    ///   - hostTime: This machine's clock.
    ///   - retention: The retention times.
    ///   - batches: The maximum of batches of each kind.
    /// - Returns: The counts.
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

    /// Runs one round: creates partitions of the next days, drops expired ones, deletes at most
    /// `batches` small batches of old keys and pushes, and finishes as many interrupted erasures.
    package func maintain(
        now: Instant,
        retention: Retention = Retention(),
        batches: Int = 20
    ) async throws -> MaintenanceReport {
        var report = MaintenanceReport()
        try await rotatePartitions(now: now, retention, &report)
        for (rows, age, figure) in Self.expiring(retention) {
            let limit = now.adding(milliseconds: -age.wholeMilliseconds)
            let removed = try await rows.remove(before: limit, batches: batches, in: database)
            if let figure { report[keyPath: figure] += removed }
        }
        _ = try await expireHubInstallations(now: now, batches: batches)
        while report.erasuresFinished < batches,
            try await ErasureStore(database: database).finishAbandoned()
        {
            report.erasuresFinished += 1
        }
        return report
    }

    /// Returns the tables whose rows are deleted by age, besides partitions: with their retention and their counter.
    private static func expiring(
        _ retention: Retention
    ) -> [(Expiring, Duration, WritableKeyPath<MaintenanceReport, Int>?)] {
        let day: Int64 = 86_400
        let deliveries = Duration.seconds(Int64(retention.deliveryDays) * day)
        let events = Duration.seconds(Int64(DayTable.eventPushes.days(retention)) * day)
        return [
            (
                Expiring(
                    table: "deliveries_default",
                    key: "day, push_id, target",
                    age: .day,
                    condition: "state <> \(DeliveryState.pending.sql)"
                ),
                deliveries, nil
            ),
            (
                Expiring(table: "delivery_chunks_default", key: "ctid", age: .day),
                deliveries, nil
            ),
            (
                Expiring(
                    table: "pushes",
                    key: "id",
                    age: .time("created_at"),
                    condition: "deliveries IS NOT NULL",
                    column: "deliveries"
                ),
                deliveries + .seconds(day), nil
            ),
            (Expiring(table: "event_pushes_default", key: "id, day", age: .day), events, nil),
            (
                Expiring(table: "event_keys", key: "app, source, id", age: .time("created_at")),
                retention.eventKeys, \.eventKeysDeleted
            ),
            (
                Expiring(
                    table: "pushes",
                    key: "id",
                    age: .time("created_at"),
                    condition: "status IN \(PushStatus.sql(where: \.isFinal))"
                ),
                // A repeated event is recognized by its push.
                max(retention.pushes, retention.eventKeys), \.pushesDeleted
            ),
            (Expiring(table: "app_opens", key: "ctid", age: .day), retention.pushes, nil),
            (
                Expiring(
                    table: "push_figures",
                    key: "ctid",
                    age: .time("at"),
                    condition: "minutes = 1 AND push_id = '\(PushFigureStore.allPushes)'"
                ),
                PushFigureStore.minuteRetention, nil
            ),
            (
                Expiring(table: "push_figures", key: "ctid", age: .time("at")),
                PushFigureStore.retention, nil
            ),
            (
                Expiring(table: "push_figure_minutes", key: "at, replica", age: .time("at")),
                PushFigureStore.retention, nil
            ),
            (
                Expiring(table: "push_drafts", key: "id", age: .time("updated_at")),
                DraftStore.retention, nil
            ),
            (
                Expiring(table: "audit", key: "id", age: .time("at")),
                retention.audit, \.auditDeleted
            ),
            // The files of imports, with their parts.
            (
                Expiring(table: "import_uploads", key: "import", age: .time("updated_at")),
                .seconds(7 * day), nil
            ),
            // Uploads that ended before their file did.
            (
                Expiring(
                    table: "imports",
                    key: "id",
                    age: .time("updated_at"),
                    condition: """
                        state = 'paused'
                        AND id IN (SELECT import FROM import_uploads WHERE NOT is_whole)
                        """
                ),
                .seconds(day), nil
            ),
            // Their reasons and rejected lines go with them.
            (
                Expiring(table: "imports", key: "id", age: .time("updated_at")),
                retention.audit, nil
            ),
            (
                Expiring(
                    table: "retired_keys",
                    key: "app, kind, digest",
                    age: .time("valid_until")
                ),
                .zero, nil
            ),
            (
                Expiring(table: "erased_names", key: "app, digest", age: .time("at")),
                ErasureFence.kept, nil
            ),
        ]
    }
}
