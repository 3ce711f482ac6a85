import Cryptography
import Observability
import PushCore
import PushEvents
import ServiceKit
import Storage
import SyncStorage

/// Notifies devices of changed datasets: ends windows that are due, and continues bulk publishes.
///
/// Authority: none beyond its transactions. Each ends windows, records for each device the changes
/// it was notified of, and stores the push. So any replica may do this, and no device is notified
/// twice.
///
/// Shutdown: between two rounds.
@DispatchLoop
final class SyncNotifier: ServicePart {
    nonisolated let name = "sync-ringer"
    private let worker: ClaimWorker
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() }

    private static let windows = 500
    private static let datasetsOfBulk = 500
    private static let roundsBetweenLooks = 20
    /// The poll interval, in case a notification was missed.
    private static let idleWait = Duration.seconds(1)
    /// The shortest sleep. If a window is due and was not ended here, another replica is ending it.
    private static let shortestWait = Duration.milliseconds(20)

    private let database: PushDatabase
    private let topics: KafkaTopics
    private let meters: Meters
    private var rounds = 0

    private struct Meters {
        let joined: Counter
        let pushed: Counter
        let suppressed: Counter
        let age: Gauge
    }

    init(database: PushDatabase, topics: KafkaTopics, runtime: ServiceRuntime) {
        self.database = database
        self.topics = topics
        meters = Meters(
            joined: runtime.metrics.counter(.syncJoined),
            pushed: runtime.metrics.counter(.syncPushed),
            suppressed: runtime.metrics.counter(.syncSuppressed),
            age: runtime.metrics.gauge(.syncWaitingAge)
        )
        worker = ClaimWorker(
            "cannot notify devices of changed datasets",
            wokenBy: WakeUp(on: runtime.mainLoop),
            listening: { wake in
                try await database.onNotification(.syncWindows) { _ in wake() }
            },
            on: runtime.mainLoop,
            log: runtime.log
        )
    }

    @DispatchLoop func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        await worker.run {
            let (topics, clock) = (topics, database.clock)
            let round = try await database.syncWindows.endDueWindows(limit: Self.windows) { end in
                SyncPush(end).records(at: clock.now(), topics, digest: sha256)
            }
            meters.joined.add(round.joined)
            meters.pushed.add(round.pushed)
            meters.suppressed.add(round.suppressed)
            let ofBulk = try await database.syncWindows.resumeBulk(
                limit: Self.datasetsOfBulk
            ) { end in
                SyncPush(end).records(at: clock.now(), topics, digest: sha256)
            }
            if let ofBulk { meters.pushed.add(ofBulk) }
            let isMore = ofBulk != nil || round.windows == Self.windows
            rounds += 1
            // This query is expensive: it reads all waiting windows.
            if !isMore || rounds.isMultiple(of: Self.roundsBetweenLooks) {
                meters.age.set(Int(try await database.syncWindows.age().rounded()))
            }
            if isMore { return .again }
            let next = try await database.syncWindows.untilNext() ?? Self.idleWait
            return .sleep(atMost: min(max(next, Self.shortestWait), Self.idleWait))
        }
    }
}

extension SyncPush {
    init(_ end: SyncWindowStore.WindowEnd) {
        self.init(
            app: end.app,
            pool: end.pool,
            identity: end.identity,
            dataset: end.dataset,
            syncCount: end.syncCount,
            installations: end.installations,
            apnsTopic: end.apnsTopic,
            bulkStartedAt: end.bulkStartedAt
        )
    }
}
