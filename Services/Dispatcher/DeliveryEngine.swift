import Cryptography
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
/// Authority: every delivery between "it is ours in the table" and "the table knows its end". Those
/// are at most `DISPATCH_IN_FLIGHT`; whatever comes beyond that, or meets a provider that is ill,
/// goes back as a row due later, uncounted.
///
/// Flow of one delivery: `take` → budget, expiry, payload, breaker → the provider's client →
/// `answered` → `finished` → outcomes acknowledged by Kafka → settled in one transaction with the
/// others of its batch (promise 4). All of it moves in batches; nothing awaits per delivery.
///
/// States: idle without a session, working under one, stopping. A lost session drops what it owned
/// without a word: its rows belong to somebody else, who will send them.
///
/// Shutdown: takes nothing more, waits for the answers that are due, records them, and leaves the
/// rest to `SessionKeeper`, which hands back whatever is still owned.
actor DeliveryEngine: ServicePart {
    nonisolated let loop: EventLoop
    nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    nonisolated let name = "deliveries"
    private static let cannotRead = "credentials cannot be read"
    nonisolated let trouble = Trouble()
    nonisolated func notReadyReason() -> String? { trouble.reason }

    let database: PushDatabase
    let producer: KafkaProducer
    let credentials: CredentialDirectory
    let topics: KafkaTopics
    let log: Log
    let meters: DeliveryMeters
    /// How long a stop waits for answers, from its first sign.
    private let drainLimit: Duration
    /// After this a delivery that could never be sent has expired, whatever its push says.
    private let maximumAge: Int64

    private var session: Int?
    private var budget: FlightBudget
    /// Every row that is in this process' hands, to tell those apart that nobody works on.
    private var ownedKeys: Set<DeliveryKey> = []
    private var breakers: [FlightBudget.Client: ProviderBreaker] = [:]
    private var waves: [FlightBudget.Client: DeadTokenWave] = [:]
    private var random = SystemRandomNumberGenerator()
    private var roomWaiters: [RoomWaiter] = []
    /// Lanes whose sweeper found too little room, and the bells that tell it of more.
    private var hungry: Set<Lane> = []
    private let bells: [Bell]
    private(set) var isStopping = false
    private var stopsAt: ContinuousClock.Instant?
    /// The drain is over: what is answered now is not written down.
    private(set) var hasEnded = false
    var strays = StraySearch()

    /// Answered or decided, and not recorded yet.
    var finished: [FinishedDelivery] = []
    var isRecording = false
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
        topics = configuration.topics
        log = runtime.log
        meters = DeliveryMeters(runtime.metrics)
        drainLimit = configuration.shutdownGrace * 0.75
        maximumAge = Int64(configuration.deliveryRetention / .milliseconds(2))
        budget = FlightBudget(total: configuration.inFlight)
    }

    // MARK: Sessions

    /// What is taken from now on is owned by this session.
    func begin(session: Int) {
        self.session = session
        wakeWaiters()
    }

    /// The session's rows are another's now. Answers still to come are dropped when they come.
    func abandon(session: Int) {
        guard self.session == session else { return }
        self.session = nil
        ownedKeys = []
        strays = StraySearch()
        // It is another's now, who sends it.
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

    // MARK: Room

    func room(in lane: Lane) -> Int { isStopping ? 0 : budget.room(in: lane) }

    /// Whether a claim is worth its round trip; if not, the lane's bell rings when it is.
    func isWorthClaiming(in lane: Lane) -> Bool {
        let room = room(in: lane)
        let isWorthIt = room > 0 && (room >= 200 || room >= budget.owned(in: lane))
        if !isWorthIt { hungry.insert(lane) }
        return isWorthIt
    }

    private func feedHungry() {
        for lane in hungry {
            hungry.remove(lane)
            if isWorthClaiming(in: lane) { bells[lane.rawValue].ring() }
        }
    }

    /// Waits until a lane has room for so many, or for a good part of all, and there is a session.
    func waitForRoom(in lane: Lane, count: Int) async {
        if hasRoom(in: lane, count: count) || isStopping { return }
        await withCheckedContinuation { continuation in
            roomWaiters.append(RoomWaiter(lane: lane, count: count, continuation: continuation))
        }
    }

    private func hasRoom(in lane: Lane, count: Int) -> Bool {
        guard session != nil else { return false }
        let room = budget.room(in: lane)
        return room > 0 && (room >= count || room * 4 >= budget.total)
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

    // MARK: Sending

    /// Takes deliveries that are already ours in the table, and sends them.
    func take(_ deliveries: [Delivery], of contexts: [String: PushContext], session: Int) async {
        guard !deliveries.isEmpty, isCurrent(session) else { return }
        for delivery in deliveries { ownedKeys.insert(delivery.key) }
        // A database that is away is waited for: the rows are ours, and the session ends by itself.
        var backoff = Pause()
        while true {
            do {
                try await credentials.load(Set(deliveries.map(\.app)))
                break
            } catch {
                trouble.set(Self.cannotRead)
                log.warning("credentials cannot be read", [.error: .string("\(error)")])
                await backoff.wait(on: loop)
            }
            // What is left here goes back when the session closes.
            guard isCurrent(session), !Task.isCancelled else { return }
        }
        trouble.clear(Self.cannotRead)
        send(deliveries, of: contexts, session: session)
    }

    private func send(
        _ deliveries: [Delivery],
        of contexts: [String: PushContext],
        session: Int
    ) {
        guard isCurrent(session) else { return }
        let now = Instant.now()
        var groups: [ObjectIdentifier: SendGroup] = [:]
        for delivery in deliveries {
            guard let context = contexts[delivery.pushID] else { continue }
            var owned = OwnedDelivery(delivery, context: context, session: session)
            guard !isStopping, budget.admit(owned.lane, owned.client) else {
                finish(owned, .handBack(at: now.adding(milliseconds: isStopping ? 0 : 1000)), now)
                continue
            }
            owned.holdsSlot = true
            switch prepare(owned, now) {
            case .finished(let decision, let answer):
                finish(owned, decision, now, answer)
            case .send(let client, let notification):
                groups[ObjectIdentifier(client), default: SendGroup(client)]
                    .add(owned, notification)
            }
        }
        for group in groups.values { hand(over: group) }
    }

    private enum Preparation {
        case finished(RecordedDecision, ProviderAnswer?)
        case send(any ProviderClient, OutgoingNotification)
    }

    /// What to do with one delivery before anything is sent.
    private func prepare(_ owned: OwnedDelivery, _ now: Instant) -> Preparation {
        let delivery = owned.delivery
        if let reason = delivery.suppression {
            return .finished(.settle(.suppressed), ProviderAnswer(.notSent, reason: reason))
        }
        if DeliveryAttempts.isExpired(at: now, expiresAt: expiry(of: delivery)) {
            return .finished(
                .settle(.expired),
                ProviderAnswer(.notSent, reason: "expired before it was sent")
            )
        }
        let client: any ProviderClient
        let apnsTopic = delivery.apnsTopic ?? owned.context.apnsTopic
        switch credentials.client(for: delivery, apnsTopic: apnsTopic) {
        case .client(let found): client = found
        case .misconfigured(let reason):
            return .finished(.settle(.failed), ProviderAnswer(.misconfigured, reason: reason))
        }
        let payload: RenderedPayload
        do {
            payload = try owned.context.payload(delivery.device.provider)
        } catch {
            return .finished(.settle(.failed), ProviderAnswer(.rejected, reason: "\(error)"))
        }
        switch breakers[owned.client, default: ProviderBreaker()].admit(now: now) {
        case .later(let time):
            // Spread over the window that follows, so that they do not all come back at once.
            let spread = Int64.random(in: 0...1000, using: &random)
            return .finished(.handBack(at: time.adding(milliseconds: spread)), nil)
        case .send: break
        }
        return .send(
            client,
            OutgoingNotification(
                notificationID: PushIdentity.notificationID(
                    pushID: delivery.pushID,
                    target: delivery.target,
                    digest: sha256
                ),
                target: delivery.device,
                payload: payload,
                expiration: delivery.expiresAt?.seconds,
                apnsTopic: apnsTopic,
                apnsTopicIsExplicit: delivery.apnsTopic != nil,
                isUrgent: delivery.lane == Lane.direct.rawValue
            )
        )
    }

    private func hand(over group: SendGroup) {
        let sent = group.deliveries
        let overwrites = group.notifications.map(\.payload.repeatOverwrites)
        let started = ContinuousClock.now
        meters.inFlight.add(sent.count)
        group.client.send(group.notifications) { [weak self] index, answer in
            self?.assumeIsolated { engine in
                engine.answered(
                    sent[index],
                    answer,
                    repeatOverwrites: overwrites[index],
                    after: started.duration(to: .now)
                )
            }
        }
    }

    /// One answer of a provider, or its absence.
    private func answered(
        _ owned: OwnedDelivery,
        _ answer: ProviderAnswer,
        repeatOverwrites: Bool,
        after duration: Duration
    ) {
        let now = Instant.now()
        // Its row goes back with the session, uncounted.
        if hasEnded { return meters.inFlight.add(-1) }
        meters.answered(owned.delivery.device.provider, answer.outcome, duration)
        if owned.session == session {
            breakers[owned.client, default: ProviderBreaker()].finished(answer.outcome, now: now)
        }
        var attempts = DeliveryAttempts(
            limit: RetryPolicy.attemptLimit,
            backoff: RetryPolicy.backoff(for: owned.delivery.device.provider, answer.outcome),
            attempts: owned.delivery.attempts,
            unanswered: owned.delivery.unanswered
        )
        let decision = attempts.finished(
            answer.outcome,
            repeatOverwrites: repeatOverwrites,
            now: now,
            expiresAt: expiry(of: owned.delivery),
            jitter: Double.random(in: 0..<1, using: &random)
        )
        var owned = owned
        owned.attempts = attempts.attempts
        owned.unanswered = attempts.unanswered
        switch decision {
        case .settle(let outcome):
            if answer.outcome == .accepted {
                waves[owned.client, default: DeadTokenWave()].alive(now: now)
            }
            finish(owned, .settle(outcome), now, answer)
        case .settleAndDisableToken(let since):
            let disables = judgeDeadToken(of: owned.client, now)
            finish(
                owned,
                disables ? .settleAndDisable(since: since) : .settle(.failed),
                now,
                answer
            )
        case .retry(let time):
            finish(owned, .retry(at: time), now, answer)
        }
    }

    /// Whether this dead token may be cleaned up (promise 9).
    private func judgeDeadToken(of client: FlightBudget.Client, _ now: Instant) -> Bool {
        switch waves[client, default: DeadTokenWave()].dead(now: now) {
        case .disable: return true
        case .keep: return false
        case .keepAndAlarm(let dead, let answers):
            log.error(
                "a sudden wave of dead tokens: none is disabled until it is over",
                [
                    .app: .string(client.app), .provider: .string(client.provider),
                    .count: .integer(dead), .detail: .string("of \(answers) answers in a minute"),
                ]
            )
            meters.deadTokenWaves.add()
            return false
        }
    }

    /// When a delivery is over, whatever its push says: rows are dropped with their day, and none
    /// may be pending then.
    private func expiry(of delivery: Delivery) -> Instant {
        let latest = delivery.createdAt.adding(milliseconds: maximumAge)
        return min(delivery.expiresAt ?? latest, latest)
    }

    // MARK: Ends

    func finish(
        _ owned: OwnedDelivery,
        _ decision: RecordedDecision,
        _ now: Instant,
        _ answer: ProviderAnswer? = nil
    ) {
        finished.append(
            FinishedDelivery(owned: owned, decision: decision, answer: answer, at: now)
        )
        recordSoon()
    }

    /// What was written down, or belongs to somebody else now, is in nobody's way any more.
    func release(_ batch: [FinishedDelivery]) {
        for item in batch {
            if item.owned.session == session { ownedKeys.remove(item.owned.delivery.key) }
            if item.owned.holdsSlot { budget.release(item.owned.lane, item.owned.client) }
        }
        wakeWaiters()
        feedHungry()
        if isStopping, budget.owned == 0, finished.isEmpty, !isRecording {
            drained?.resume()
            drained = nil
        }
    }

    // MARK: Stopping

    /// The first sign of a stop: nothing is claimed or sent any more, what comes goes back.
    func prepareToStop() {
        guard !isStopping else { return }
        isStopping = true
        stopsAt = .now + drainLimit
        wakeWaiters()
    }

    func run() async throws {
        await loop.untilCancelled()
        prepareToStop()
        defer { hasEnded = true }
        guard budget.owned > 0 || !finished.isEmpty || isRecording else { return }
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

/// One delivery that this process owns.
struct OwnedDelivery {
    let delivery: Delivery
    let context: PushContext
    let session: Int
    let lane: Lane
    let client: FlightBudget.Client
    var attempts: Int
    var unanswered: Int
    var holdsSlot = false

    init(_ delivery: Delivery, context: PushContext, session: Int) {
        self.delivery = delivery
        self.context = context
        self.session = session
        lane = Lane(rawValue: delivery.lane) ?? .broadcast
        client = FlightBudget.Client(
            app: delivery.app,
            provider: delivery.device.provider.rawValue
        )
        attempts = delivery.attempts
        unanswered = delivery.unanswered
    }
}

/// What is written down about a delivery when it leaves this process.
enum RecordedDecision: Equatable {
    case settle(Outcome)
    /// It failed because its device is gone.
    case settleAndDisable(since: Instant?)
    /// Another attempt, counted.
    case retry(at: Instant)
    /// No attempt was made, or none that counts.
    case handBack(at: Instant)

    var outcome: Outcome? {
        switch self {
        case .settle(let outcome): outcome
        case .settleAndDisable: .failed
        case .retry, .handBack: nil
        }
    }
}

struct FinishedDelivery {
    let owned: OwnedDelivery
    let decision: RecordedDecision
    let answer: ProviderAnswer?
    let at: Instant
}

/// Deliveries that go to one provider client in one call.
private struct SendGroup {
    let client: any ProviderClient
    private(set) var deliveries: [OwnedDelivery] = []
    private(set) var notifications: [OutgoingNotification] = []

    init(_ client: any ProviderClient) { self.client = client }

    mutating func add(_ delivery: OwnedDelivery, _ notification: OutgoingNotification) {
        deliveries.append(delivery)
        notifications.append(notification)
    }
}
