import PushCore
import PushStorage
import ServiceKit
import ServiceShell

/// The parts that bring work to the engine: records of Kafka, and claims in Postgres.
@DispatchLoop
struct DispatcherWork {
    let session: SessionHeartbeat
    let notifications: NotifyListener
    /// The parts that claim, in the reverse order of their stop.
    let claiming: [any ServicePart]
    /// The consumers of events, and of `PUSH_RC`.
    let intake: [any ServicePart]

    init(
        ground: DispatcherConnections,
        credentials: CredentialCache,
        contexts: PushContextCache,
        engine: DeliveryEngine,
        wakeUps: WakeUps,
        configuration: DispatcherConfiguration,
        runtime: ServiceRuntime
    ) {
        let database = ground.database
        engine.recorder.onOpen = { contexts.remember($0) }
        session = SessionHeartbeat(
            sessions: ground.sessions.sessions,
            engine: engine,
            host: processName(),
            connections: ground.connectionsName,
            runtime: runtime
        )
        let planners = wakeUps.planning.map { kind, wakeUp in
            AudiencePlanner(
                kind,
                database: database,
                engine: engine,
                wakeUp: wakeUp,
                runtime: runtime
            ) { wakeUps.wakeForDeliveries() }
        }
        let senders = wakeUps.shards.map { lane, wakeUp in
            ShardSender(
                lane: lane,
                database: database,
                contexts: contexts,
                engine: engine,
                wakeUp: wakeUp,
                configuration: configuration,
                runtime: runtime
            )
        }
        let sweepers = [(Lane.direct, wakeUps.direct), (.broadcast, wakeUps.broadcast)].map {
            DeliverySweeper(
                lane: $0,
                database: database,
                contexts: contexts,
                engine: engine,
                wakeUp: $1,
                runtime: runtime
            )
        }
        let releaser = ScheduleReleaser(
            database: database,
            contexts: contexts,
            engine: engine,
            wakeUp: wakeUps.schedules,
            runtime: runtime
        ) { wakeUps.wakeForReleased() }
        let age = PlanningAge(database: database, runtime: runtime)
        claiming = planners + [age] + senders + sweepers + [releaser]
        notifications = NotifyListener(
            database: database,
            credentials: credentials,
            senders: senders,
            wakeUps: wakeUps
        )
        let events = EventIntake(
            database: database,
            credentials: credentials,
            contexts: contexts,
            engine: engine,
            topics: configuration.common.topics,
            hold: configuration.hold,
            retention: configuration.retention,
            runtime: runtime
        ) { wakeUps.wakeForPlanning() }
        let deadLetters = DeadLetterWriter(
            ground.producer,
            topics: configuration.common.topics,
            in: runtime
        )
        intake = [
            events.consumer("intake", of: ground.events, batches: 256, deadLetters),
            // `PUSH_RC` has few events, and each is planned at once.
            events.consumer("config intake", of: ground.configEvents, batches: 2, deadLetters),
        ]
    }
}
