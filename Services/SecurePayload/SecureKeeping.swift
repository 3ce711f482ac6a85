import EventLoop
import Observability
import PushStorage
import ServiceKit

/// Deletes what is over: the bytes of content within seconds, its bare row and the keys of requests
/// when nobody asks for them any more. Every replica does it; what one has in hand the others leave.
///
/// Shutdown: between two portions.
struct SecureKeeping: ServicePart {
    let name = "secure-keeping"
    let database: PushDatabase
    let figures: SecureFigures
    /// Of bare rows.
    let retention: Duration
    let keyRetention: Duration
    let runtime: ServiceRuntime

    /// Content that is over must be gone within a minute, also where one round fails.
    private static let wait = Duration.seconds(10)
    private static let portion = 200
    private static let batch = 1000
    /// Of rows and keys, which are in nobody's way.
    private static let roundsBetweenForgetting = 30

    func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        var pause = Pause()
        var round = 0
        while !Task.isCancelled {
            do {
                try await emptyAll()
                if round.isMultiple(of: Self.roundsBetweenForgetting) { try await forgetAll() }
                round += 1
                pause = Pause()
                try? await runtime.mainLoop.sleep(for: Self.wait)
            } catch {
                if Task.isCancelled { return }
                runtime.log.warning("what is over is not deleted", [.error: .string("\(error)")])
                await pause.wait(on: runtime.mainLoop)
            }
        }
    }

    private func emptyAll() async throws {
        while !Task.isCancelled {
            let emptied = try await database.securePayloads.emptyOver(limit: Self.portion)
            figures.emptied(emptied)
            if emptied.count < Self.portion { return }
        }
    }

    private func forgetAll() async throws {
        let store = database.securePayloads
        while !Task.isCancelled,
            try await store.forget(endedBefore: retention, limit: Self.batch) == Self.batch
        {}
        while !Task.isCancelled,
            try await store.forgetKeys(olderThan: keyRetention, limit: Self.batch) == Self.batch
        {}
    }
}
