import EventLoop
import IngestStorage
import Kafka
import Observability
import PushCore
import PushEvents
import ServiceKit
import ServiceShell
import Storage

/// Stores each object that devices have sent once in Postgres.
///
/// A record is finished only when it is committed, was stored before, is about an erased subject,
/// or is a dead letter. Batches are stored one at a time, so that of several objects with one id
/// the first stays.
actor IngestSink {
    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    private let database: PushDatabase
    private let log: Log
    private let retry: RecordRetry
    private let reader: SinkReader
    private let meters: Meters
    private var types: SinkTypeCache
    private var isListening = false

    private struct Meters {
        let stored: Counter
        let repeated: Counter
        let erased: Counter
        let batches: Counter
    }

    init(
        database: PushDatabase,
        topics: KafkaTopics,
        retry: RecordRetry,
        in runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        log = runtime.log
        self.database = database
        self.retry = retry
        reader = SinkReader(topics: topics)
        types = SinkTypeCache(database.ingestTypes)
        let metrics = runtime.metrics
        meters = Meters(
            stored: metrics.counter(.ingestSinkStored),
            repeated: metrics.counter(.ingestSinkRepeated),
            erased: metrics.counter(.ingestSinkErased),
            batches: metrics.counter(.ingestSinkBatches)
        )
    }

    /// - Returns: The records that can never be stored; `nil` if the service stopped before.
    func store(_ records: [KafkaRecord]) async -> [DeadLetterWriter.Unusable]? {
        await listen()
        var unusable: [DeadLetterWriter.Unusable] = []
        var waiting = records
        // The second round looks the types up again, as some may have changed since.
        for round in 0..<2 where !waiting.isEmpty {
            if round > 0 { types.forget() }
            guard let known = await look(for: waiting) else { return nil }
            var read: [(record: KafkaRecord, object: SinkObject)] = []
            let now = Instant.now()
            for record in waiting {
                do throws(DeadLetterReason) {
                    read.append((record, try reader.object(of: record, known, now: now)))
                } catch {
                    unusable.append((IncomingRecord(record), error))
                }
            }
            guard let left = await store(read[...], &unusable) else { return nil }
            waiting = left
        }
        unusable += waiting.map { record in
            (IncomingRecord(record), reader.unknownType(of: record))
        }
        meters.batches.add()
        return unusable
    }

    /// Subscribes to changes of types, so that a declared type is looked up again at once. If a
    /// notification is missed, this happens when the cache expires.
    private func listen() async {
        guard !isListening else { return }
        do {
            try await database.onNotification(.ingestTypes) { [self] _ in
                loop.execute { self.assumeIsolated { $0.types.forget() } }
            }
            isListening = true
        } catch {
            log.warning("types that are declared are noticed later", [.error: .string("\(error)")])
        }
    }

    /// - Returns: The known types of these records; `nil` if the service stopped before.
    private func look(for records: [KafkaRecord]) async -> SinkTypeCache.Known? {
        let names = records.compactMap(reader.type)
        return await retry.untilDone {
            var types = types
            let known = try await types.find(names)
            self.types = types
            return known
        }
    }

    /// Stores records. If the values of one record make its batch fail, the batch is halved until
    /// that record is alone.
    ///
    /// - Returns: The records whose app no longer has such a type; `nil` if a stop came first.
    private func store(
        _ items: ArraySlice<(record: KafkaRecord, object: SinkObject)>,
        _ unusable: inout [DeadLetterWriter.Unusable]
    ) async -> [KafkaRecord]? {
        guard let only = items.first else { return [] }
        let objects = items.map(\.object)
        let result: Result<SinkCounts, StorageError>? = await retry.untilDone {
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
}

/// Makes the source of the sink's records.
func sinkSource(of service: HTTPService<Ingest>) throws -> RecordSource {
    var common = service.configuration.common
    // The delay until the topic of a new type is seen; the operator's own value wins.
    let refresh = "topic.metadata.refresh.interval.ms"
    if common.kafka.properties[refresh] == nil { common.kafka.properties[refresh] = "3000" }
    return try RecordSource(
        .ingest,
        under: service.configuration.own.groupID,
        common,
        maximumBatch: 4000,
        maximumOutstanding: 16_000,
        // There are many topics, and each replica must get its share of every topic.
        assignment: .even,
        in: service.runtime
    )
}

/// Returns the parts of the sink in order: each part stores the records that the next one reads.
func sinkParts(
    of service: HTTPService<Ingest>,
    _ source: RecordSource,
    _ producer: KafkaProducer
) -> [any ServicePart] {
    let topics = service.configuration.common.topics
    return [
        sink(source.consumer, producer, service.database, topics, in: service.runtime),
        source.part("sink consumer", after: service.database),
    ]
}

func sink(
    _ consumer: KafkaConsumer,
    _ producer: KafkaProducer,
    _ database: PushDatabase,
    _ topics: KafkaTopics,
    in runtime: ServiceRuntime
) -> RecordConsumer {
    let retry = RecordRetry(cannot: "objects cannot be stored", in: runtime)
    let sink = IngestSink(database: database, topics: topics, retry: retry, in: runtime)
    return RecordConsumer(
        "ingest-sink",
        of: consumer,
        deadLetters: DeadLetterWriter(producer, topics: topics, in: runtime),
        retry: retry
    ) { records in await sink.store(records) }
}
