import Cryptography
import EventLoop
import Kafka
import Observability
import Outbox
import PushCore
import PushEvents
import PushStorage
import ServiceKit

/// Turns the records of `push.requests`, and of `PUSH_RC`, into pushes.
///
/// Authority: what lies between a record read and its offset finished. A batch is finished only when
/// each of its records is on the books or a dead letter that Kafka has acknowledged (promise 2). Events
/// for few devices take the fast path: looked up, sent, written as they ended (`InlineRun`); all others
/// are planned as rows first. What a record says never stops it; what a dependency does is waited out, with
/// the batch in hand and the consumer's bound as the limit of what is held.
///
/// Shutdown: ends with the consumers, which stand after it and stop first. A batch that cannot be
/// planned or written down then is left unfinished, and read again by whoever is there.
actor EventIntake: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "intake"
    private nonisolated let trouble = Trouble()
    private nonisolated let deadLetters: DeadLetterWriter
    nonisolated func notReadyReason() -> String? {
        trouble.reason ?? deadLetters.notReadyReason()
    }

    /// Batches that are in hand at once: those of the fast path wait until they are recorded, and at half
    /// load each is a handful of records. What they hold is bounded by the slots that they wait for.
    private static let readers = 256
    /// Of them, those that are planned at once: while one is written to the disk another is read.
    private static let planners = 2
    /// As `readers`, of `PUSH_RC`: its few events are planned, each in an instant.
    private static let configReaders = 2
    private static let cannotPlan = "events cannot be planned"

    /// Of events.
    private let consumer: KafkaConsumer
    /// Of `PUSH_RC`.
    private let configConsumer: KafkaConsumer
    let database: PushDatabase
    private let credentials: CredentialDirectory
    private let contexts: PushContexts
    let engine: DeliveryEngine
    private let topics: KafkaTopics
    let log: Log
    private let gate = PlannerGate(planners)
    /// `DISPATCH_HOLD`.
    let hold: Duration
    /// For how long events are known.
    let retention: Retention
    let plannedDeliveries: Counter
    private let onPlanning: @Sendable () -> Void

    init(
        consumer: KafkaConsumer,
        configConsumer: KafkaConsumer,
        producer: KafkaProducer,
        database: PushDatabase,
        credentials: CredentialDirectory,
        contexts: PushContexts,
        engine: DeliveryEngine,
        topics: KafkaTopics,
        hold: Duration,
        retention: Retention,
        runtime: ServiceRuntime,
        onPlanning: @escaping @Sendable () -> Void
    ) {
        loop = runtime.mainLoop
        self.consumer = consumer
        self.configConsumer = configConsumer
        self.database = database
        self.credentials = credentials
        self.contexts = contexts
        self.engine = engine
        self.topics = topics
        self.hold = hold
        self.retention = retention
        self.onPlanning = onPlanning
        log = runtime.log
        deadLetters = DeadLetterWriter(
            producer,
            topics: topics,
            on: runtime.mainLoop,
            log: runtime.log,
            metrics: runtime.metrics
        )
        plannedDeliveries = runtime.metrics.counter(.pushDeliveriesPlanned, ["lane": "direct"])
    }

    func run() async throws {
        try await withThrowingTaskGroup { group in
            for _ in 0..<Self.readers {
                group.addTask(executorPreference: loop) { try await self.read(self.consumer) }
            }
            for _ in 0..<Self.configReaders {
                group.addTask(executorPreference: loop) { try await self.read(self.configConsumer) }
            }
            try await group.waitForAll()
        }
    }

    private func read(_ consumer: KafkaConsumer) async throws {
        while let batch = try await consumer.next() {
            let fetchedAt = ContinuousClock.now
            engine.meters.stages.fetched(
                batch.records.lazy.map(\.timestampMilliseconds),
                at: database.clock.now()
            )
            await engine.promiseRoom(for: batch.records.count)
            if await handle(batch.records, fetchedAt: fetchedAt) { await consumer.finished(batch) }
        }
    }

    /// Room was promised for as many as there are records.
    ///
    /// - Returns: Whether all of it is durable. Only a stop makes it `false`.
    private func handle(
        _ records: [KafkaRecord],
        fetchedAt: ContinuousClock.Instant
    ) async -> Bool {
        var batch = EventBatch(
            records.map(IncomingRecord.init),
            now: database.clock.now(),
            topics: topics,
            digest: sha256
        )
        engine.meters.eventsKnown.add(batch.repeats)
        var pause = Pause()
        while true {
            do {
                batch.keep(apps: try await credentials.known(among: batch.apps))
                let telling = try await credentials.tellingPushIDs(among: batch.appsInDoubt)
                batch.judgeSizes(ofTellingApps: telling, topics: topics)
                break
            } catch {
                guard await holdBack(error, &pause) else {
                    engine.flight.keepPromise(records.count)
                    return false
                }
            }
        }
        guard
            let refused = await bring(
                batch.usable,
                fetchedAt: fetchedAt,
                room: records.count
            )
        else { return false }
        for (item, reason) in refused { batch.refuse(item, because: reason) }
        let engine = engine
        return await deadLetters.write(batch.unusable.map { ($0.record, $0.reason) }) {
            engine.session.isStopping
        }
    }

    /// Brings events into the ledger, by the fast path or as rows.
    ///
    /// - Returns: Those that Postgres will never take, with the reason; `nil` when a stop came first.
    private func bring(
        _ items: [EventBatch.Usable],
        fetchedAt: ContinuousClock.Instant,
        room: Int
    ) async -> [(EventBatch.Usable, DeadLetterReason)]? {
        var (items, room) = (items, room)
        var refused: [(EventBatch.Usable, DeadLetterReason)] = []
        while true {
            guard
                let entered = await enterFastPath(items, fetchedAt: fetchedAt, room: room),
                let ofRows = await planAll(entered.rows)
            else { return nil }
            refused += ofRows
            items = []
            var rows: [EventBatch.Usable] = []
            for (item, end) in await entered.untilOver() {
                switch end {
                case .written, .erased: break
                case .known: engine.meters.eventsKnown.add()
                case .rows: rows.append(item)
                case .refused(let reason): refused.append((item, reason))
                case .lost: items.append(item)
                }
            }
            guard let late = await planAll(rows) else { return nil }
            refused += late
            if items.isEmpty { return refused }
            guard !engine.session.isStopping else { return nil }
            room = items.count
            await engine.promiseRoom(for: room)
        }
    }

    private func planAll(
        _ items: [EventBatch.Usable]
    ) async -> [(EventBatch.Usable, DeadLetterReason)]? {
        guard !items.isEmpty else { return [] }
        await gate.enter()
        defer { gate.leave() }
        var refused: [(EventBatch.Usable, DeadLetterReason)] = []
        for portion in EventBatch.portions(items, limit: engine.portion, weight: \.namedDevices) {
            guard let ofPortion = await plan(portion) else { return nil }
            refused += ofPortion
        }
        return refused
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
        while let portion = queue.next {
            await engine.waitForRoom(in: .direct, count: portion.items.count)
            guard let session = engine.session.current else {
                guard !engine.session.isStopping else { return nil }
                await engine.waitForRoom(in: .direct, count: 1)
                continue
            }
            do {
                let acceptedAt = database.clock.now()
                let result = try await database.intake.plan(
                    session: session,
                    portion.items.map { NewPush($0, acceptedAt: acceptedAt) },
                    inPages: portion.isInPages
                )
                isWell()
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
                engine.inHand.lookForStrays()
            }
        }
        return refused
    }

    private func handOn(
        _ result: PlannedBatch,
        of items: [EventBatch.Usable],
        session: Int
    ) async {
        engine.meters.eventsPlanned.add(result.newPushIDs.count)
        engine.meters.eventsKnown.add(
            items.count - result.newPushIDs.count - result.deferredPushIDs.count
        )
        plannedDeliveries.add(result.deliveries.count)
        var found: [String: PushContext] = [:]
        for item in items where result.newPushIDs.contains(item.pushID) {
            let context = PushContext(
                pushID: item.pushID,
                eventID: item.event.eventID,
                source: item.event.source,
                request: item.event.request
            )
            found[item.pushID] = context
            contexts.remember(context)
        }
        if !result.planningPushIDs.isEmpty { onPlanning() }
        await engine.take(result.deliveries, of: found, session: session, isFirst: true)
    }

    /// What could not be done can be.
    func isWell() { trouble.clear(Self.cannotPlan) }

    /// Waits out what is not the records' fault.
    ///
    /// - Returns: `false` when a stop came first.
    func holdBack(_ error: any Error, _ pause: inout Pause) async -> Bool {
        if engine.session.isStopping { return false }
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
    convenience init(_ item: EventBatch.Usable, acceptedAt: Instant) {
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

/// How many batches are planned at once.
///
/// Confined to the loop.
final class PlannerGate: @unchecked Sendable {
    private var free: Int
    private var waiters: [CheckedContinuation<Void, Never>] = []

    init(_ count: Int) { free = count }

    nonisolated(nonsending) func enter() async {
        // Looked at in the closure, before which the task may be queued once more.
        await withCheckedContinuation { waiter in
            if free > 0 {
                free -= 1
                waiter.resume()
            } else {
                waiters.append(waiter)
            }
        }
    }

    func leave() {
        if waiters.isEmpty {
            free += 1
        } else {
            waiters.removeFirst().resume()
        }
    }
}
