import PushCore
import PushStorage
import ServiceKit

/// What brings work to the engine: records of Kafka, and what is claimed in Postgres.
struct DispatcherWork {
    let session: SessionKeeper
    let notifications: Notifications
    /// In the order in which they stop, the last first.
    let claiming: [any ServicePart]
    let intake: EventIntake

    init(
        ground: DispatcherGround,
        credentials: CredentialDirectory,
        contexts: PushContexts,
        engine: DeliveryEngine,
        bells: Bells,
        configuration: DispatcherConfiguration,
        runtime: ServiceRuntime
    ) {
        let database = ground.database
        engine.recorder.onOpen = { contexts.remember($0) }
        session = SessionKeeper(
            sessions: ground.sessions.sessions,
            engine: engine,
            host: hostName(),
            connections: ground.connectionsName,
            runtime: runtime
        )
        let planners = bells.planning.map { kind, bell in
            AudiencePlanner(
                kind,
                database: database,
                engine: engine,
                bell: bell,
                runtime: runtime
            ) { bells.ringForDeliveries() }
        }
        let sender = ShardSender(
            database: database,
            contexts: contexts,
            engine: engine,
            bell: bells.shards,
            configuration: configuration,
            runtime: runtime
        )
        let sweepers = [(Lane.direct, bells.direct), (.broadcast, bells.broadcast)].map {
            DeliverySweeper(
                lane: $0,
                database: database,
                contexts: contexts,
                engine: engine,
                bell: $1,
                runtime: runtime
            )
        }
        let releaser = ScheduleReleaser(
            database: database,
            contexts: contexts,
            engine: engine,
            bell: bells.schedules,
            runtime: runtime
        ) { bells.ringForReleased() }
        let age = PlanningAge(database: database, runtime: runtime)
        claiming = planners + [age, sender] + sweepers + [releaser]
        notifications = Notifications(
            database: database,
            credentials: credentials,
            sender: sender,
            bells: bells,
            loop: runtime.mainLoop
        )
        intake = EventIntake(
            consumer: ground.consumer,
            configConsumer: ground.configConsumer,
            producer: ground.producer,
            database: database,
            credentials: credentials,
            contexts: contexts,
            engine: engine,
            topics: configuration.topics,
            hold: configuration.hold,
            retention: configuration.retention,
            runtime: runtime
        ) { bells.ringForPlanning() }
    }
}
