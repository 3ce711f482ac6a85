import Apps
package import Cryptography
package import EventLoop
import Observability
package import PushStorage
package import ServiceKit

/// What one loop of a service owns to answer its callers: its database, the apps as it remembers
/// them, the audit trail and the door. Nothing of it is shared with other loops, but what an app's own
/// settings allow it a minute.
package struct LoopRooms: Sendable {
    package let loop: EventLoop
    package let database: PushDatabase
    package let door: RequestGuard
    /// In the order of their dependence. What is answered needs the database, and leaves its trail, so
    /// the listener stands behind them.
    package let parts: [any ServicePart]

    /// One for each loop of the service. `staleLifetime` is for how long an app is known while the
    /// database is away.
    package static func make(
        _ configuration: DatabaseConfiguration,
        keys: KeyRing,
        limits: RateLimits,
        appsKnownFor staleLifetime: Duration = .zero,
        in runtime: ServiceRuntime
    ) -> [LoopRooms] {
        let appLimits = AppLimits()
        return runtime.loops.enumerated().map { number, loop in
            LoopRooms(
                configuration,
                keys,
                limits,
                appLimits,
                staleLifetime,
                number: number,
                loop,
                runtime
            )
        }
    }

    private init(
        _ configuration: DatabaseConfiguration,
        _ keys: KeyRing,
        _ limits: RateLimits,
        _ appLimits: AppLimits,
        _ staleLifetime: Duration,
        number: Int,
        _ loop: EventLoop,
        _ runtime: ServiceRuntime
    ) {
        let (log, metrics) = (runtime.log, runtime.metrics)
        let database = PushDatabase(
            configuration,
            keys: keys,
            on: loop,
            log: log,
            metrics: metrics
        )
        let apps = AppDirectory(database, keys: keys, staleLifetime: staleLifetime, on: loop)
        let trail = AuditTrail("audit-\(number)", database, on: loop, log: log, metrics: metrics)
        let patience = Patience(staleLifetime)
        self.loop = loop
        self.database = database
        door = RequestGuard(
            RequestLimits(apps, limits, appLimits: appLimits, metrics: metrics),
            audit: trail
        )
        parts = [
            Part(
                "database-\(number)",
                notReady: {
                    staleLifetime > .zero
                        ? patience.reason(database.notReadyReason()) : database.notReadyReason()
                },
                warning: database.warning,
                endedBy: SchemaTooNew.self
            ) { try await database.run() },
            Part("apps-\(number)", run: { try await apps.run() }),
            trail,
        ]
    }
}

/// Of a service that goes on for a while without its database: whether that while is over.
private final class Patience: Sendable {
    private let limit: Duration
    private let lock = Lock()
    nonisolated(unsafe) private var lastReadyAt: ContinuousClock.Instant?

    init(_ limit: Duration) { self.limit = limit }

    /// - Returns: What is in the way, where it was never out of it or has been for too long.
    func reason(_ reason: String?) -> String? {
        lock.withLock {
            let now = ContinuousClock.now
            guard let reason else {
                unsafe lastReadyAt = now
                return nil
            }
            guard let last = unsafe lastReadyAt, now - last < limit else { return reason }
            return nil
        }
    }
}
