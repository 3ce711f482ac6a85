import EventLoop
import Observability
import PushStorage
import ServiceKit

/// Forgets records of datasets that were removed long ago. Every replica does it; what one has in hand
/// the others leave.
///
/// Shutdown: between two portions.
struct SyncTombstones: ServicePart {
    let name = "sync-tombstones"
    let database: PushDatabase
    /// `SYNC_TOMBSTONE_RETENTION`.
    let retention: Duration
    let runtime: ServiceRuntime

    private static let wait = Duration.seconds(60)

    func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        var pause = Pause()
        while !Task.isCancelled {
            do {
                while !Task.isCancelled,
                    try await database.syncKeeping.forgetTombstones(olderThan: retention) > 0
                {}
                pause = Pause()
                try? await runtime.mainLoop.sleep(for: Self.wait)
            } catch {
                if Task.isCancelled { return }
                runtime.log.warning(
                    "removed records are not forgotten",
                    [.error: .string("\(error)")]
                )
                await pause.wait(on: runtime.mainLoop)
            }
        }
    }
}
