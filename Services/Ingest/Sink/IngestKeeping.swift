import IngestStorage
import Observability
import PushCore
import ServiceKit
import Storage

/// Creates the partitions of the next days for devices' objects, and deletes expired data: objects after
/// their type's retention, ids and reports after theirs. One replica at a time.
func ingestKeeping(
    _ database: PushDatabase,
    _ retention: IngestRetention,
    in runtime: ServiceRuntime
) -> PeriodicJob<Void> {
    let log = runtime.log
    return PeriodicJob(
        "ingest-keeping",
        cannot: "nothing old of what devices sent is dropped",
        in: runtime,
        begin: { try await database.untilReady() }
    ) {
        let report = try await database.ingestUpkeep.maintain(
            hostTime: .now(),
            retention: retention,
            batches: 100
        )
        if report.partitionsDropped + report.rowsDeleted > 0 {
            log.info(
                "deleted expired objects",
                [.count: .integer(report.partitionsDropped + report.rowsDeleted)]
            )
        }
        // After a round that may have left expired rows, the next round follows soon.
        return report.rowsDeleted >= 50_000 ? .seconds(2) : .seconds(600)
    }
}
