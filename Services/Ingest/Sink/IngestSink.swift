import EventLoop
import Kafka
import Observability
import Outbox
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Reads what devices have sent from Kafka, and keeps each object once in Postgres.
///
/// Authority: what lies between a record of a topic of objects and its offset finished. A batch is finished
/// only when each of its records is committed, was there before, is about somebody who was erased, or is a
/// dead letter that Kafka has acknowledged. One batch at a time: the first object of an id stays. What a
/// record says never stops it; while Postgres is away the partitions are held.
///
/// Shutdown: ends with its consumer. What is not committed then is read again by whoever is there.
actor IngestSink: ServicePart {
    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "ingest-sink"
    private nonisolated let trouble = Trouble()
    private nonisolated let deadLetters: DeadLetterWriter
    nonisolated func notReadyReason() -> String? {
        trouble.reason ?? deadLetters.notReadyReason()
    }

    private static let cannotStore = "objects cannot be stored"

    private let consumer: KafkaConsumer
    private let database: PushDatabase
    private let log: Log
    private let reader: SinkReader
    private let meters: Meters
    private var types: SinkTypes
    private var isListening = false

    private struct Meters {
        let stored: Counter
        let repeated: Counter
        let erased: Counter
        let batches: Counter
    }

    init(
        consumer: KafkaConsumer,
        producer: KafkaProducer,
        database: PushDatabase,
        topics: KafkaTopics,
        on loop: EventLoop,
        log: Log,
        metrics: Metrics
    ) {
        self.loop = loop
        self.consumer = consumer
        self.database = database
        self.log = log
        reader = SinkReader(topics: topics)
        types = SinkTypes(database.ingestTypes)
        meters = Meters(
            stored: metrics.counter(.ingestSinkStored),
            repeated: metrics.counter(.ingestSinkRepeated),
            erased: metrics.counter(.ingestSinkErased),
            batches: metrics.counter(.ingestSinkBatches)
        )
        deadLetters = DeadLetterWriter(
            producer,
            topics: topics,
            on: loop,
            log: log,
            metrics: metrics
        )
    }

    func run() async throws {
        while let batch = try await consumer.next() {
            if await handle(batch.records) {
                await consumer.finished(batch)
            }
        }
    }

    /// - Returns: Whether all of it is durable. Only a stop makes it `false`.
    private func handle(_ records: [KafkaRecord]) async -> Bool {
        await listen()
        var unusable: [DeadLetterWriter.Unusable] = []
        var waiting = records
        // The second time for types that have become others since they were looked up.
        for round in 0..<2 where !waiting.isEmpty {
            if round > 0 { types.forget() }
            guard let known = await look(for: waiting) else { return false }
            var read: [(record: KafkaRecord, object: SinkObject)] = []
            let now = Instant.now()
            for record in waiting {
                do throws(DeadLetterReason) {
                    read.append((record, try reader.object(of: record, known, now: now)))
                } catch {
                    unusable.append((IncomingRecord(record), error))
                }
            }
            guard let left = await store(read[...], &unusable) else { return false }
            waiting = left
        }
        unusable += waiting.map { record in
            (IncomingRecord(record), reader.unknownType(of: record))
        }
        meters.batches.add()
        return await deadLetters.write(unusable) { Task.isCancelled }
    }

    /// What was declared meanwhile is looked up anew. Where that is not heard, it is after a while.
    private func listen() async {
        guard !isListening else { return }
        isListening =
            (try? await database.onNotification(.ingestTypes) { [self] _ in
                loop.execute { self.assumeIsolated { $0.types.forget() } }
            }) != nil
    }

    /// - Returns: The types of these records that there are; `nil` when a stop came first.
    private func look(for records: [KafkaRecord]) async -> SinkTypes.Known? {
        let names = records.compactMap(reader.type)
        return await insisting {
            var types = types
            let known = try await types.find(names)
            self.types = types
            return known
        }
    }

    /// Stores some, and halves those that are refused for what one of them holds until it is alone.
    ///
    /// - Returns: Those whose app has no such type any more; `nil` when a stop came first.
    private func store(
        _ items: ArraySlice<(record: KafkaRecord, object: SinkObject)>,
        _ unusable: inout [DeadLetterWriter.Unusable]
    ) async -> [KafkaRecord]? {
        guard let only = items.first else { return [] }
        let objects = items.map(\.object)
        let result: Result<SinkCounts, StorageError>? = await insisting {
            do {
                return .success(try await database.ingestSink.store(objects))
            } catch let error as StorageError
                where error.isOfTheValues || error.isStatementTimeout && items.count > 1
            {
                return .failure(error)
            }
        }
        switch result {
        case .success(let counts):
            meters.stored.add(counts.stored)
            meters.repeated.add(counts.repeated)
            meters.erased.add(counts.erased)
            return counts.unknown.map { items[items.startIndex + $0].record }
        case .failure(let error):
            guard items.count > 1 else {
                unusable.append(
                    (IncomingRecord(only.record), DeadLetterReason(.notStorable, error.description))
                )
                return []
            }
            let middle = items.startIndex + items.count / 2
            guard let first = await store(items[..<middle], &unusable),
                let second = await store(items[middle...], &unusable)
            else { return nil }
            return first + second
        case nil: return nil
        }
    }

    /// For as long as it takes.
    ///
    /// - Returns: `nil` when a stop came first.
    private func insisting<Value>(_ body: () async throws -> Value) async -> Value? {
        var pause = Pause()
        while true {
            do {
                let value = try await body()
                trouble.clear(Self.cannotStore)
                return value
            } catch {
                if Task.isCancelled { return nil }
                trouble.set(Self.cannotStore)
                log.warning(
                    "objects cannot be stored; the partitions are held",
                    [.error: .string("\(error)")]
                )
                await pause.wait(on: loop)
                if Task.isCancelled { return nil }
            }
        }
    }
}

/// The parts of the sink, in their order: what is read is stored by the part before.
func sinkParts(
    _ kafka: KafkaConfiguration,
    group: String,
    database: PushDatabase,
    producer: KafkaProducer,
    topics: KafkaTopics,
    runtime: ServiceRuntime
) throws -> [any ServicePart] {
    var kafka = kafka
    // How soon the topic of a new type is seen; the operator's own value wins.
    let refresh = "topic.metadata.refresh.interval.ms"
    if kafka.properties[refresh] == nil { kafka.properties[refresh] = "3000" }
    let consumer = try KafkaConsumer(
        kafka,
        group: KafkaTopicReader.ingest.group(under: group),
        topics: KafkaTopicReader.ingest.kafkaTopics(of: topics),
        // Of many topics, each replica is to have its share of every one.
        assignment: .even,
        maximumBatch: 4000,
        maximumOutstanding: 16_000,
        on: runtime.mainLoop,
        log: runtime.log,
        metrics: runtime.metrics
    )
    let former = FormerGroup(of: .ingest, under: group, kafka, topics, runtime)
    return [
        IngestSink(
            consumer: consumer,
            producer: producer,
            database: database,
            topics: topics,
            on: runtime.mainLoop,
            log: runtime.log,
            metrics: runtime.metrics
        ),
        Part("sink consumer", notReady: consumer.notReadyReason) {
            try await database.untilReady()
            await former.inheritPositions()
            if Task.isCancelled { return }
            try await consumer.run()
        },
    ]
}
