import EventLoop
import Observability
import PushStorage
import ServiceKit

/// Ends the installations that were silent for as long as their app says. Every replica does it; the
/// database lets one at a time.
///
/// Shutdown: between two rounds.
struct InstallationKeeping: ServicePart {
    let name = "installations"
    let database: PushDatabase
    let runtime: ServiceRuntime

    /// A round reads one index from its beginning, and is over where that is young.
    private static let idleWait: Duration = .seconds(60)
    /// While a round leaves some behind, the next comes sooner.
    private static let busyWait: Duration = .seconds(1)

    func run() async throws {
        let silenced = runtime.metrics.counter(.installationsSilenced)
        let deleted = runtime.metrics.counter(.installationsExpired)
        var pause = Pause()
        while !Task.isCancelled {
            do {
                let report = try await database.maintenance.ageInstallations()
                pause = Pause()
                silenced.add(report.silenced)
                deleted.add(report.deleted)
                if report.silenced > 0 {
                    runtime.log.info(
                        "installations silent for long are not valid any more",
                        [.count: .integer(report.silenced)]
                    )
                }
                if report.deleted > 0 {
                    runtime.log.info(
                        "deleted installations silent for longer",
                        [.count: .integer(report.deleted)]
                    )
                }
                let wait = report.isUnfinished ? Self.busyWait : Self.idleWait
                try? await runtime.mainLoop.sleep(for: wait)
            } catch {
                if Task.isCancelled { return }
                runtime.log.warning(
                    "silent installations cannot be ended",
                    [.error: .string("\(error)")]
                )
                await pause.wait(on: runtime.mainLoop)
            }
        }
    }
}
