import EventLoop
import Observability
import PushStorage
import ServiceKit

/// Deletes versions that are older than `CONFIG_RETENTION`, but for current ones. Every replica does
/// it; what one has in hand the others leave.
///
/// Shutdown: between two rounds.
struct ConfigKeeping: ServicePart {
    let name = "config-keeping"
    let database: PushDatabase
    let retention: Duration
    let runtime: ServiceRuntime

    private static let wait = Duration.seconds(600)
    private static let batch = 1000

    func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        var pause = Pause()
        while !Task.isCancelled {
            do {
                let deleted = try await database.config.prune(
                    olderThan: retention,
                    limit: Self.batch
                )
                pause = Pause()
                if deleted == Self.batch { continue }
                try? await runtime.mainLoop.sleep(for: Self.wait)
            } catch {
                if Task.isCancelled { return }
                runtime.log.debug("old versions are not deleted", [.error: .string("\(error)")])
                await pause.wait(on: runtime.mainLoop)
            }
        }
    }
}
