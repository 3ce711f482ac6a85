import EventLoop
import Glibc
import Kafka
import Observability
import PushCore
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

/// Turns events into notifications and tells what became of every one of them.
///
/// Flow: `KafkaConsumer` → `EventIntake` (records become rows, or dead letters) → `DeliveryEngine`
/// (sends, announces and settles). Rows that wait come back through `DeliverySweeper`; large
/// audiences are cut into shards by `AudiencePlanner` and sent by `ShardSender`; what waits for its
/// time is released by `ScheduleReleaser`; `SessionKeeper` says whether any of it is still ours.
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
    try await Wiring(configuration, runtime).parts()
}

/// Puts the parts together, in the order of their dependence.
private struct Wiring {
    let configuration: DispatcherConfiguration
    let runtime: ServiceRuntime
    let loop: EventLoop
    let database: PushDatabase
    /// The sessions' own connections.
    let sessions: PushDatabase
    let connectionsName: String
    let producer: KafkaProducer
    let consumer: KafkaConsumer
    let providers: ProviderDirectory
    let credentials: CredentialDirectory
    let contexts: PushContexts
    let engine: DeliveryEngine
    let directBell: Bell
    let broadcastBell: Bell
    let planningBells: [AudienceKind: Bell]
    let scheduleBell: Bell
    let shardBell: Bell
    let sender: ShardSender

    init(_ configuration: DispatcherConfiguration, _ runtime: ServiceRuntime) async throws {
        self.configuration = configuration
        self.runtime = runtime
        loop = runtime.mainLoop
        // Nobody else's: who ends its session ends them.
        connectionsName = "carillon-dispatcher " + String(UInt64.random(in: 0 ... .max), radix: 36)
        var storage = configuration.database
        storage.connections = 8
        storage.applicationName = connectionsName
        // Below the lease, so that the locks of a replica that is stopped end before it does.
        storage.idleTransactionTimeout = .seconds(SessionStore.leaseSeconds / 2)
        database = PushDatabase(
            storage,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        storage.connections = 2
        sessions = PushDatabase(storage, on: loop, log: runtime.log)
        producer = try KafkaProducer(
            configuration.kafka,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        consumer = try KafkaConsumer(
            configuration.kafka,
            group: configuration.groupID,
            topics: [configuration.topics.pushRequests],
            maximumBatch: max(1, min(500, configuration.inFlight / 8)),
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        providers = try ProviderDirectory(configuration.providers, on: loop, log: runtime.log)
        credentials = CredentialDirectory(
            database: database,
            providers: providers,
            keys: configuration.keys,
            isMPNSEnabled: configuration.isMPNSEnabled,
            log: runtime.log
        )
        contexts = PushContexts(database: database)
        (directBell, broadcastBell) = (Bell(on: loop), Bell(on: loop))
        (shardBell, scheduleBell) = (Bell(on: loop), Bell(on: loop))
        planningBells = [.plain: Bell(on: loop), .conditional: Bell(on: loop)]
        engine = DeliveryEngine(
            database: database,
            producer: producer,
            credentials: credentials,
            bells: [directBell, broadcastBell],
            configuration: configuration,
            runtime: runtime
        )
        sender = ShardSender(
            database: database,
            contexts: contexts,
            engine: engine,
            bell: shardBell,
            configuration: configuration,
            runtime: runtime
        )
    }

    func parts() throws -> [any ServicePart] {
        let (loop, directBell, broadcastBell) = (loop, directBell, broadcastBell)
        let (planningBells, shardBell) = (planningBells.values, shardBell)
        let session = SessionKeeper(
            sessions: self.sessions.sessions,
            engine: engine,
            host: hostName(),
            connections: connectionsName,
            runtime: runtime
        )
        let reaper = SessionReaper(sessions: database.sessions, runtime: runtime) {
            loop.execute {
                for bell in [directBell, broadcastBell, shardBell] { bell.ring() }
                for bell in planningBells { bell.ring() }
            }
        }
        let planners = self.planningBells.map { kind, bell in
            AudiencePlanner(
                kind,
                database: self.database,
                engine: self.engine,
                bell: bell,
                runtime: runtime
            ) {
                loop.execute { for bell in [directBell, broadcastBell, shardBell] { bell.ring() } }
            }
        }
        let intake = EventIntake(
            consumer: consumer,
            producer: producer,
            database: database,
            credentials: credentials,
            contexts: contexts,
            engine: engine,
            topics: configuration.topics,
            runtime: runtime
        ) {
            loop.execute { for bell in planningBells { bell.ring() } }
        }
        let releaser = ScheduleReleaser(
            database: database,
            contexts: contexts,
            engine: engine,
            bell: scheduleBell,
            runtime: runtime
        ) {
            loop.execute {
                directBell.ring()
                for bell in planningBells { bell.ring() }
            }
        }
        let (database, producer, consumer) = (database, producer, consumer)
        let (providers, engine, sessions) = (providers, engine, self.sessions)
        var parts: [any ServicePart] = [
            Part("postgres", notReady: database.notReadyReason, endedBy: SchemaTooNew.self) {
                try await database.run()
            },
            Part("kafka producer", notReady: producer.notReadyReason) { try await producer.run() },
            Part("sessions' connections") {
                await loop.untilCancelled()
                await sessions.close()
            },
            session,
            reaper,
            HouseKeeping(
                database: database,
                retention: configuration.retention,
                runtime: runtime
            ),
            InstallationKeeping(database: database, runtime: runtime),
            Part("notifications") { try await listen() },
            Part("providers") {
                await loop.untilCancelled()
                loop.execute { providers.close() }
            },
            engine,
            StrayKeeping(database: database, engine: engine, runtime: runtime),
        ]
        parts += planners
        parts += [
            sender,
            sweeper(.direct, directBell),
            sweeper(.broadcast, broadcastBell),
            releaser,
            intake,
            Part("kafka consumer", notReady: consumer.notReadyReason) {
                try await database.untilReady()
                try await consumer.run()
            },
            // The last, so that it is the first to hear of a stop.
            Part("stop") {
                await loop.untilCancelled()
                await engine.prepareToStop()
            },
        ]
        return parts
    }

    private func sweeper(_ lane: Lane, _ bell: Bell) -> DeliverySweeper {
        DeliverySweeper(
            lane: lane,
            database: database,
            contexts: contexts,
            engine: engine,
            bell: bell,
            runtime: runtime
        )
    }

    /// What other processes say by NOTIFY; whoever waits for it also looks now and then by itself.
    private func listen() async throws {
        let (loop, credentials, sender) = (loop, credentials, sender)
        let (planningBells, shardBell) = (planningBells.values, shardBell)
        let scheduleBell = scheduleBell
        var pause = Pause()
        while !Task.isCancelled {
            do {
                try await database.onNotification(.credentials) { app in
                    loop.execute { credentials.forget(app) }
                }
                try await database.onNotification(.planning) { _ in
                    loop.execute { for bell in planningBells { bell.ring() } }
                }
                try await database.onNotification(.scheduled) { _ in
                    loop.execute { scheduleBell.ring() }
                }
                try await database.onNotification(.shards) { _ in
                    loop.execute { shardBell.ring() }
                }
                try await database.onNotification(.cancelled) { pushID in
                    Task(executorPreference: loop) { await sender.cancelled(pushID) }
                }
                break
            } catch {
                await pause.wait(on: loop)
            }
        }
        await loop.untilCancelled()
    }
}

/// What `dispatchers` shows of this process.
private func hostName() -> String {
    var bytes = [CChar](repeating: 0, count: 256)
    guard unsafe gethostname(&bytes, bytes.count - 1) == 0 else { return "dispatcher" }
    let name = bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
    return String(decoding: name, as: UTF8.self) + ":\(getpid())"
}
