import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushProviders
import PushStorage
import ServiceKit
import ServiceShell
import Storage

/// A part that works under the session beside the rows: the run of a shard.
@DispatchLoop
protocol SessionWork: AnyObject, Sendable {
    /// Notes that slots of the flight budget are free.
    func capacityAppeared()
    /// Notes that a stop has begun: nothing more is sent.
    func stop()
    /// Notes that the session is lost.
    func drop()
}

/// Owns all deliveries that this process sends under its session. `RunSender` sends rows and the
/// fast path's pushes; each shard's run sends its members (`SessionWork`).
///
/// Authority: the session, and every run under it from its start until it is recorded or lost. At
/// most `DISPATCH_IN_FLIGHT` deliveries are in flight.
///
/// Flow: `take` → `RunSender` → the provider's client → `OutcomePolicy` → the run → `RunRecorder`,
/// which produces outcomes to Kafka, then writes the ledger (promise 4). All steps work on batches;
/// no task waits for a single delivery.
///
/// States: idle without a session, working under a session, stopping. If the session is lost, the
/// engine drops all that it owned without a write: the next session owns these rows and shards, and
/// sends them.
///
/// Shutdown: takes nothing more, waits for answers in flight, and records them. After three quarters
/// of the grace period it gives up what a provider, Kafka or Postgres has not answered, also if the
/// intake still waits for it. `SessionHeartbeat` then releases all rows and shards that are still
/// owned, and the offsets of events that are not recorded are not committed.
@DispatchLoop
final class DeliveryEngine: ServicePart {
    nonisolated let name = "deliveries"
    let notReady = NotReadyReasons()
    nonisolated func notReadyReason() -> String? { notReady.reason }

    private static let cannotRead = "credentials cannot be read"

    /// The most rows of one claim or portion: an eighth of all slots, so that several batches can
    /// wait.
    let portion: Int
    let credentials: CredentialCache
    let log: Log
    let clock: DatabaseClock
    let meters: DeliveryMetrics
    let session = WorkSession()
    let flight: SendSlots
    let healths: ProviderHealths
    let sender: RunSender
    let inHand = WorkInHand()
    let recorder: RunRecorder
    let services: RunServices
    let figures: OutcomeFigures
    /// The pushes of the fast path that are not recorded.
    let inline = InlinePushes()
    /// The time for which a stop waits for answers, from its beginning.
    private let drainLimit: Duration
    /// The shards that are sent beside the rows.
    private var shards: [any SessionWork] = []
    private var drained: CheckedContinuation<Void, Never>?

    init(
        database: PushDatabase,
        producer: KafkaProducer,
        credentials: CredentialCache,
        wakeUps: [WakeUp],
        configuration: DispatcherConfiguration,
        runtime: ServiceRuntime
    ) {
        log = runtime.log
        clock = database.clock
        self.credentials = credentials
        meters = DeliveryMetrics(runtime.metrics)
        drainLimit = configuration.shutdownGrace * 0.75
        portion = max(1, configuration.inFlight / 8)
        flight = SendSlots(total: configuration.inFlight, session: session) {
            wakeUps[$0.rawValue].signal()
        }
        healths = ProviderHealths(
            backlogLimit: portion,
            share: flight.budget.perClient,
            meters: meters,
            log: log
        )
        recorder = RunRecorder(
            log: producer,
            topic: configuration.common.topics.pushOutcomes,
            ledger: database.ledger,
            session: session,
            notReady: notReady,
            meters: meters,
            logger: log
        )
        figures = OutcomeFigures(at: clock.now())
        services = RunServices(
            session: session,
            room: flight,
            inHand: inHand,
            meters: meters,
            figures: figures,
            recorder: recorder
        )
        sender = RunSender(
            room: flight,
            session: session,
            credentials: credentials,
            policy: OutcomePolicy(
                maximumAge: Int64(configuration.deliveryRetention / .milliseconds(2))
            ),
            clock: clock,
            meters: meters
        )
        connect()
    }

    private func connect() {
        flight.isPressed = { [sender] in sender.isPressed }
        recorder.onFreed = { [weak self] in
            self?.sender.sendReady()
            self?.capacityAppeared()
        }
        recorder.isMoreComing = { [inline] in inline.areInFlight }
        recorder.onLost = { [weak self] session in self?.abandon(session: session) }
        sender.onFreed = { [weak self] in self?.capacityAppeared() }
    }

    // MARK: Sessions

    /// Begins a session. It owns all deliveries that are taken from now on.
    func begin(session: Int) {
        self.session.begin(session)
        flight.wakeWaiters()
    }

    /// Gives up a lost session: its rows and shards belong to another session. Notifications that
    /// wait at the providers' clients are withdrawn, and later answers are dropped.
    func abandon(session: Int) {
        guard self.session.lose(session) else { return }
        inHand.drop()
        for shard in shards { shard.drop() }
        sender.dropWaiting()
        inline.drop()
        recorder.drop()
        credentials.withdrawAll()
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

    /// Waits until a lane has `count` free slots, or a quarter of all slots, and there is a
    /// session.
    func waitForRoom(in lane: Lane, count: Int) async {
        // Checked in the closure: the task may be queued once more before the closure runs.
        await withCheckedContinuation { waiter in
            if session.isStopping || flight.hasRoom(in: lane, count: count) {
                return waiter.resume()
            }
            flight.add(waiter, waitingFor: count, in: lane)
        }
    }

    /// Waits like `waitForRoom` for a batch of events. Its slots stay promised until
    /// `flight.endPromise`. Large pushes wait only for each other's promises.
    func promiseSlots(for count: Int, isLarge: Bool = false) async {
        await withCheckedContinuation { waiter in
            if session.isStopping || flight.hasRoom(in: .direct, count: count, isLarge: isLarge) {
                flight.promise(count, isLarge: isLarge)
                waiter.resume()
            } else {
                flight.add(
                    waiter,
                    waitingFor: count,
                    in: .direct,
                    isPromised: true,
                    isLarge: isLarge
                )
            }
        }
    }

    /// Wakes the waiters after slots were released.
    private func capacityAppeared() {
        reportExcess()
        flight.capacityAppeared()
        for shard in shards { shard.capacityAppeared() }
        if session.isStopping, isDrained { resumeDrained() }
    }

    /// Reports slots that were released twice, or whose promise was ended twice: a mistake in a run.
    private func reportExcess() {
        let excess = flight.takeExcess()
        guard excess > 0 else { return }
        assertionFailure("\(excess) slots were released that were not owned")
        meters.slotExcess.add(excess)
        log.error("slots were released that were not owned", [.count: .integer(excess)])
    }

    // MARK: Sending

    /// Sends rows that this session owns already.
    ///
    /// - Parameters:
    ///   - deliveries: Rows that this session owns.
    ///   - contexts: The contexts of their pushes.
    ///   - session: The session under which they were claimed.
    ///   - isFirst: Whether they were planned just now. Only then the pace of their pushes counts.
    func take(
        _ deliveries: [Delivery],
        of contexts: [String: PushContext],
        session: Int,
        isFirst: Bool = false
    ) async {
        guard !deliveries.isEmpty, self.session.isCurrent(session) else { return }
        for delivery in deliveries { inHand.take(delivery.key) }
        // Rows that are left here are released when the session closes.
        guard await loadCredentials(of: Set(deliveries.map(\.app)), session: session) else {
            return
        }
        let run = RowRun(session: session, services)
        for delivery in deliveries {
            guard let context = contexts[delivery.pushID] else { continue }
            run.add(ShardMember(delivery), context, health(of: delivery))
        }
        sender.send(0..<run.count, of: run, keepsPace: isFirst)
    }

    /// Sends the members that were found for an inline run, and ends the promise of slots for it.
    ///
    /// - Parameters:
    ///   - run: A run; none of its members is sent yet.
    ///   - apps: The apps of its pushes.
    ///   - session: The session under which its pushes will be recorded.
    ///   - lookedUpAt: The end of the look-up.
    ///   - room: The slots that were promised to it.
    func take(
        _ run: InlineRun,
        of apps: Set<String>,
        session: Int,
        lookedUpAt: ContinuousClock.Instant,
        room: Int
    ) async {
        defer { flight.endPromise(room, isLarge: run.isLarge) }
        guard self.session.isCurrent(session),
            await loadCredentials(of: apps, session: session)
        else { return run.drop() }
        sender.send(run.begin(session: session, lookedUpAt: lookedUpAt), of: run)
    }

    func health(of delivery: Delivery) -> ClientHealth {
        healths.health(of: delivery.app, at: delivery.device.provider)
    }

    /// Loads credentials, and retries while the database is unavailable. The claims stay until the
    /// session expires.
    ///
    /// - Returns: `false` if the session ended first, or a stop came.
    func loadCredentials(of apps: Set<String>, session: Int) async -> Bool {
        var backoff = ExponentialBackoff()
        while true {
            do {
                try await credentials.load(apps)
                notReady.clear(Self.cannotRead)
                return self.session.isCurrent(session)
            } catch {
                if self.session.isStopping { return false }
                notReady.set(Self.cannotRead)
                log.warning("credentials cannot be read", [.error: .string("\(error)")])
                await backoff.wait(on: DispatchLoop.loop)
            }
            guard self.session.isCurrent(session), !Task.isCancelled else { return false }
        }
    }

    // MARK: Stopping

    /// Begins a stop: nothing is claimed or sent any more, and new deliveries are released.
    ///
    /// The drain's end is set here, and not when this part is stopped: the intake stops before, and
    /// waits for pushes that only this end gives up.
    func prepareToStop() {
        guard session.stop(at: .now + drainLimit) else { return }
        sender.releaseWaiting()
        flight.wakeWaiters()
        for shard in shards { shard.stop() }
        DispatchLoop.loop.schedule(after: drainLimit) { self.endDrain() }
    }

    @DispatchLoop func run() async throws {
        await DispatchLoop.loop.untilCancelled()
        prepareToStop()
        await withCheckedContinuation { waiter in
            if isDrained { waiter.resume() } else { drained = waiter }
        }
        endDrain()
    }

    private var isDrained: Bool {
        session.hasEnded || flight.budget.owned == 0 && recorder.isIdle && inline.isEmpty
    }

    /// Ends the wait for answers, acknowledgements and writes: what is still open goes back.
    private func endDrain() {
        guard !session.hasEnded else { return }
        if !isDrained {
            log.warning(
                "answers are still due; their deliveries go back",
                [.count: .integer(flight.budget.owned)]
            )
        }
        session.end()
        inline.drop()
        recorder.drop()
        resumeDrained()
    }

    private func resumeDrained() {
        drained?.resume()
        drained = nil
    }
}
