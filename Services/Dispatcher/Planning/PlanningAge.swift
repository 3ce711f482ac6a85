import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit
import Storage

/// Measures how long the oldest push has waited for its audience to be planned. Each replica queries
/// and reports it.
///
/// Shutdown: between two queries.
struct PlanningAge: ServicePart {
    let name = "planning"
    private let database: PushDatabase
    private let runtime: ServiceRuntime
    private let seconds: Gauge

    private static let wait: Duration = .seconds(5)

    init(database: PushDatabase, runtime: ServiceRuntime) {
        self.database = database
        self.runtime = runtime
        seconds = runtime.metrics.gauge(.pushPlanningAge)
    }

    func warning() -> String? {
        let seconds = seconds.value
        return Duration.seconds(seconds) > PlanningStore.longestWait
            ? "the oldest push that waits to be planned is \(seconds) s old" : nil
    }

    func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        while !Task.isCancelled {
            do {
                let age = try await database.planning.oldestAge() ?? .zero
                seconds.set(Int(age.components.seconds))
            } catch {
                runtime.log.warning(
                    "the oldest push in planning cannot be looked for",
                    [.error: .string("\(error)")]
                )
            }
            try? await runtime.mainLoop.sleep(for: Self.wait)
        }
    }
}
