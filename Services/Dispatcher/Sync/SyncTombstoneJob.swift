import ServiceKit
import Storage
import SyncStorage

/// Deletes tombstones of records that were removed from datasets longer ago than
/// `SYNC_TOMBSTONE_RETENTION`.
func syncTombstoneJob(
    _ database: PushDatabase,
    _ retention: Duration,
    in runtime: ServiceRuntime
) -> PeriodicJob<Void> {
    PeriodicJob(
        "sync-tombstones",
        cannot: "removed records are not forgotten",
        in: runtime,
        begin: { try await database.untilReady() }
    ) {
        try await database.syncKeeping.forgetTombstones(olderThan: retention) > 0
            ? .zero : .seconds(60)
    }
}
