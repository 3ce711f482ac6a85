import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

/// Works under the session beside the rows: a shard's run.
protocol SessionWork: AnyObject, Sendable {
    /// Slots of the flight budget are free.
    func roomAppeared()
    /// A stop has begun: nothing more is sent.
    func stop()
    /// The session is lost.
    func drop()
}

/// Sends the rows that this process owns.
///
/// Authority: every row between "it is ours in the table" and its end, which `RunRecorder` writes
/// down. Members of shards are `MemberSender`'s; both have the same session (`WorkSession`), budget
/// (`FlightRoom`), decisions (`OutcomePolicy`) and recorder (`RunRecorder`). In
/// flight are at most `DISPATCH_IN_FLIGHT`. A row beyond its provider's share waits here for it, and whoever brings
/// more waits too (`ProviderBacklog`); one whose provider is slow or ill goes back due later,
/// uncounted, and a member stays where it is.
///
/// Flow of a row: `take` → `prepare` → the provider's client → `answered` → `RunRecorder`: outcomes
/// acknowledged by Kafka → settled in one transaction with the others of its batch (promise 4).
/// All of it moves in batches; nothing awaits per delivery.
///
/// States: idle without a session, working under one, stopping. A lost session drops what it owned
/// without a word: its rows and shards belong to somebody else, who will send them.
///
/// Shutdown: takes nothing more, waits for the answers that are due, records them, and leaves the
/// rest to `SessionKeeper`, which hands back whatever is still owned.
actor DeliveryEngine: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "deliveries"
    nonisolated let trouble = Trouble()
    nonisolated func notReadyReason() -> String? { trouble.reason }

    /// Rows that should come at once: so that what several bring finds room to wait.
    nonisolated let portion: Int
    let credentials: CredentialDirectory
    let log: Log
    nonisolated let clock: DatabaseClock
    nonisolated let meters: DeliveryMeters
    nonisolated let session = WorkSession()
    nonisolated let flight: FlightRoom
    nonisolated let healths: ProviderHealths
    nonisolated let policy: OutcomePolicy
    var random = FastRandom()
    nonisolated let members: MemberSender
    nonisolated let backlogs: RowBacklogs
    nonisolated let inHand = WorkInHand()
    nonisolated let recorder: RunRecorder
    /// Events that are sent and not written down, by the push that they become.
    nonisolated let lane = EventLane()
    /// How long a stop waits for answers, from its first sign.
    private let drainLimit: Duration
    /// What is worked on beside the rows.
    private var shards: [any SessionWork] = []
    private var drained: CheckedContinuation<Void, Never>?

    init(
        database: PushDatabase,
        producer: KafkaProducer,
        credentials: CredentialDirectory,
        bells: [Bell],
        configuration: DispatcherConfiguration,
        runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        log = runtime.log
        clock = database.clock
        self.credentials = credentials
        meters = DeliveryMeters(runtime.metrics)
        drainLimit = configuration.shutdownGrace * 0.75
        portion = max(1, configuration.inFlight / 8)
        flight = FlightRoom(total: configuration.inFlight, session: session) {
            bells[$0.rawValue].ring()
        }
        backlogs = RowBacklogs(room: flight, clock: clock, loop: loop)
        healths = ProviderHealths(
            backlogLimit: portion,
            share: flight.budget.perClient,
            meters: meters,
            log: log
        )
        policy = OutcomePolicy(
            maximumAge: Int64(configuration.deliveryRetention / .milliseconds(2))
        )
        recorder = RunRecorder(
            log: producer,
            topic: configuration.topics.pushOutcomes,
            ledger: database.ledger,
            session: session,
            inHand: inHand,
            trouble: trouble,
            meters: meters,
            loop: loop,
            logger: log
        )
        members = MemberSender(
            room: flight,
            session: session,
            credentials: credentials,
            policy: policy,
            clock: clock,
            meters: meters
        )
        connect()
    }

    private nonisolated func connect() {
        flight.isPressed = { [backlogs] in backlogs.isPressed }
        backlogs.onReady = { [weak self] rows in
            self?.assumeIsolated { $0.send(rows, $0.clock.now()) }
        }
        backlogs.onHandBack = { [weak self] owned, due, now in
            self?.assumeIsolated { $0.giveBack(owned, at: due, now) }
        }
        recorder.onReleased = { [weak self] batch in self?.assumeIsolated { $0.release(batch) } }
        recorder.onLost = { [weak self] session in
            self?.assumeIsolated { $0.abandon(session: session) }
        }
        members.onFreed = { [weak self] in self?.assumeIsolated { $0.roomAppeared() } }
    }

    // MARK: Sessions

    /// What is taken from now on is owned by this session.
    func begin(session: Int) {
        self.session.begin(session)
        flight.wakeWaiters()
    }

    /// The session's rows and shards are another's now. What waits at the providers' clients is not
    /// sent any more, and answers still to come are dropped when they come.
    func abandon(session: Int) {
        guard self.session.lose(session) else { return }
        inHand.drop()
        for shard in shards { shard.drop() }
        backlogs.dropAll()
        drop(lane.all)
        recorder.drop()
        credentials.withdrawAll()
    }

    /// The session to write under; `nil` while there is none.
    var currentSession: Int? { session.current }

    /// The session to claim under: none while stopping.
    var workingSession: Int? { session.working }

    var isStopping: Bool { session.isStopping }

    /// When a stop waits for answers no longer.
    var stopsAt: ContinuousClock.Instant? { session.stopsAt }

    func isCurrent(_ session: Int) -> Bool { self.session.isCurrent(session) }

    // MARK: Strays

    /// A row may be ours without anybody working on it: the answer to the transaction that made it
    /// ours was lost.
    func lookForStrays() { inHand.lookForStrays() }

    var isLookWanted: Bool { inHand.isLookWanted }

    func strays(among owned: Set<DeliveryKey>, session: Int) -> Set<DeliveryKey> {
        isCurrent(session) ? inHand.strays(among: owned) : []
    }

    func strayPlans(among claimed: Set<String>, session: Int) -> Set<String> {
        isCurrent(session) ? inHand.strayPlans(among: claimed) : []
    }

    /// On the loop: a planner works on this push from now on.
    nonisolated func begins(planning pushID: String) { inHand.begins(planning: pushID) }

    /// On the loop.
    nonisolated func ends(planning pushID: String) { inHand.ends(planning: pushID) }

    /// These are ours in the table, and worked on.
    func hold(_ deliveries: [Delivery]) {
        for delivery in deliveries { inHand.take(delivery.key) }
    }

    // MARK: Shards

    func add(_ shard: any SessionWork) {
        shards.append(shard)
        meters.shardsHeld.set(shards.count)
    }

    func remove(_ shard: any SessionWork) {
        shards.removeAll { $0 === shard }
        meters.shardsHeld.set(shards.count)
    }

    // MARK: Room

    func room(in lane: Lane) -> Int { flight.room(in: lane) }

    func isWorthClaiming(in lane: Lane) -> Bool { flight.isWorthClaiming(in: lane) }

    /// Waits until a lane has room for so many, or for a good part of all, and there is a session.
    func waitForRoom(in lane: Lane, count: Int) async {
        // Looked at in the closure, before which the task may be queued once more.
        await withCheckedContinuation { waiter in
            if flight.hasRoom(in: lane, count: count) || isStopping { return waiter.resume() }
            flight.add(waiter, waitingFor: count, in: lane)
        }
    }

    /// The same for a batch of events, whose room stays theirs until `flight.keepPromise`.
    func promiseRoom(for count: Int) async {
        await withCheckedContinuation { waiter in
            if isStopping || flight.hasRoom(in: .direct, count: count) {
                flight.promise(count)
                waiter.resume()
            } else {
                flight.add(waiter, waitingFor: count, in: .direct, isPromised: true)
            }
        }
    }

    /// Slots were given back: whoever waits for one looks again.
    private func roomAppeared() {
        flight.roomAppeared()
        for shard in shards { shard.roomAppeared() }
        if isStopping, flight.budget.owned == 0, isIdle {
            drained?.resume()
            drained = nil
        }
    }

    /// Nothing waits to be written down, and nothing is.
    private var isIdle: Bool { recorder.isIdle && lane.isEmpty }

    // MARK: Ends of deliveries

    func finish(_ owned: OwnedDelivery, _ end: DeliveryEnd) {
        if owned.slot == .direct { flight.budget.ended(owned.health.client) }
        owned.end = end
        if let event = owned.event, event.takes(owned) { return }
        recorder.add(owned)
    }

    /// Sends a delivery back, uncounted.
    func giveBack(_ owned: OwnedDelivery, at due: Instant, _ now: Instant) {
        finish(owned, DeliveryEnd(.release(at: due), of: owned.delivery, at: now))
    }

    /// Nothing of these is written down any more: their session is lost, or the drain is over.
    func drop(_ events: [LaneEvent]) {
        release(events.flatMap { $0.ended(.lost, at: .now).deliveries })
    }

    /// What was written down, or belongs to somebody else now, is in nobody's way any more.
    private func release(_ batch: [OwnedDelivery]) {
        for owned in batch {
            // What goes back has left before: somebody may have claimed it again by now, even we.
            if isCurrent(owned.session), owned.end?.outcome != nil {
                inHand.leave(owned.delivery.key)
            }
            if let use = owned.slot { flight.budget.release(use, owned.health.client) }
        }
        backlogs.sendReady()
        roomAppeared()
    }

    // MARK: Stopping

    /// The first sign of a stop: nothing is claimed or sent any more, what comes goes back.
    func prepareToStop() {
        guard session.stop(at: .now + drainLimit) else { return }
        backlogs.handBackAll()
        flight.wakeWaiters()
        for shard in shards { shard.stop() }
    }

    func run() async throws {
        await loop.untilCancelled()
        prepareToStop()
        defer {
            session.end()
            drop(lane.all)
            recorder.drop()
        }
        guard flight.budget.owned > 0 || !isIdle else { return }
        let left = max(.zero, ContinuousClock.now.duration(to: stopsAt ?? .now))
        let limit = loop.schedule(after: left) {
            self.assumeIsolated { engine in
                engine.log.warning(
                    "answers are still due; their deliveries go back",
                    [.count: .integer(engine.flight.budget.owned)]
                )
                engine.drained?.resume()
                engine.drained = nil
            }
        }
        await withCheckedContinuation { waiter in
            if flight.budget.owned > 0 || !isIdle { drained = waiter } else { waiter.resume() }
        }
        limit.cancel()
    }
}
