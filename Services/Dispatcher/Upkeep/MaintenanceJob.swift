import Observability
import PushCore
import ServiceKit
import Storage
import StorageAdmin

/// Creates the partitions of the days to come, drops those past their retention (promise 12), and
/// finishes erasures that were interrupted. A lock in the database lets only one replica do this at a time.
func maintenanceJob(
    _ database: PushDatabase,
    _ retention: Retention,
    in runtime: ServiceRuntime
) -> PeriodicJob<Void> {
    let log = runtime.log
    return PeriodicJob("housekeeping", cannot: "cannot delete expired data", in: runtime) {
        let report = try await database.maintenance.maintain(
            hostTime: .now(),
            retention: retention
        )
        let deleted = report.eventKeysDeleted + report.pushesDeleted + report.auditDeleted
        if report.partitionsDropped + deleted > 0 {
            log.info("deleted expired data", [.count: .integer(deleted)])
        }
        if report.erasuresFinished > 0 {
            log.info(
                "finished interrupted erasures",
                [.count: .integer(report.erasuresFinished)]
            )
        }
        // If a round deleted many rows there may be more, so the next comes sooner.
        return deleted >= 10_000 ? .seconds(10) : .seconds(600)
    }
}
