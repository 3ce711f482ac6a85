import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// Makes the partitions of the days to come, drops what is older than it is kept (promise 12), and
/// finishes erasures that were cut short.
/// Every replica does it; the database lets one at a time.
///
/// Shutdown: between two rounds.
struct HouseKeeping: ServicePart {
    let name = "housekeeping"
    let database: PushDatabase
    let retention: Retention
    let runtime: ServiceRuntime

    /// While a round leaves old rows behind, the next comes sooner.
    private static let busyWait: Duration = .seconds(10)
    private static let idleWait: Duration = .seconds(600)

    func run() async throws {
        var pause = Pause()
        while !Task.isCancelled {
            do {
                let report = try await database.maintenance.maintain(
                    hostTime: .now(),
                    retention: retention
                )
                pause = Pause()
                let deleted =
                    report.eventKeysDeleted + report.pushesDeleted
                    + report.auditDeleted
                if report.partitionsDropped + deleted > 0 {
                    runtime.log.info("dropped what is old", [.count: .integer(deleted)])
                }
                if report.erasuresFinished > 0 {
                    runtime.log.info(
                        "finished erasures that were cut short",
                        [.count: .integer(report.erasuresFinished)]
                    )
                }
                let wait = deleted >= 10_000 ? Self.busyWait : Self.idleWait
                try? await runtime.mainLoop.sleep(for: wait)
            } catch let error as StorageError where error.kind == .clocksDisagree {
                runtime.log.error(
                    "nothing old is dropped here",
                    [.reason: .string(error.description)]
                )
                try? await runtime.mainLoop.sleep(for: Self.idleWait)
            } catch {
                if Task.isCancelled { return }
                runtime.log.debug("maintenance failed", [.error: .string("\(error)")])
                await pause.wait(on: runtime.mainLoop)
            }
        }
    }
}
