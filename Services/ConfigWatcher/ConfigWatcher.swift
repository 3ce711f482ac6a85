import Door
import EventLoop
import HTTPServer
import Kafka
import Observability
import Outbox
import PushEvents
import PushStorage
import ServiceKit

/// Keeps templates of remote config, answers the clients that fetch them, and tells the others that
/// their copy is stale.
///
/// Flow: `FirebaseSurface` → `PushDatabase` (a version with its outbox row) → `OutboxRelay` → Kafka's
/// `config.published` → the watcher → `PUSH_RC`. Clients are answered from `ConfigMemory`, and told by
/// `ConfigStreams`.
@main
struct ConfigWatcher {
    static func main() async {
        await runService(
            "config-watcher",
            about: "remote config: templates, fetches, and the word that a copy is stale",
            variables: ConfigWatcherConfiguration.variables,
            loops: .perCore,
            reading: ConfigWatcherConfiguration.init,
            parts: makeParts
        )
    }
}

/// Each loop answers for its connections from rooms of its own; the relay lives on the first.
func makeParts(
    _ configuration: ConfigWatcherConfiguration,
    in runtime: ServiceRuntime
) throws -> [any ServicePart] {
    let rooms = LoopRooms.make(
        configuration.database,
        keys: configuration.masterKeys,
        limits: configuration.limits,
        in: runtime
    )
    let fetchLimits = FetchLimits()
    let loops = rooms.enumerated().map { number, rooms in
        ConfigLoop(number, rooms, limits: fetchLimits, configuration, runtime)
    }
    let server = try SurfaceServer(configuration.http, rooms, in: runtime) { rooms in
        loops.filter { $0.loop === rooms.loop }.flatMap(\.surfaces)
    }
    let producer = try KafkaProducer(
        configuration.kafka,
        deliveryTimeout: OutboxRelay.deliveryTimeout,
        on: runtime.mainLoop,
        log: runtime.log,
        metrics: runtime.metrics
    )
    let relay = OutboxRelay(
        from: rooms[0].database,
        to: producer,
        on: runtime.mainLoop,
        log: runtime.log,
        metrics: runtime.metrics
    )
    let answering: [any ServicePart] = rooms.flatMap(\.parts) + loops.flatMap(\.parts)
    return answering + [server, Part("producer", run: { try await producer.run() }), relay]
        + (try watcher(configuration, rooms[0].database, producer, runtime))
}

/// What hears of publishes and announces them, whoever published.
private func watcher(
    _ configuration: ConfigWatcherConfiguration,
    _ database: PushDatabase,
    _ producer: KafkaProducer,
    _ runtime: ServiceRuntime
) throws -> [any ServicePart] {
    let topics = configuration.topics
    let consumer = try KafkaConsumer(
        configuration.kafka,
        group: configuration.groupID,
        topics: KafkaTopicReader.configWatcher.kafkaTopics(of: topics),
        maximumBatch: 500,
        on: runtime.mainLoop,
        log: runtime.log,
        metrics: runtime.metrics
    )
    return [
        ConfigAnnouncer(
            database: database,
            topics: topics,
            coalesce: configuration.coalesce,
            spreadSeconds: Int(configuration.spread.components.seconds),
            runtime: runtime
        ),
        ConfigRowChecker(database: database, topics: topics, runtime: runtime),
        ConfigKeeping(database: database, retention: configuration.retention, runtime: runtime),
        ConfigIntake(
            consumer: consumer,
            producer: producer,
            database: database,
            topics: topics,
            runtime: runtime
        ),
        Part("kafka consumer", notReady: consumer.notReadyReason) {
            try await database.untilReady()
            try await consumer.run()
        },
    ]
}
