import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// Makes the partitions of the days to come for what devices send, and drops what is older than it is kept:
/// objects after their type's retention, ids and reports after theirs. Every replica does it, one at a time.
///
/// Shutdown: between two rounds.
struct IngestKeeping: ServicePart {
    let name = "ingest-keeping"
    let database: PushDatabase
    let retention: IngestRetention
    let runtime: ServiceRuntime

    /// While a round leaves old rows behind, the next comes sooner.
    private static let busyWait: Duration = .seconds(2)
    private static let idleWait: Duration = .seconds(600)

    func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        var pause = Pause()
        while !Task.isCancelled {
            do {
                let report = try await database.ingestUpkeep.maintain(
                    hostTime: .now(),
                    retention: retention,
                    batches: 100
                )
                pause = Pause()
                if report.partitionsDropped + report.rowsDeleted > 0 {
                    runtime.log.info(
                        "dropped what is old of what devices sent",
                        [.count: .integer(report.partitionsDropped + report.rowsDeleted)]
                    )
                }
                let wait = report.rowsDeleted >= 50_000 ? Self.busyWait : Self.idleWait
                try? await runtime.mainLoop.sleep(for: wait)
            } catch let error as StorageError where error.kind == .clocksDisagree {
                runtime.log.error(
                    "nothing old is dropped here",
                    [.reason: .string(error.description)]
                )
                try? await runtime.mainLoop.sleep(for: Self.idleWait)
            } catch {
                if Task.isCancelled { return }
                runtime.log.debug("upkeep of objects failed", [.error: .string("\(error)")])
                await pause.wait(on: runtime.mainLoop)
            }
        }
    }
}
