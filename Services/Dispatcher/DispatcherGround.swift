import EventLoop
import Glibc
import Kafka
import Outbox
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

/// What the dispatcher stands on: its connections to Postgres, Kafka and the providers.
struct DispatcherGround {
    let database: PushDatabase
    /// The sessions' own connections.
    let sessions: PushDatabase
    /// Nobody else's connections are called so: who ends this replica's session ends them.
    let connectionsName: String
    let producer: KafkaProducer
    let consumer: KafkaConsumer
    /// Of `PUSH_RC`, in a group of its own.
    let configConsumer: KafkaConsumer
    /// Of changed datasets, in a group of its own.
    let syncConsumer: KafkaConsumer
    let providers: ProviderDirectory
    private let loop: EventLoop
    private let inheritance: FormerGroup

    init(_ configuration: DispatcherConfiguration, _ runtime: ServiceRuntime) throws {
        loop = runtime.mainLoop
        inheritance = FormerGroup(
            of: .pushConfig,
            under: configuration.groupID,
            configuration.kafka,
            configuration.topics,
            runtime
        )
        connectionsName = "carillon-dispatcher " + String(UInt64.random(in: 0 ... .max), radix: 36)
        var storage = configuration.database
        storage.connections = 11
        storage.applicationName = connectionsName
        // Below the lease, so that the locks of a replica that is stopped end before it does.
        storage.idleTransactionTimeout = .seconds(SessionStore.leaseSeconds / 2)
        database = PushDatabase(
            storage,
            keys: configuration.keys,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        storage.connections = 2
        sessions = PushDatabase(storage, clock: database.clock, on: loop, log: runtime.log)
        producer = try KafkaProducer(
            configuration.kafka,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        consumer = try KafkaConsumer(
            configuration.kafka,
            group: configuration.groupID,
            topics: KafkaTopicReader.dispatcher.kafkaTopics(of: configuration.topics),
            maximumBatch: max(1, min(500, configuration.inFlight / 8)),
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        configConsumer = try KafkaConsumer(
            configuration.kafka,
            group: KafkaTopicReader.pushConfig.group(under: configuration.groupID),
            topics: KafkaTopicReader.pushConfig.kafkaTopics(of: configuration.topics),
            maximumBatch: max(1, min(100, configuration.inFlight / 8)),
            maximumOutstanding: 1000,
            maximumOutstandingBytes: 8 << 20,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        syncConsumer = try KafkaConsumer(
            configuration.kafka,
            group: KafkaTopicReader.pushSync.group(under: configuration.groupID),
            topics: KafkaTopicReader.pushSync.kafkaTopics(of: configuration.topics),
            maximumBatch: 1000,
            on: loop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        var providers = configuration.providers
        providers.streamWaits = EventStages(runtime.metrics)[.onTheWire]
        self.providers = try ProviderDirectory(
            providers,
            on: loop,
            log: runtime.log,
            clock: database.clock
        )
    }

    /// What the deliveries are written to: they end before it.
    var stores: [any ServicePart] {
        let (database, producer, sessions, loop) = (database, producer, sessions, loop)
        return [
            Part(
                "postgres",
                notReady: database.notReadyReason,
                warning: database.warning,
                endedBy: SchemaTooNew.self
            ) { try await database.run() },
            Part("kafka producer", notReady: producer.notReadyReason) { try await producer.run() },
            Part("sessions' connections") {
                await loop.untilCancelled()
                await sessions.close()
            },
        ]
    }

    var providersPart: Part {
        let (providers, loop) = (providers, loop)
        return Part("providers") {
            await loop.untilCancelled()
            loop.execute { providers.close() }
        }
    }

    var consumerPart: Part { part("kafka consumer", consumer) }

    /// Begins where the dispatcher's own group was, which read the topic in the versions before.
    var configConsumerPart: Part {
        let (database, consumer, inheritance) = (database, configConsumer, inheritance)
        return Part("config consumer", notReady: consumer.notReadyReason) {
            try await database.untilReady()
            await inheritance.inheritPositions()
            if Task.isCancelled { return }
            try await consumer.run()
        }
    }

    var syncConsumerPart: Part { part("sync consumer", syncConsumer) }

    private func part(_ name: String, _ consumer: KafkaConsumer) -> Part {
        let database = database
        return Part(name, notReady: consumer.notReadyReason) {
            try await database.untilReady()
            try await consumer.run()
        }
    }
}

/// What `dispatchers` shows of this process.
func hostName() -> String {
    var bytes = [CChar](repeating: 0, count: 256)
    guard unsafe gethostname(&bytes, bytes.count - 1) == 0 else { return "dispatcher" }
    let name = bytes.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }
    return String(decoding: name, as: UTF8.self) + ":\(getpid())"
}
