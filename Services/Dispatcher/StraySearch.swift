import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// What is this session's and in nobody's hands, be it rows or pushes in planning: the transaction
/// that made them ours was committed, and its answer was lost. Pure: no clock, no I/O.
struct StraySearch<Key: Hashable & Sendable>: Sendable {
    /// Whether there is reason to look.
    var isWanted = false
    private var suspects: Set<Key> = []

    /// One look at the table. One counts as a stray when two looks in a row found it in nobody's
    /// hands: between a commit and its answer that is as it should be.
    ///
    /// - Returns: Those to hand back.
    mutating func look(owned: Set<Key>, inHand: Set<Key>) -> Set<Key> {
        let idle = owned.subtracting(inHand)
        let strays = idle.intersection(suspects)
        suspects = idle.subtracting(strays)
        isWanted = !suspects.isEmpty
        return strays
    }
}

/// Looks for strays where there is reason to, and hands them back, uncounted.
///
/// Shutdown: between two looks; the session's end hands back the rest.
struct StrayKeeping: ServicePart {
    let name = "strays"
    let database: PushDatabase
    let engine: DeliveryEngine
    let runtime: ServiceRuntime

    private static let wait: Duration = .seconds(2)

    func run() async throws {
        while !Task.isCancelled {
            try? await runtime.mainLoop.sleep(for: Self.wait)
            guard let session = await engine.workingSession else { continue }
            do {
                try await giveBackPlans(session)
                guard await engine.strays.isWanted else { continue }
                let owned = try await database.due.owned(session: session)
                let strays = await engine.strays(among: Set(owned.map(\.key)), session: session)
                guard !strays.isEmpty else { continue }
                let now = Instant.now()
                let returned = try await database.recording.postpone(
                    session: session,
                    owned.filter { strays.contains($0.key) }.map { delivery in
                        PostponedDelivery(
                            key: delivery.key,
                            attempts: delivery.attempts,
                            unanswered: delivery.unanswered,
                            dueAt: now
                        )
                    }
                )
                runtime.log.warning(
                    "deliveries that nobody worked on go back",
                    [.count: .integer(returned)]
                )
            } catch {
                runtime.log.debug("strays cannot be looked for", [.error: .string("\(error)")])
            }
        }
    }

    /// A claim of a push leaves no other trace where its answer is lost, nor does the end of one that
    /// could not be written down, so these are always looked for: there are next to none.
    private func giveBackPlans(_ session: Int) async throws {
        let claimed = try await database.planning.held(session: session)
        let strays = await engine.strayPlans(among: claimed, session: session)
        guard !strays.isEmpty else { return }
        let returned = try await database.planning.giveBack(session: session, strays)
        runtime.log.warning("pushes that nobody planned go back", [.count: .integer(returned)])
    }
}

extension DeliveryEngine {
    func strays(among owned: Set<DeliveryKey>, session: Int) -> Set<DeliveryKey> {
        guard isCurrent(session) else { return [] }
        return strays.look(owned: owned, inHand: inHand)
    }

    /// On the loop: a planner works on this push from now on.
    nonisolated func begins(planning pushID: String) {
        assumeIsolated { _ = $0.planning.insert(pushID) }
    }

    /// On the loop.
    nonisolated func ends(planning pushID: String) {
        assumeIsolated { _ = $0.planning.remove(pushID) }
    }

    func strayPlans(among claimed: Set<String>, session: Int) -> Set<String> {
        guard isCurrent(session) else { return [] }
        return strayPlans.look(owned: claimed, inHand: planning)
    }
}
