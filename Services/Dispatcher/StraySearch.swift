import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// Rows that are this session's and in nobody's hands: the transaction that made them ours was
/// committed, and its answer was lost. Pure: no clock, no I/O.
struct StraySearch {
    /// Whether there is reason to look.
    var isWanted = false
    private var suspects: Set<DeliveryKey> = []

    /// One look at the table. A row counts as a stray when two looks in a row found it in nobody's
    /// hands: between a commit and its answer that is as it should be.
    ///
    /// - Returns: Those to hand back.
    mutating func look(owned: Set<DeliveryKey>, inHand: Set<DeliveryKey>) -> Set<DeliveryKey> {
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
            guard let session = await engine.workingSession, await engine.strays.isWanted else {
                continue
            }
            do {
                let owned = try await database.deliveries.owned(session: session)
                let strays = await engine.strays(among: Set(owned.map(\.key)), session: session)
                guard !strays.isEmpty else { continue }
                let now = Instant.now()
                let returned = try await database.deliveries.postpone(
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
}

extension DeliveryEngine {
    func strays(among owned: Set<DeliveryKey>, session: Int) -> Set<DeliveryKey> {
        guard isCurrent(session) else { return [] }
        return strays.look(owned: owned, inHand: inHand)
    }
}
