import Cryptography
import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Turns the records of `push.requests` into pushes.
///
/// Authority: what lies between a record read and its offset finished. A batch is finished only when
/// each of its records is a row in Postgres or a dead letter that Kafka has acknowledged (promise
/// 2). What a record says never stops it; what a dependency does is waited out, with the batch in
/// hand and the consumer's bound as the limit of what is held.
///
/// Shutdown: ends with the consumer, which stands after it and stops first. A batch that cannot be
/// planned then is left unfinished, and read again by whoever is there.
actor EventIntake: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "intake"
    private nonisolated let trouble = Trouble()
    nonisolated func notReadyReason() -> String? { trouble.reason }

    /// Batches that are planned at once: while one is written to the disk another is read.
    private static let readers = 2
    private static let cannotPlan = "events cannot be planned"
    private static let cannotBury = "dead letters cannot be written to Kafka"

    private let consumer: KafkaConsumer
    private let producer: KafkaProducer
    private let database: PushDatabase
    private let credentials: CredentialDirectory
    private let contexts: PushContexts
    private let engine: DeliveryEngine
    private let topics: KafkaTopics
    private let log: Log
    private let metrics: Metrics
    private let planned: Counter
    private let known: Counter
    private let plannedDeliveries: Counter
    private let onPlanning: @Sendable () -> Void

    init(
        consumer: KafkaConsumer,
        producer: KafkaProducer,
        database: PushDatabase,
        credentials: CredentialDirectory,
        contexts: PushContexts,
        engine: DeliveryEngine,
        topics: KafkaTopics,
        runtime: ServiceRuntime,
        onPlanning: @escaping @Sendable () -> Void
    ) {
        loop = runtime.mainLoop
        self.consumer = consumer
        self.producer = producer
        self.database = database
        self.credentials = credentials
        self.contexts = contexts
        self.engine = engine
        self.topics = topics
        self.onPlanning = onPlanning
        log = runtime.log
        metrics = runtime.metrics
        planned = runtime.metrics.counter(.pushEvents, ["result": "planned"])
        known = runtime.metrics.counter(.pushEvents, ["result": "repeated"])
        plannedDeliveries = runtime.metrics.counter(.pushDeliveriesPlanned, ["lane": "direct"])
    }

    func run() async throws {
        try await withThrowingTaskGroup { group in
            for _ in 0..<Self.readers {
                group.addTask(executorPreference: loop) { try await self.read() }
            }
            try await group.waitForAll()
        }
    }

    private func read() async throws {
        while let batch = try await consumer.next() {
            await engine.waitForRoom(in: .direct, count: batch.records.count)
            if await handle(batch.records) { await consumer.finished(batch) }
        }
    }

    /// - Returns: Whether all of it is durable. Only a stop makes it `false`.
    private func handle(_ records: [KafkaRecord]) async -> Bool {
        var batch = EventBatch(records.map(IncomingRecord.init), now: .now(), digest: sha256)
        known.add(batch.repeats)
        var pause = Pause()
        while true {
            do {
                batch.keep(apps: try await credentials.known(among: batch.apps))
                break
            } catch {
                guard await holdBack(error, &pause) else { return false }
            }
        }
        for portion in EventBatch.portions(batch.usable, limit: engine.portion) {
            guard let refused = await plan(portion) else { return false }
            for (item, reason) in refused { batch.refuse(item, because: reason) }
        }
        return await bury(batch.unusable)
    }

    // MARK: Planning

    /// Plans a portion, in one transaction where that is possible, and hands on what may be sent at
    /// once.
    ///
    /// - Returns: The events that Postgres will never take, with the reason; `nil` when a stop came
    ///   first.
    private func plan(
        _ items: [EventBatch.Usable]
    ) async -> [(EventBatch.Usable, DeadLetterReason)]? {
        var queue = PlanQueue(items)
        var refused: [(EventBatch.Usable, DeadLetterReason)] = []
        var pause = Pause()
        var isFirst = true
        while let portion = queue.next {
            // For the first there is room: the batch waited for it.
            if !isFirst { await engine.waitForRoom(in: .direct, count: portion.items.count) }
            isFirst = false
            guard let session = await engine.currentSession else {
                guard !(await engine.isStopping) else { return nil }
                await engine.waitForRoom(in: .direct, count: 1)
                continue
            }
            do {
                let acceptedAt = Instant.now()
                let result = try await database.intake.plan(
                    session: session,
                    portion.items.map { NewPush($0, acceptedAt: acceptedAt) },
                    inPages: portion.isInPages
                )
                trouble.clear(Self.cannotPlan)
                pause = Pause()
                queue.planned { result.deferredPushIDs.contains($0.pushID) }
                await handOn(result, of: portion.items, session: session)
            } catch let error as StorageError where error.kind == .sessionLost {
                await engine.abandon(session: session)
            } catch let error as StorageError where error.isOfTheValues {
                guard let item = queue.refused() else { continue }
                refused.append((item, DeadLetterReason(.notStorable, error.description)))
            } catch {
                if let error = error as? StorageError, error.isStatementTimeout, queue.timedOut() {
                    log.warning(
                        "a portion of events takes too long to plan; a smaller one follows",
                        [.count: .integer(portion.items.count)]
                    )
                    continue
                }
                guard await holdBack(error, &pause) else { return nil }
                // Whether the transaction was committed may not be known.
                await engine.lookForStrays()
            }
        }
        return refused
    }

    private func handOn(
        _ result: PlannedBatch,
        of items: [EventBatch.Usable],
        session: Int
    ) async {
        planned.add(result.newPushIDs.count)
        known.add(items.count - result.newPushIDs.count - result.deferredPushIDs.count)
        plannedDeliveries.add(result.deliveries.count)
        var found: [String: PushContext] = [:]
        for item in items where result.newPushIDs.contains(item.pushID) {
            let context = PushContext(
                pushID: item.pushID,
                eventID: item.event.eventID,
                request: item.event.request
            )
            found[item.pushID] = context
            contexts.remember(context)
        }
        if !result.planningPushIDs.isEmpty { onPlanning() }
        await engine.take(result.deliveries, of: found, session: session, isFirst: true)
    }

    // MARK: Dead letters

    /// Writes the records that cannot be used as they came, and waits until each is acknowledged.
    ///
    /// - Returns: `false` when a stop came first.
    private func bury(_ unusable: [EventBatch.Unusable]) async -> Bool {
        guard !unusable.isEmpty else { return true }
        var waiting = unusable.map { item in (item: item, isContentKept: true) }
        var pause = Pause()
        while !waiting.isEmpty {
            var problem = "unknown"
            do {
                let errors = try await producer.send(
                    waiting.map { letter in
                        KafkaOutgoing(
                            .deadLetter(
                                letter.item.record,
                                because: letter.item.reason,
                                topics: topics,
                                isContentKept: letter.isContentKept
                            )
                        )
                    }
                )
                if let first = errors.lazy.compactMap({ $0 }).first { problem = "\(first)" }
                // What the broker will never take as it came must not stop the partition.
                waiting = zip(waiting, errors).compactMap { letter, error in
                    guard let error else { return nil }
                    return (letter.item, letter.isContentKept && !error.isTooLarge)
                }
            } catch {
                problem = "\(error)"
            }
            guard !waiting.isEmpty else { break }
            trouble.set(Self.cannotBury)
            log.warning(
                "dead letters are not acknowledged; trying again",
                [.count: .integer(waiting.count), .error: .string(problem)]
            )
            if await engine.isStopping { return false }
            await pause.wait(on: loop)
        }
        trouble.clear(Self.cannotBury)
        for item in unusable {
            metrics.counter(.pushDeadLetters, ["reason": item.reason.reason.rawValue]).add()
            log.warning(
                "a record cannot be used and is a dead letter now",
                [
                    .kafkaTopic: .string(item.record.topic),
                    .kafkaPartition: .integer(Int(item.record.partition)),
                    .kafkaOffset: .integer(Int(item.record.offset)),
                    .reason: .string(item.reason.reason.rawValue),
                    .detail: .string(item.reason.detail),
                ]
            )
        }
        return true
    }

    /// Waits out what is not the records' fault.
    ///
    /// - Returns: `false` when a stop came first.
    private func holdBack(_ error: any Error, _ pause: inout Pause) async -> Bool {
        if await engine.isStopping { return false }
        trouble.set(Self.cannotPlan)
        log.warning(
            "events cannot be planned; the partitions are held",
            [.error: .string("\(error)")]
        )
        await pause.wait(on: loop)
        return !Task.isCancelled
    }
}

extension NewPush {
    init(_ item: EventBatch.Usable, acceptedAt: Instant) {
        self.init(
            id: item.pushID,
            app: item.event.app,
            eventSource: item.event.source,
            eventID: item.event.eventID,
            object: item.event.object,
            request: item.event.request,
            expiresAt: item.event.request.expiresAt(acceptedAt: acceptedAt),
            releaseAt: item.event.request.releaseTime(acceptedAt: acceptedAt)
        )
    }
}

extension IncomingRecord {
    init(_ record: KafkaRecord) {
        self.init(
            topic: record.topic,
            partition: record.partition,
            offset: record.offset,
            key: record.key,
            value: record.value,
            headers: record.headers.map { RecordHeader($0.name, $0.value) }
        )
    }
}

extension KafkaOutgoing {
    fileprivate init(_ record: OutgoingRecord) {
        self.init(
            topic: record.topic,
            key: record.key,
            value: record.value,
            headers: record.headers.map { KafkaHeader(name: $0.name, value: $0.value) }
        )
    }
}
