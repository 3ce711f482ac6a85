import Apps
package import EventLoop
import Gateway
import Observability
package import ServiceKit
package import Storage

/// The resources of one HTTP loop: database, app cache, audit trail and request guard. Loops share
/// only the per-minute limits of apps.
package struct ServiceLoop: Sendable {
    /// 0 for the main loop.
    package let number: Int
    package let loop: EventLoop
    package let database: PushDatabase
    let requestGuard: RequestGuard
    /// The parts in the order of their dependence. Responses need the database, and leave audit
    /// entries, so the listener comes after them.
    let parts: [any ServicePart]

    /// Makes the loop's resources; `staleLifetime` is how long a cached app counts while the
    /// database is unavailable.
    init(
        _ number: Int,
        _ loop: EventLoop,
        _ configuration: CommonConfiguration,
        _ limits: RateLimits,
        _ appLimits: AppLimits,
        appsKnownFor staleLifetime: Duration,
        _ runtime: ServiceRuntime
    ) {
        let (log, metrics, keys) = (runtime.log, runtime.metrics, configuration.keys)
        let database = PushDatabase(
            configuration.database,
            keys: keys,
            on: loop,
            log: log,
            metrics: metrics
        )
        let apps = AppCache(database, keys: keys, staleLifetime: staleLifetime, on: loop)
        let trail = AuditTrail("audit-\(number)", database, on: loop, log: log, metrics: metrics)
        let tolerance = OutageTolerance(staleLifetime)
        self.number = number
        self.loop = loop
        self.database = database
        requestGuard = RequestGuard(
            RequestLimits(apps, limits, appLimits: appLimits, metrics: metrics),
            audit: trail
        )
        parts = [
            ClosurePart(
                "database-\(number)",
                notReady: {
                    staleLifetime > .zero
                        ? tolerance.reason(database.notReadyReason()) : database.notReadyReason()
                },
                warning: database.warning,
                endedBy: SchemaTooNew.self
            ) { try await database.run() },
            ClosurePart("apps-\(number)", run: { try await apps.run() }),
            trail,
        ]
    }

    /// Makes a part that runs on this loop, as the service's own tasks run on its first.
    ///
    /// - Parameters:
    ///   - name: Without the loop's number.
    ///   - run: Ends when its task is cancelled.
    /// - Returns: The part.
    package func part(_ name: String, run: @escaping @Sendable () async -> Void) -> ClosurePart {
        let loop = loop
        return ClosurePart("\(name)-\(number)") {
            let running = Task(executorPreference: loop) { await run() }
            await withTaskCancellationHandler {
                await running.value
            } onCancel: {
                running.cancel()
            }
        }
    }
}

/// Tracks how long a service has been without its database, and when that makes it not ready.
private final class OutageTolerance: Sendable {
    private let limit: Duration
    private let lock = Lock()
    nonisolated(unsafe) private var lastReadyAt: ContinuousClock.Instant?

    init(_ limit: Duration) { self.limit = limit }

    /// - Returns: The reason, if it was never ready or has not been for too long.
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
