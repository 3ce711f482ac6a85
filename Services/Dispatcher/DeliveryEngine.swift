import EventLoop
import Kafka
import Observability
import PushCore
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

/// Sends what this process owns and records what became of it.
///
/// Authority: every delivery between "it is ours in the table" and "the table knows its end". A
/// delivery is ours as a row, or as a member of a shard that `ShardRun` works on; both meet here
/// with the same expiry, payload, breaker and budget, and part again when they end. In flight are at
/// most `DISPATCH_IN_FLIGHT`. A row beyond its provider's share waits here for it, and whoever brings
/// more waits too (`ProviderBacklog`); one whose provider is slow or ill goes back due later,
/// uncounted, and a member stays where it is.
///
/// Flow of a row: `take` → `prepare` → the provider's client → `answered` → `finish` → outcomes
/// acknowledged by Kafka → settled in one transaction with the others of its batch (promise 4).
/// Flow of a member: `sendMembers` → the provider's client → `memberAnswered` → its `ShardWindow`.
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

    let database: PushDatabase
    let producer: KafkaProducer
    let credentials: CredentialDirectory
    let outcomesTopic: String
    /// Rows that should come at once: so that what several bring finds room to wait.
    nonisolated let portion: Int
    let log: Log
    let meters: DeliveryMeters
    /// How long a stop waits for answers, from its first sign.
    private let drainLimit: Duration
    /// After this a delivery that could never be sent has expired, whatever its push says.
    private let maximumAge: Int64

    private var session: Int?
    var budget: FlightBudget
    /// Every row that is in this process' hands, to tell those apart that nobody works on.
    var ownedKeys: Set<DeliveryKey> = []
    private(set) var healths: [FlightBudget.Client: ProviderHealth] = [:]
    /// Those for which rows wait.
    var backlogged: [ProviderHealth] = []
    var backlogTimer: LoopTimer?
    var random = FastRandom()
    private var roomWaiters: [RoomWaiter] = []
    /// Lanes whose sweeper found too little room, and the bells that tell it of more.
    private var hungry: Set<Lane> = []
    private let bells: [Bell]
    /// The shards that are worked on.
    private(set) var runs: [ShardRun] = []
    private(set) var isStopping = false
    private(set) var stopsAt: ContinuousClock.Instant?
    /// The drain is over: what is answered now is not written down.
    private(set) var hasEnded = false
    var strays = StraySearch<DeliveryKey>()
    var strayPlans = StraySearch<String>()
    /// The pushes that this process' planners work on.
    var planning: Set<String> = []

    /// Answered or decided, and not recorded yet.
    var finished: [FinishedDelivery] = []
    /// Batches that are being recorded.
    var recorders = 0
    var recordTimer: LoopTimer?
    var drained: CheckedContinuation<Void, Never>?

    private struct RoomWaiter {
        let lane: Lane
        let count: Int
        let continuation: CheckedContinuation<Void, Never>
    }

    init(
        database: PushDatabase,
        producer: KafkaProducer,
        credentials: CredentialDirectory,
        bells: [Bell],
        configuration: DispatcherConfiguration,
        runtime: ServiceRuntime
    ) {
        loop = runtime.mainLoop
        self.database = database
        self.producer = producer
        self.credentials = credentials
        self.bells = bells
        outcomesTopic = configuration.topics.pushOutcomes
        log = runtime.log
        meters = DeliveryMeters(runtime.metrics)
        drainLimit = configuration.shutdownGrace * 0.75
        maximumAge = Int64(configuration.deliveryRetention / .milliseconds(2))
        budget = FlightBudget(total: configuration.inFlight)
        portion = max(1, configuration.inFlight / 8)
    }

    // MARK: Sessions

    /// What is taken from now on is owned by this session.
    func begin(session: Int) {
        self.session = session
        wakeWaiters()
    }

    /// The session's rows and shards are another's now. What waits at the providers' clients is not
    /// sent any more, and answers still to come are dropped when they come.
    func abandon(session: Int) {
        guard self.session == session else { return }
        self.session = nil
        ownedKeys = []
        strays = StraySearch()
        strayPlans = StraySearch()
        for run in runs { run.drop() }
        dropBacklogs()
        credentials.withdrawAll()
    }

    /// The session to write under; `nil` while there is none.
    var currentSession: Int? { session }

    /// The session to claim under: none while stopping.
    var workingSession: Int? { isStopping ? nil : session }

    func isCurrent(_ session: Int) -> Bool { self.session == session }

    /// A row may be ours without anybody working on it: the answer to the transaction that made it
    /// ours was lost.
    func lookForStrays() { strays.isWanted = true }

    var inHand: Set<DeliveryKey> { ownedKeys }

    // MARK: Shards

    func add(_ run: ShardRun) {
        runs.append(run)
        meters.shardsHeld.set(runs.count)
    }

    func remove(_ run: ShardRun) {
        runs.removeAll { $0 === run }
        meters.shardsHeld.set(runs.count)
    }

    // MARK: Room

    func room(in lane: Lane) -> Int {
        isStopping ? 0 : budget.room(for: FlightBudget.Use(lane))
    }

    /// Whether a claim is worth its round trip; if not, the lane's bell rings when it is.
    func isWorthClaiming(in lane: Lane) -> Bool {
        let room = room(in: lane)
        let isWorthIt =
            room > 0 && !(lane == .direct && isPressed)
            && (room >= 200 || room >= budget.owned(for: FlightBudget.Use(lane)))
        if !isWorthIt { hungry.insert(lane) }
        return isWorthIt
    }

    /// Waits until a lane has room for so many, or for a good part of all, and there is a session.
    func waitForRoom(in lane: Lane, count: Int) async {
        if hasRoom(in: lane, count: count) || isStopping { return }
        await withCheckedContinuation { continuation in
            roomWaiters.append(RoomWaiter(lane: lane, count: count, continuation: continuation))
        }
    }

    private func hasRoom(in lane: Lane, count: Int) -> Bool {
        guard session != nil, !(lane == .direct && isPressed) else { return false }
        let room = budget.room(for: FlightBudget.Use(lane))
        if room > 0, room >= count || room * 4 >= budget.total { return true }
        // Nobody waits for what slow providers have.
        return room * 4 >= max(1, budget.total - budget.heldByFew)
    }

    /// Slots were given back: whoever waits for one looks again.
    func roomAppeared() {
        wakeWaiters()
        for lane in hungry {
            hungry.remove(lane)
            if isWorthClaiming(in: lane) { bells[lane.rawValue].ring() }
        }
        for run in runs { run.roomAppeared() }
        if isStopping, budget.owned == 0, finished.isEmpty, recorders == 0 {
            drained?.resume()
            drained = nil
        }
    }

    func wakeWaiters() {
        guard !roomWaiters.isEmpty else { return }
        let waiters = roomWaiters
        roomWaiters = []
        for waiter in waiters {
            if isStopping || hasRoom(in: waiter.lane, count: waiter.count) {
                waiter.continuation.resume()
            } else {
                roomWaiters.append(waiter)
            }
        }
    }

    // MARK: What all deliveries share

    func health(of client: FlightBudget.Client) -> ProviderHealth {
        if let known = healths[client] { return known }
        let health = ProviderHealth(
            client,
            backlog: ProviderBacklog(limit: portion, share: budget.perClient)
        )
        healths[client] = health
        return health
    }

    /// When a delivery is over, whatever its push says: rows are dropped with their day, and none
    /// may be pending then.
    func expiry(of delivery: Delivery, _ context: PushContext) -> Instant {
        let age =
            delivery.device.provider == .mpns
            ? min(maximumAge, RetryPolicy.maximumMPNSAge) : maximumAge
        // What is told last of an audience is not old by then.
        let latest = delivery.createdAt.adding(
            milliseconds: age + Int64(context.spreadMilliseconds ?? 0)
        )
        let expiresAt = delivery.expiresAt
        return min(expiresAt ?? latest, latest)
    }

    // MARK: Ends of rows

    func finish(
        _ owned: OwnedDelivery,
        _ decision: RecordedDecision,
        _ now: Instant,
        _ answer: ProviderAnswer? = nil
    ) {
        if owned.slot == .direct { budget.ended(owned.health.client) }
        finished.append(
            FinishedDelivery(owned: owned, decision: decision, answer: answer, at: now)
        )
        recordSoon()
    }

    /// What was written down, or belongs to somebody else now, is in nobody's way any more.
    func release(_ batch: [FinishedDelivery]) {
        for item in batch {
            // What goes back has left before: somebody may have claimed it again by now, even we.
            if item.owned.session == session, item.decision.outcome != nil {
                ownedKeys.remove(item.owned.delivery.key)
            }
            if let use = item.owned.slot { budget.release(use, item.owned.health.client) }
        }
        sendBacklogs()
        roomAppeared()
    }

    // MARK: Stopping

    /// The first sign of a stop: nothing is claimed or sent any more, what comes goes back.
    func prepareToStop() {
        guard !isStopping else { return }
        isStopping = true
        stopsAt = .now + drainLimit
        handBackBacklogs()
        wakeWaiters()
        for run in runs { run.stop() }
    }

    func run() async throws {
        await loop.untilCancelled()
        prepareToStop()
        defer { hasEnded = true }
        guard budget.owned > 0 || !finished.isEmpty || recorders > 0 else { return }
        let left = max(.zero, ContinuousClock.now.duration(to: stopsAt ?? .now))
        let limit = loop.schedule(after: left) {
            self.assumeIsolated { engine in
                engine.log.warning(
                    "answers are still due; their deliveries go back",
                    [.count: .integer(engine.budget.owned)]
                )
                engine.drained?.resume()
                engine.drained = nil
            }
        }
        await withCheckedContinuation { drained = $0 }
        limit.cancel()
    }
}
