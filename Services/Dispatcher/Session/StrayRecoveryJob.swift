import Observability
import PushCore
import PushStorage
import ServiceKit
import Storage

/// Looks for strays if there is reason to, and releases them, uncounted. The session's end releases
/// any that are left.
func strayRecoveryJob(
    _ database: PushDatabase,
    _ engine: DeliveryEngine,
    in runtime: ServiceRuntime
) -> PeriodicJob<Void> {
    let log = runtime.log
    return PeriodicJob("strays", cannot: "cannot look for strays", in: runtime) {
        @DispatchLoop in
        guard let session = engine.session.working else { return .seconds(2) }
        try await giveBackPlans(database, engine, session: session, log)
        guard engine.inHand.isLookWanted else { return .seconds(2) }
        let owned = try await database.due.owned(session: session)
        guard engine.session.isCurrent(session) else { return .seconds(2) }
        let strays = engine.inHand.strays(among: Set(owned.map(\.key)))
        guard !strays.isEmpty else { return .seconds(2) }
        let now = database.clock.now()
        let results = try await database.ledger.write(
            owned.filter { strays.contains($0.key) }.map { delivery in
                let end = DeliveryEnd(.release(at: now), of: delivery, at: now)
                return .row(DeliveryRecord(delivery, end))
            },
            session: session
        )
        log.warning(
            "released stray deliveries",
            [.count: .integer(results.count { $0 == .written })]
        )
        return .seconds(2)
    }
}

/// Releases stray plans. It always looks for them, as there are very few: if the reply to a claim
/// of a push was lost, or a failure could not be stored, nothing else shows it.
@DispatchLoop
private func giveBackPlans(
    _ database: PushDatabase,
    _ engine: DeliveryEngine,
    session: Int,
    _ log: Log
) async throws {
    let claimed = try await database.planning.held(session: session)
    guard engine.session.isCurrent(session) else { return }
    let strays = engine.inHand.strayPlans(among: claimed)
    guard !strays.isEmpty else { return }
    let returned = try await database.planning.giveBack(session: session, strays)
    log.warning("released stray plans", [.count: .integer(returned)])
}
