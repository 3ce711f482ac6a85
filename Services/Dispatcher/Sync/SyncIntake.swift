import EventLoop
import Kafka
import Observability
import Outbox
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Reads which datasets have changed, here or in other systems, and opens their windows.
///
/// Authority: what lies between a record of `dataset.changes` and its offset finished. A batch is
/// finished only when each of its records is noted in Postgres, is known to nobody who listens, or is a
/// dead letter that Kafka has acknowledged. What a record says never stops it.
///
/// Shutdown: ends with its consumer. What is not noted then is read again by whoever is there.
actor SyncIntake: ServicePart {
    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "sync-intake"
    private nonisolated let trouble = Trouble()
    private nonisolated let deadLetters: DeadLetterWriter
    nonisolated func notReadyReason() -> String? {
        trouble.reason ?? deadLetters.notReadyReason()
    }

    private static let cannotNote = "changes of datasets cannot be noted"

    private let consumer: KafkaConsumer
    private let database: PushDatabase
    private let coalesce: Duration
    private let log: Log
    private let heard: Counter

    init(
        consumer: KafkaConsumer,
        producer: KafkaProducer,
        database: PushDatabase,
        topics: KafkaTopics,
        coalesce: Duration,
        runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        self.consumer = consumer
        self.database = database
        self.coalesce = coalesce
        log = runtime.log
        heard = runtime.metrics.counter(.syncChanges)
        deadLetters = DeadLetterWriter(
            producer,
            topics: topics,
            on: runtime.mainLoop,
            log: runtime.log,
            metrics: runtime.metrics
        )
    }

    func run() async throws {
        while let batch = try await consumer.next() {
            if await handle(batch.records.map(IncomingRecord.init)) {
                await consumer.finished(batch)
            }
        }
    }

    /// - Returns: Whether all of it is durable. Only a stop makes it `false`.
    private func handle(_ records: [IncomingRecord]) async -> Bool {
        var unusable: [DeadLetterWriter.Unusable] = []
        var read: [(record: IncomingRecord, change: DatasetChange)] = []
        for record in records {
            do throws(DeadLetterReason) {
                read.append((record, try DatasetChanged.decode(record)))
            } catch {
                unusable.append((record, error))
            }
        }
        var pause = Pause()
        while !read.isEmpty {
            do {
                let verdicts = try await database.syncWindows.note(
                    read.map(\.change),
                    coalesce: coalesce
                )
                trouble.clear(Self.cannotNote)
                heard.add(read.count)
                for (item, verdict) in zip(read, verdicts) {
                    guard let reason = Self.reason(verdict, item.change) else { continue }
                    unusable.append((item.record, reason))
                }
                break
            } catch {
                if Task.isCancelled { return false }
                trouble.set(Self.cannotNote)
                log.warning(
                    "changes of datasets cannot be noted; the partitions are held",
                    [.error: .string("\(error)")]
                )
                await pause.wait(on: loop)
                if Task.isCancelled { return false }
            }
        }
        return await deadLetters.write(unusable) { Task.isCancelled }
    }

    /// Why a change can never be told; `nil` where it is, or need not be.
    private static func reason(
        _ verdict: SyncVerdict,
        _ change: DatasetChange
    ) -> DeadLetterReason? {
        switch verdict {
        case .noted, .silent: nil
        case .unknownPool: .unknownPool(change.pool)
        case .tooHigh:
            DeadLetterReason(
                .invalidRequest,
                "syncCount is above that of the records that are kept here"
            )
        case .tooMany:
            DeadLetterReason(
                .invalidRequest,
                "the identity has \(SyncLimits.datasets) datasets, as many as it may"
            )
        }
    }
}
