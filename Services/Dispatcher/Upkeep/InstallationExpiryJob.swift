import Observability
import ServiceKit
import Storage
import StorageAdmin

/// Expires installations that were silent for longer than their app allows. A lock in the database
/// lets only one replica do this at a time.
func installationExpiryJob(
    _ database: PushDatabase,
    in runtime: ServiceRuntime
) -> PeriodicJob<Void> {
    let silenced = runtime.metrics.counter(.installationsSilenced)
    let deleted = runtime.metrics.counter(.installationsExpired)
    let log = runtime.log
    return PeriodicJob(
        "installations",
        cannot: "cannot invalidate or delete inactive installations",
        in: runtime
    ) {
        let report = try await database.maintenance.ageInstallations()
        silenced.add(report.silenced)
        deleted.add(report.deleted)
        if report.silenced > 0 {
            log.info(
                "invalidated inactive installations",
                [.count: .integer(report.silenced)]
            )
        }
        if report.deleted > 0 {
            log.info(
                "deleted inactive installations",
                [.count: .integer(report.deleted)]
            )
        }
        // A round is cheap: it reads an index from its oldest entry to the first one that is not
        // due.
        return report.isUnfinished ? .seconds(1) : .seconds(60)
    }
}
