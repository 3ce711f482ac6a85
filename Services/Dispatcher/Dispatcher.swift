import EventLoop
import PushStorage
import ServiceKit

/// Turns events into notifications and tells what became of every one of them.
///
/// Flow: `KafkaConsumer` → `EventIntake` (records become rows, or dead letters) → `DeliveryEngine`
/// (sends, announces and settles). Rows that wait come back through `DeliverySweeper`; large
/// audiences are cut into shards by `AudiencePlanner` and sent by `ShardSender`; what waits for its
/// time is released by `ScheduleReleaser`; `SessionKeeper` says whether any of it is still ours.
/// `SyncIntake` gathers changes of datasets, of which `SyncRinger` makes events.
@main
struct Dispatcher {
    static func main() async {
        await runService(
            "dispatcher",
            about: "reads push events from Kafka and sends them to APNs, FCM, WNS and MPNS",
            variables: DispatcherConfiguration.variables,
            operationsPort: DispatcherConfiguration.operationsPort,
            reading: DispatcherConfiguration.init,
            parts: makeParts
        )
    }
}

/// A part may use those before it. Shutdown runs in reverse: the consumer stops first, then what
/// claims work, then the deliveries drain, then the session hands back what is left.
func makeParts(
    _ configuration: DispatcherConfiguration,
    in runtime: ServiceRuntime
) async throws -> [any ServicePart] {
    let ground = try DispatcherGround(configuration, runtime)
    let (database, bells) = (ground.database, Bells(on: runtime.mainLoop))
    let credentials = CredentialDirectory(
        database: database,
        providers: ground.providers,
        keys: configuration.keys,
        isMPNSEnabled: configuration.isMPNSEnabled,
        log: runtime.log
    )
    let contexts = PushContexts(database: database)
    let engine = DeliveryEngine(
        database: database,
        producer: ground.producer,
        credentials: credentials,
        bells: [bells.direct, bells.broadcast],
        configuration: configuration,
        runtime: runtime
    )
    let work = DispatcherWork(
        ground: ground,
        credentials: credentials,
        contexts: contexts,
        engine: engine,
        bells: bells,
        configuration: configuration,
        runtime: runtime
    )
    let keeping: [any ServicePart] = [
        work.session,
        SessionReaper(sessions: database.sessions, runtime: runtime) { bells.ringForHandedBack() },
        HouseKeeping(database: database, retention: configuration.retention, runtime: runtime),
        InstallationKeeping(database: database, runtime: runtime),
        work.notifications,
    ]
    let sending: [any ServicePart] = [
        ground.providersPart, engine,
        StrayKeeping(database: database, engine: engine, runtime: runtime),
    ]
    // The last, so that it is the first to hear of a stop.
    let stop = Part("stop") {
        await runtime.mainLoop.untilCancelled()
        await engine.prepareToStop()
    }
    return ground.stores + keeping + sending + work.claiming
        + sync(ground, configuration, runtime) + [
            work.intake, ground.configConsumerPart, ground.consumerPart, stop,
        ]
}

/// What tells devices of changed datasets. Its pushes come back as events.
private func sync(
    _ ground: DispatcherGround,
    _ configuration: DispatcherConfiguration,
    _ runtime: ServiceRuntime
) -> [any ServicePart] {
    [
        SyncTombstones(
            database: ground.database,
            retention: configuration.tombstoneRetention,
            runtime: runtime
        ),
        SyncRinger(database: ground.database, topics: configuration.topics, runtime: runtime),
        SyncIntake(
            consumer: ground.syncConsumer,
            producer: ground.producer,
            database: ground.database,
            topics: configuration.topics,
            coalesce: configuration.syncCoalesce,
            runtime: runtime
        ),
        ground.syncConsumerPart,
    ]
}
