import Cryptography
import Kafka
import Observability
import PushCore
import PushEvents
import PushStorage
import ServiceKit
import ServiceShell
import Storage

/// Turns the records of `push.requests`, and of `PUSH_RC`, into pushes.
///
/// A record is finished only when it is in the ledger or is a dead letter (promise 2). Events for
/// few devices take the fast path: they are looked up, sent, and written with their ends
/// (`InlineRun`). All others are planned as rows first. The consumers bound the records that are
/// outstanding.
///
/// Shutdown: leaves a batch unfinished if it cannot be planned or recorded. The partition's next
/// owner reads it again.
@DispatchLoop
final class EventIntake {
    /// The number of portions planned at once: while one is written to disk, another is read.
    private static let planners = 2
    let database: PushDatabase
    private let credentials: CredentialCache
    private let contexts: PushContextCache
    let engine: DeliveryEngine
    private let topics: KafkaTopics
    let log: Log
    let retry: RecordRetry
    private let gate = PlannerGate(planners)
    /// `DISPATCH_HOLD`.
    let hold: Duration
    let lookUps: LookUps
    /// The look-ups of large pushes, which take longer: small pushes do not wait for them.
    let largeLookUps: LookUps
    let plannedDeliveries: Counter
    private let onPlanning: @Sendable () -> Void

    init(
        database: PushDatabase,
        credentials: CredentialCache,
        contexts: PushContextCache,
        engine: DeliveryEngine,
        topics: KafkaTopics,
        hold: Duration,
        retention: Retention,
        runtime: ServiceRuntime,
        onPlanning: @escaping @Sendable () -> Void
    ) {
        self.database = database
        self.credentials = credentials
        self.contexts = contexts
        self.engine = engine
        self.topics = topics
        self.hold = hold
        let (meters, fewDevices) = (engine.meters, database.fewDevices)
        let lookUp: LookUps.LookUp = { pushes in
            // Events that still wait are read again by the partition's next owner.
            guard !engine.session.isStopping else { throw CancellationError() }
            let found = try await fewDevices.lookUp(pushes, retention)
            meters.lookUps.add(pushes.count)
            return found
        }
        lookUps = LookUps(lookUp)
        largeLookUps = LookUps(lookUp)
        self.onPlanning = onPlanning
        log = runtime.log
        retry = RecordRetry(cannot: "events cannot be planned", in: runtime) {
            DispatchLoop.assumeIsolated { engine.session.isStopping }
        }
        plannedDeliveries = runtime.metrics.counter(.pushDeliveriesPlanned, ["lane": "direct"])
    }

    /// Makes a consumer of a topic of events. It handles many batches at once, as those of the fast
    /// path wait until they are recorded, and at half load each batch has only a few records. They
    /// wait for slots, which bounds their memory.
    func consumer(
        _ name: String,
        of source: RecordSource,
        batches: Int,
        _ deadLetters: DeadLetterWriter
    ) -> RecordConsumer {
        RecordConsumer(
            name,
            of: source.consumer,
            batches: batches,
            deadLetters: deadLetters,
            retry: retry
        ) { records in await self.handle(records) }
    }

    /// - Returns: The records that can never be pushes; `nil` if a stop came first.
    private func handle(_ records: [KafkaRecord]) async -> [DeadLetterWriter.Unusable]? {
        let fetchedAt = ContinuousClock.now
        engine.meters.stages.fetched(
            records.lazy.map(\.timestampMilliseconds),
            at: database.clock.now()
        )
        await engine.promiseSlots(for: records.count)
        guard !engine.session.isStopping else {
            engine.flight.endPromise(records.count)
            return nil
        }
        var batch = EventBatch(
            records.map(IncomingRecord.init),
            now: database.clock.now(),
            topics: topics,
            digest: sha256
        )
        engine.meters.eventsKnown.add(batch.repeats)
        var pause = ExponentialBackoff()
        while true {
            do {
                batch.keep(apps: try await credentials.known(among: batch.apps))
                let appsWithPushIDs = try await credentials.includingPushIDs(
                    among: batch.appsInDoubt
                )
                batch.checkSizes(ofAppsWithPushIDs: appsWithPushIDs, topics: topics)
                break
            } catch {
                guard await retry.wait(after: error, &pause) else {
                    engine.flight.endPromise(records.count)
                    return nil
                }
            }
        }
        guard
            let refused = await bring(
                batch.usable,
                fetchedAt: fetchedAt,
                room: records.count
            )
        else { return nil }
        for (item, reason) in refused { batch.refuse(item, because: reason) }
        return batch.unusable.map { ($0.record, $0.reason) }
    }

    /// Brings events into the ledger, by the fast path or as rows.
    ///
    /// - Returns: The events that Postgres will never accept, with the reason; `nil` if a stop came
    ///   first.
    private func bring(
        _ items: [EventBatch.Usable],
        fetchedAt: ContinuousClock.Instant,
        room: Int
    ) async -> [(EventBatch.Usable, DeadLetterReason)]? {
        var (items, room) = (items, room)
        var refused: [(EventBatch.Usable, DeadLetterReason)] = []
        while true {
            guard var entered = await enterFastPath(items, fetchedAt: fetchedAt, room: room)
            else { return nil }
            // The others do not wait for the large pushes, whose look-ups may take long.
            let planning = entered.rows
            async let planned = planRows(planning)
            let isSent = await sendLarge(&entered)
            let ofRows = await planned
            // Also after a stop: what was sent is recorded before another replica reads the batch.
            let ends = await entered.waitUntilFinished()
            guard isSent, let ofRows else { return nil }
            refused += ofRows
            items = []
            var rows: [EventBatch.Usable] = []
            for (item, end) in ends {
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
            await engine.promiseSlots(for: room)
        }
    }

    /// Plans the events of a batch that do not take the fast path.
    private func planRows(
        _ items: [EventBatch.Usable]
    ) async -> [(EventBatch.Usable, DeadLetterReason)]? {
        guard let refused = await planAll(items) else { return nil }
        engine.inline.planned(items)
        return refused
    }

    /// Plans events, apps in turn: an app with many events delays no other's.
    private func planAll(
        _ items: [EventBatch.Usable]
    ) async -> [(EventBatch.Usable, DeadLetterReason)]? {
        let groups = EventBatch.groups(items, mustWait: gate.isFull, portion: engine.portion)
        guard groups.count > 1 else { return await planInTurn(items) }
        return await withTaskGroup { tasks in
            for group in groups { tasks.addTask { await self.planInTurn(group) } }
            var refused: [(EventBatch.Usable, DeadLetterReason)]? = []
            for await ofGroup in tasks {
                if let ofGroup { refused?.append(contentsOf: ofGroup) } else { refused = nil }
            }
            return refused
        }
    }

    /// Plans events in portions; after each, another app's portion may come first.
    private func planInTurn(
        _ items: [EventBatch.Usable]
    ) async -> [(EventBatch.Usable, DeadLetterReason)]? {
        var refused: [(EventBatch.Usable, DeadLetterReason)] = []
        for portion in EventBatch.portions(items, limit: engine.portion, weight: \.namedDevices) {
            await gate.enter(portion.first?.event.app ?? "")
            defer { gate.leave() }
            guard let ofPortion = await plan(portion) else { return nil }
            refused += ofPortion
        }
        return refused
    }

    // MARK: Planning

    /// Plans a portion, in one transaction if possible, and passes its due deliveries to the
    /// engine.
    ///
    /// - Returns: The events that Postgres will never accept, with the reason; `nil` if a stop came
    ///   first.
    private func plan(
        _ items: [EventBatch.Usable]
    ) async -> [(EventBatch.Usable, DeadLetterReason)]? {
        var queue = PlanQueue(items)
        var refused: [(EventBatch.Usable, DeadLetterReason)] = []
        var pause = ExponentialBackoff()
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
                    portion.items.map {
                        NewPush(
                            $0,
                            acceptedAt: acceptedAt,
                            prefersShard: engine.inline.isPlanning($0.pushID)
                        )
                    },
                    inPages: portion.isInPages
                )
                retry.succeeded()
                pause = ExponentialBackoff()
                queue.planned { result.deferredPushIDs.contains($0.pushID) }
                await handOn(result, of: portion.items, session: session)
            } catch let error as StorageError where error.kind == .sessionLost {
                engine.abandon(session: session)
            } catch let error as StorageError where error.isOfTheValues {
                guard let item = queue.refused() else { continue }
                refused.append((item, DeadLetterReason(.notStorable, error.description)))
            } catch {
                if let error = error as? StorageError, error.isStatementTimeout, queue.timedOut() {
                    log.warning(
                        "planning timed out; retrying with a smaller batch",
                        [.count: .integer(portion.items.count)]
                    )
                    continue
                }
                guard await retry.wait(after: error, &pause) else { return nil }
                // The transaction may have been committed.
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
        plannedDeliveries.add(result.deliveries.count + result.members)
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
}

extension NewPush {
    convenience init(
        _ item: EventBatch.Usable,
        acceptedAt: Instant,
        prefersShard: Bool = false
    ) {
        self.init(
            id: item.pushID,
            app: item.event.app,
            eventSource: item.event.source,
            eventID: item.event.eventID,
            object: item.event.object,
            request: item.event.request,
            expiresAt: item.event.request.expiresAt(acceptedAt: acceptedAt),
            releaseAt: item.event.request.releaseTime(acceptedAt: acceptedAt),
            prefersShard: prefersShard
        )
    }
}

/// Limits the number of portions of events that are planned at once. Waiting apps take turns.
@DispatchLoop
final class PlannerGate {
    private var free: Int
    private var waiters = AppTurns<CheckedContinuation<Void, Never>>()

    init(_ count: Int) { free = count }

    /// Whether the next one has to wait.
    var isFull: Bool { free == 0 }

    func enter(_ app: String) async {
        // Checked in the closure: the task may be queued once more before the closure runs.
        await withCheckedContinuation { waiter in
            if free > 0 {
                free -= 1
                waiter.resume()
            } else {
                waiters.append(waiter, of: app)
            }
        }
    }

    func leave() {
        if let next = waiters.take(atMost: 1).first {
            next.resume()
        } else {
            free += 1
        }
    }
}
