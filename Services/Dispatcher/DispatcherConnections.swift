import ConnectionStorage
import EventLoop
import Kafka
import PushEvents
import PushProviders
import PushStorage
import ServiceKit
import ServiceShell
import Storage

/// The dispatcher's connections to Postgres, Kafka and the providers.
@DispatchLoop
struct DispatcherConnections {
    let database: PushDatabase
    /// The sessions' own connections.
    let sessions: PushDatabase
    /// The application name of this process' connections. They are ended with its session.
    let connectionsName: String
    let producer: KafkaProducer
    let events: RecordSource
    /// The records of `PUSH_RC`, in a group of its own: it begins at the offsets of the dispatcher's
    /// own group, which read the topic in earlier versions.
    let configEvents: RecordSource
    /// The changes of datasets, in a group of their own.
    let changes: RecordSource
    let providers: ProviderClients
    /// Our own provider.
    let connections: ConnectionProvider
    private let loop: EventLoop

    init(_ configuration: DispatcherConfiguration, _ runtime: ServiceRuntime) throws {
        loop = runtime.mainLoop
        connectionsName = "carillon-dispatcher " + String(UInt64.random(in: 0 ... .max), radix: 36)
        let common = configuration.common
        var storage = common.database
        storage.connections = 11
        storage.applicationName = connectionsName
        // Less than the lease, so that the locks of a stopped replica end before its lease does.
        storage.idleTransactionTimeout = .seconds(SessionStore.leaseSeconds / 2)
        database = PushDatabase(
            storage,
            keys: common.keys,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        storage.connections = 2
        sessions = PushDatabase(storage, clock: database.clock, on: loop, log: runtime.log)
        producer = try KafkaProducer(
            common.kafka,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        events = try RecordSource(
            .dispatcher,
            under: configuration.groupID,
            common,
            maximumBatch: max(1, min(500, configuration.inFlight / 8)),
            in: runtime
        )
        configEvents = try RecordSource(
            .pushConfig,
            under: configuration.groupID,
            common,
            maximumBatch: max(1, min(100, configuration.inFlight / 8)),
            maximumOutstanding: 1000,
            maximumOutstandingBytes: 8 << 20,
            in: runtime
        )
        changes = try RecordSource(
            .pushSync,
            under: configuration.groupID,
            common,
            maximumBatch: 1000,
            in: runtime
        )
        var providers = configuration.providers
        providers.streamWaits = EventStages(runtime.metrics)[.onTheWire]
        self.providers = try ProviderClients(
            providers,
            on: loop,
            log: runtime.log,
            clock: database.clock
        )
        connections = ConnectionProvider(
            log: runtime.log,
            keep: { [database] messages in
                try await database.connections.keep(
                    messages,
                    for: configuration.connectionKeep,
                    maximumWaiting: configuration.connectionWaiting
                )
            },
            notify: { [database] in try await database.connections.notifyNodes() }
        )
    }

    /// The parts that deliveries are written to. They stop after the deliveries have drained.
    var stores: [any ServicePart] {
        let (database, producer, sessions, loop) = (database, producer, sessions, loop)
        return [
            ClosurePart(
                "postgres",
                notReady: database.notReadyReason,
                warning: database.warning,
                endedBy: SchemaTooNew.self
            ) { try await database.run() },
            ClosurePart("kafka producer", notReady: producer.notReadyReason) {
                try await producer.run()
            },
            ClosurePart("sessions' connections") {
                await loop.untilCancelled()
                await sessions.close()
            },
        ]
    }

    var providersPart: ClosurePart {
        let (providers, connections) = (providers, connections)
        return ClosurePart("providers") { @DispatchLoop in
            await DispatchLoop.loop.untilCancelled()
            providers.close()
            connections.close()
        }
    }
}
