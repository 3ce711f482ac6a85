import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

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
            guard let session = engine.session.working else { continue }
            do {
                try await giveBackPlans(session)
                guard engine.inHand.isLookWanted else { continue }
                let owned = try await database.due.owned(session: session)
                guard engine.session.isCurrent(session) else { continue }
                let strays = engine.inHand.strays(among: Set(owned.map(\.key)))
                guard !strays.isEmpty else { continue }
                let now = database.clock.now()
                let results = try await database.ledger.write(
                    owned.filter { strays.contains($0.key) }.map { delivery in
                        let end = DeliveryEnd(.release(at: now), of: delivery, at: now)
                        return .row(DeliveryRecord(delivery, end))
                    },
                    session: session
                )
                runtime.log.warning(
                    "deliveries that nobody worked on go back",
                    [.count: .integer(results.count { $0 == .written })]
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
        guard engine.session.isCurrent(session) else { return }
        let strays = engine.inHand.strayPlans(among: claimed)
        guard !strays.isEmpty else { return }
        let returned = try await database.planning.giveBack(session: session, strays)
        runtime.log.warning("pushes that nobody planned go back", [.count: .integer(returned)])
    }
}
