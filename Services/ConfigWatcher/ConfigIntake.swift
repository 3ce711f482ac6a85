import EventLoop
import Kafka
import Observability
import Outbox
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Reads what other systems published, and notes what is to be announced. What was published here was noted
/// with its publish, and is left alone: `RecordHeader.origin` tells.
///
/// Authority: what lies between a record of `config.published` and its offset finished. A batch is
/// finished only when each of its records is noted in Postgres, was announced before, or is a dead
/// letter that Kafka has acknowledged. What a record says never stops it.
///
/// Shutdown: ends with the consumer. What is not noted then is read again by whoever is there.
actor ConfigIntake: ServicePart {
    private nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "config-intake"
    private nonisolated let trouble = Trouble()
    private nonisolated let deadLetters: DeadLetterWriter
    nonisolated func notReadyReason() -> String? {
        trouble.reason ?? deadLetters.notReadyReason()
    }

    private static let cannotNote = "published versions cannot be noted"

    private let consumer: KafkaConsumer
    private let database: PushDatabase
    private let log: Log
    private let heardOf: Counter
    /// Of the records of versions that were published here, whichever replica did it.
    private var origin: [UInt8]?

    init(
        consumer: KafkaConsumer,
        producer: KafkaProducer,
        database: PushDatabase,
        topics: KafkaTopics,
        runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        self.consumer = consumer
        self.database = database
        log = runtime.log
        heardOf = runtime.metrics.counter(.configPublishedRecords)
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
        var read: [(record: IncomingRecord, published: ConfigPublished)] = []
        guard let origin = await ownOrigin() else { return false }
        for record in records {
            let isOwn = record.headers.contains {
                $0.name == RecordHeader.origin && $0.value == origin
            }
            if isOwn { continue }
            do throws(DeadLetterReason) {
                read.append((record, try ConfigPublished.decode(record)))
            } catch {
                unusable.append((record, error))
            }
        }
        if !read.isEmpty {
            guard let refused = await untilDone({ try await self.note(read) }) else { return false }
            unusable += refused
            heardOf.add(read.count)
        }
        return await deadLetters.write(unusable) { Task.isCancelled }
    }

    private func ownOrigin() async -> [UInt8]? {
        if origin == nil {
            origin = await untilDone {
                Array((try await self.database.config.origin() ?? "").utf8)
            }
        }
        return origin
    }

    /// Waits out a database that is away.
    ///
    /// - Returns: `nil` when a stop came first.
    private func untilDone<Value: Sendable>(_ body: () async throws -> Value) async -> Value? {
        var pause = Pause()
        while true {
            do {
                let value = try await body()
                trouble.clear(Self.cannotNote)
                return value
            } catch {
                if Task.isCancelled { return nil }
                trouble.set(Self.cannotNote)
                log.warning(
                    "published versions cannot be noted; the partitions are held",
                    [.error: .string("\(error)")]
                )
                await pause.wait(on: loop)
                if Task.isCancelled { return nil }
            }
        }
    }

    /// - Returns: What can never be announced.
    private func note(
        _ read: [(record: IncomingRecord, published: ConfigPublished)]
    ) async throws -> [DeadLetterWriter.Unusable] {
        let names = Set(read.map(\.published.project))
        let apps = try await database.apps.known(among: names)
        let linked = try await database.appLinks.apps(
            .fcmProject,
            names: names.subtracting(apps).sorted()
        )
        var unusable: [DeadLetterWriter.Unusable] = []
        var heard: [(record: IncomingRecord, config: HeardConfig)] = []
        for (record, published) in read {
            let app =
                apps.contains(published.project)
                ? published.project : linked.first { $0.name == published.project }?.app
            guard let app else {
                unusable.append((record, .unknownApp(published.project)))
                continue
            }
            // No client fetches what is the servers', so nobody is told of it.
            guard published.namespace == ConfigPublished.clientNamespace else { continue }
            let config = HeardConfig(
                app: app,
                namespace: published.namespace,
                version: published.version,
                updateType: published.updateType
            )
            heard.append((record, config))
        }
        let usable = try await database.configAnnouncements.note(heard.map(\.config))
        for (item, isUsable) in zip(heard, usable) where !isUsable {
            let reason = DeadLetterReason(
                .invalidRequest,
                "version \(item.config.version) is above the current one of the app's template"
            )
            unusable.append((item.record, reason))
        }
        return unusable
    }
}
