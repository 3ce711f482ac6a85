import ConfigStorage
import ServiceKit
import Storage

/// Deletes versions that are older than `CONFIG_RETENTION`, except current ones.
func configKeeping(
    _ database: PushDatabase,
    _ retention: Duration,
    in runtime: ServiceRuntime
) -> PeriodicJob<Void> {
    let batch = 1000
    return PeriodicJob(
        "config-keeping",
        cannot: "old versions are not deleted",
        in: runtime,
        begin: { try await database.untilReady() }
    ) {
        try await database.config.prune(olderThan: retention, limit: batch) == batch
            ? .zero : .seconds(600)
    }
}
