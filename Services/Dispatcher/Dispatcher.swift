import EventLoop
import PushCore
import PushStorage
import ServiceKit
import ServiceShell
import Storage

/// Turns events into notifications and reports the outcome of each notification.
///
/// Flow: `KafkaConsumer` → `EventIntake` (records become rows, or dead letters) → `DeliveryEngine`
/// (sends, announces and settles). `DeliverySweeper` claims the rows that wait. `AudiencePlanner`
/// cuts large audiences into shards, which `ShardSender` sends. `ScheduleReleaser` releases pushes
/// that wait for their time. `SessionHeartbeat` renews the session that owns all these rows and
/// shards. `syncIntake` reads changes of datasets, and `SyncNotifier` makes events of them.
@main
struct Dispatcher {
    static func main() async {
        await runService(
            "dispatcher",
            about: "reads push events from Kafka and sends them to APNs, FCM, WNS and MPNS",
            variables: DispatcherConfiguration.variables,
            operationsPort: DispatcherConfiguration.operationsPort,
            reading: DispatcherConfiguration.init,
            parts: { configuration, runtime in
                DispatchLoop.adopt(runtime.mainLoop)
                return try await makeParts(configuration, in: runtime)
            }
        )
    }
}

/// Makes the parts; each may use the parts before it. Shutdown runs in reverse: the consumers stop
/// first, then the parts that claim. Then the deliveries drain, and the session releases the rest.
@DispatchLoop
func makeParts(
    _ configuration: DispatcherConfiguration,
    in runtime: ServiceRuntime
) throws -> [any ServicePart] {
    let ground = try DispatcherConnections(configuration, runtime)
    let (database, wakeUps) = (ground.database, WakeUps(on: runtime.mainLoop))
    let credentials = CredentialCache(
        database: database,
        providers: ground.providers,
        connections: ground.connections,
        keys: configuration.common.keys,
        isMPNSEnabled: configuration.isMPNSEnabled,
        log: runtime.log
    )
    let contexts = PushContextCache(database: database)
    let engine = DeliveryEngine(
        database: database,
        producer: ground.producer,
        credentials: credentials,
        wakeUps: [wakeUps.direct, wakeUps.broadcast],
        configuration: configuration,
        runtime: runtime
    )
    let work = DispatcherWork(
        ground: ground,
        credentials: credentials,
        contexts: contexts,
        engine: engine,
        wakeUps: wakeUps,
        configuration: configuration,
        runtime: runtime
    )
    let consumers = [ground.events, ground.configEvents, ground.changes].map(\.consumer)
    let heartbeat = Heartbeat(database, consumers: consumers, in: runtime) { state in
        (state.breakers, state.slots) = DispatchLoop.assumeIsolated {
            let budget = engine.flight.budget
            return (
                engine.healths.openBreakers(engine.clock.now(), .now()),
                ServiceState.Slots(inUse: budget.owned, total: budget.total)
            )
        }
    }
    let keeping: [any ServicePart] = [
        heartbeat, work.session,
        // Stops after the engine, whose last outcomes it writes.
        FigureWriter(engine.figures, database, in: runtime),
        sessionReaper(database.sessions, in: runtime) { wakeUps.wakeForReleasedClaims() },
        maintenanceJob(database, configuration.retention, in: runtime),
        installationExpiryJob(database, in: runtime),
        work.notifications,
    ]
    let sending: [any ServicePart] = [
        ground.providersPart, engine,
        strayRecoveryJob(database, engine, in: runtime),
    ]
    // The last part, so that it is the first to be stopped.
    let stop = ClosurePart("stop") { @DispatchLoop in
        await runtime.mainLoop.untilCancelled()
        engine.prepareToStop()
    }
    return ground.stores + keeping + sending + work.claiming
        + sync(ground, configuration, runtime) + work.intake + [
            ground.configEvents.part("config consumer", after: database),
            ground.events.part("kafka consumer", after: database), stop,
        ]
}

/// Makes the parts that notify devices of changed datasets. Their pushes come back as events.
@DispatchLoop
private func sync(
    _ ground: DispatcherConnections,
    _ configuration: DispatcherConfiguration,
    _ runtime: ServiceRuntime
) -> [any ServicePart] {
    [
        syncTombstoneJob(ground.database, configuration.tombstoneRetention, in: runtime),
        SyncNotifier(
            database: ground.database,
            topics: configuration.common.topics,
            runtime: runtime
        ),
        syncIntake(
            ground.changes.consumer,
            ground.producer,
            ground.database,
            configuration.common.topics,
            coalesce: configuration.syncCoalesce,
            in: runtime
        ),
        ground.changes.part("sync consumer", after: ground.database),
    ]
}
