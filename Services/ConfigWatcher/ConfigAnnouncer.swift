import ConfigStorage
import EventLoop
import Observability
import PushEvents
import ServiceKit
import Storage

/// Announces due versions: marks each as announced and writes its record of `PUSH_RC` into the outbox, in one
/// transaction, on any replica.
///
/// Shutdown: between two rounds.
actor ConfigAnnouncer: ServicePart {
    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "config-announcer"
    nonisolated func notReadyReason() -> String? { worker.notReadyReason() }

    /// The poll interval while no notification arrives.
    private static let idleWait = Duration.seconds(1)
    private static let batch = 100

    private let database: PushDatabase
    private let topics: KafkaTopics
    private let coalesce: Duration
    private let spreadSeconds: Int
    private let announced: Counter
    private let delay: Histogram
    private nonisolated let worker: ClaimWorker

    init(
        database: PushDatabase,
        topics: KafkaTopics,
        coalesce: Duration,
        spreadSeconds: Int,
        runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        self.database = database
        self.topics = topics
        self.coalesce = coalesce
        self.spreadSeconds = spreadSeconds
        announced = runtime.metrics.counter(.configAnnouncements)
        delay = runtime.metrics.histogram(
            .configAnnouncementDelay,
            bounds: [0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30, 60, 300]
        )
        worker = ClaimWorker(
            "published versions cannot be announced",
            wokenBy: WakeUp(on: runtime.mainLoop),
            listening: { wake in
                try await database.onNotification(.configPending) { _ in wake() }
            },
            on: runtime.mainLoop,
            log: runtime.log
        )
    }

    func run() async throws {
        guard (try? await database.untilReady()) != nil else { return }
        await worker.run {
            let (topics, spread) = (topics, spreadSeconds)
            let (done, due, seconds) = try await database.configAnnouncements.announce(
                after: coalesce,
                limit: Self.batch
            ) { due in
                ConfigPublishedRecord(
                    project: due.app,
                    namespace: due.namespace,
                    version: due.version,
                    updateType: due.updateType
                )
                .announcement(spreadSeconds: spread, topics)
            }
            announced.add(done.count)
            for wait in seconds { delay.observe(wait) }
            if due == Self.batch { return .again }
            let next =
                try await database.configAnnouncements.untilNext(after: coalesce) ?? Self.idleWait
            return .sleep(atMost: min(next, Self.idleWait))
        }
    }
}
