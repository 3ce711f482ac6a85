import Logins
import Observability
import Storage

/// The parts of Realm's surface that all loops of the process share.
struct SharedRealm: Sendable {
    let status = RealmStatus()
    private let held: HeldBytes
    private let gate: RealmGate
    private let counts: RealmSocketCounts
    private let metrics: RealmMetrics

    init(_ limits: IngestConfiguration.Realm, _ metrics: Metrics) {
        held = HeldBytes(limit: limits.maximumHeldBytes / 2)
        gate = RealmGate(limit: limits.maximumHeldBytes / 2)
        counts = RealmSocketCounts(
            maximum: limits.maximumSockets,
            ofAddress: limits.maximumSocketsOfAddress
        )
        self.metrics = RealmMetrics(metrics)
    }

    /// Makes the surface of one loop.
    func surface(
        _ intake: Intake,
        _ logins: LoginCache,
        _ database: PushDatabase
    ) -> RealmSurface {
        RealmSurface(
            intake: RealmIntake(
                intake: intake,
                gate: gate,
                counts: counts,
                held: held,
                metrics: metrics,
                status: status
            ),
            logins: logins,
            tokens: RealmTokens(database: database),
            rescue: RealmRescue(database)
        )
    }

    /// The open sockets of each app.
    var openSockets: [String: Int] { counts.openByApp }
}
