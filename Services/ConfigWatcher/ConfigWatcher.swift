import ConfigStorage
import EventLoop
import Gateway
import HTTPServer
import Kafka
import Observability
import PushEvents
import RemoteConfig
import ServiceKit
import ServiceShell
import Storage

/// Stores templates of remote config, answers the clients that fetch them, and notifies the other
/// clients that their copies are stale.
///
/// Flow: `FirebaseSurface` → `PushDatabase` (a version with its outbox row) → `OutboxRelay` → Kafka's
/// `config.published` → the watcher → `PUSH_RC`. Clients are answered from `TemplateCache`, and notified by
/// `ConfigStreams`.
@main
struct ConfigWatcher: HTTPServiceProgram {
    typealias Own = ConfigWatcherConfiguration

    static let name = "config-watcher"
    static let about = "remote config: templates, fetches, and the word that a copy is stale"
    static let port = 8082
    /// Each listening client holds one connection.
    static let maximumConnections = 65_536

    static func main() async { await run() }

    static func contents(
        of service: HTTPService<ConfigWatcher>
    ) throws -> HTTPServiceContents {
        let limits = FetchLimits()
        let outbox = try service.outbox()
        let source = try RecordSource(
            .configWatcher,
            under: service.configuration.own.groupID,
            service.configuration.common,
            maximumBatch: 500,
            in: service.runtime
        )
        return HTTPServiceContents(
            openAPI: FirebaseSurface.openAPI,
            loops: service.loops.map { configLoop($0, limits, service) },
            jobs: outbox.parts + watcher(service, source, outbox.producer),
            consumers: [source.consumer]
        )
    }
}

/// Creates the parts that receive publishes of any system and announce them.
private func watcher(
    _ service: HTTPService<ConfigWatcher>,
    _ source: RecordSource,
    _ producer: KafkaProducer
) -> [any ServicePart] {
    let (own, database, runtime) = (service.configuration.own, service.database, service.runtime)
    let topics = service.configuration.common.topics
    return [
        ConfigAnnouncer(
            database: database,
            topics: topics,
            coalesce: own.coalesce,
            spreadSeconds: Int(own.spread.components.seconds),
            runtime: runtime
        ),
        ConfigRowChecker(database: database, topics: topics, runtime: runtime),
        configKeeping(database, own.retention, in: runtime),
        configIntake(source.consumer, producer, database, topics, in: runtime),
        source.part("kafka consumer", after: database),
    ]
}

/// Creates the parts of one loop: templates, streams, and the records of fetches.
private func configLoop(
    _ own: ServiceLoop,
    _ limits: FetchLimits,
    _ service: HTTPService<ConfigWatcher>
) -> LoopContents {
    let (loop, database) = (own.loop, own.database)
    let (log, metrics) = (service.runtime.log, service.runtime.metrics)
    let pool = FairPool(on: loop)
    let memory = TemplateCache(.postgres(database), compilingIn: pool, on: loop, log: log)
    let streams = ConfigStreams(
        { apps in
            try await database.configAnnouncements.latest(
                of: apps,
                in: ConfigNamespace.firebase.rawValue
            )
        },
        on: loop,
        open: metrics.gauge(.configStreams),
        log: log
    )
    let notes = FetchRecorder(database, on: loop, log: log)
    let surface = FirebaseSurface(
        loop: loop,
        database: database,
        topics: service.configuration.common.topics,
        memory: memory,
        streams: streams,
        limits: limits,
        notes: notes,
        metrics: ConfigMetrics(metrics),
        turns: PublishQueue(on: loop),
        fetchTurns: FairTurns(on: loop),
        pool: pool,
        stopped: StoppedConditions(metrics.counter(.configConditionsStopped), log: log)
    )
    return LoopContents(
        [surface],
        parts: [
            own.part("templates") {
                await database.listen(to: .config) { app in
                    loop.execute {
                        memory.noticed()
                        streams.noticed(app)
                    }
                }
                await loop.untilCancelled()
            },
            own.part("apps-of-streams") {
                await database.listen(to: .credentials) { app in
                    loop.execute { streams.noticed(app) }
                }
                await loop.untilCancelled()
            },
            own.part("streams") { await streams.run() },
            own.part("fetch-notes") { await notes.run() },
        ]
    )
}
