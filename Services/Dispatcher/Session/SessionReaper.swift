import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// Takes over what dispatchers left that are dead, or stopped for longer than their lease.
///
/// Apart from the heartbeat, which it must never delay: what was left may be much, and locked.
///
/// Authority: none; what it ends and gives back is so in the table, and every replica does it.
///
/// Shutdown: between two portions.
struct SessionReaper: ServicePart {
    let name = "session reaper"
    let sessions: SessionStore
    let runtime: ServiceRuntime
    let onTakeOver: @Sendable () -> Void

    private static let wait: Duration = .seconds(2)
    /// Of what is found without its session there is next to none, and finding it costs more.
    private static let roundsBetweenSearches = 15

    func run() async throws {
        /// Ended, and not all that they owned could be given back yet.
        var left: Set<Int> = []
        var round = 0
        while !Task.isCancelled {
            do {
                let ended = try await sessions.endExpired()
                left.formUnion(ended)
                if round % Self.roundsBetweenSearches == 0 {
                    left.formUnion(try await sessions.orphaners())
                }
                round += 1
                try await release(&left, ended: ended.count)
            } catch {
                if Task.isCancelled { return }
                runtime.log.debug("nothing can be taken over", [.error: .string("\(error)")])
            }
            try? await runtime.mainLoop.sleep(for: Self.wait)
        }
    }

    private func release(_ left: inout Set<Int>, ended: Int) async throws {
        guard !left.isEmpty else { return }
        let released = try await sessions.release(left.sorted())
        if released.isAll { left = [] }
        guard ended > 0 || released.deliveries > 0 else { return }
        runtime.log.warning(
            "took over from a dispatcher whose lease was over",
            [.count: .integer(released.deliveries)]
        )
        onTakeOver()
    }
}
