import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit
import Storage

/// Works on one shard: reads its members ahead, sends them through the engine, and checkpoints their
/// ends.
///
/// Authority: the shard's members after its cursor, while the session that claimed it lasts.
/// `ShardWindow` decides which members may be sent, are in flight, or have ended. This class drives
/// the window at the end of each turn of the loop with an event, and every 50 ms. It reads the next
/// page and writes the last checkpoint while sending continues. If the push is cancelled, the
/// members are suppressed instead of sent; the rest is the same.
///
/// States: working → closing (nothing more is sent, sent members are recorded, and the shard is
/// released) → over. A shard is closed when its provider is failing, when nothing moves, when its
/// push was cancelled, and by a stop. If the session is lost, the shard is dropped in any state,
/// without a write.
@DispatchLoop
final class ShardRun: SessionWork, OrderedRun {
    typealias Window = ShardWindow<ShardMember, DeliveryEnd>

    /// The values that all runs of a process share.
    struct Environment {
        let engine: DeliveryEngine
        let database: PushDatabase
        let log: Log
        /// The budget of the lane.
        let unrecorded: UnrecordedBudget
        /// The part of the flight budget that is meant for one shard.
        let inFlightShare: Int
        /// Called when a run has ended, after it has left the engine.
        let onEnd: (ShardRun) -> Void
    }

    enum Phase {
        case working
        /// `until` is the time from which members in flight become rows.
        case closing(dueAt: Instant?, until: ContinuousClock.Instant)
        case releasing
        case over
    }

    /// The members of a page.
    private static let pageLimit = 2000
    /// The most members sent at a time, so that the shards of a process take turns.
    private static let batchLimit = 512
    private static let tick: Duration = .milliseconds(50)
    /// The longest time that an ended member waits to be recorded.
    static let checkpointWait: Duration = .milliseconds(250)
    /// How long a member in flight may hold up the checkpoint before it becomes a row.
    static let stragglerWait: Duration = .seconds(1)
    /// How long a run with unsent members may be without an answer or a send before other shards
    /// get a turn.
    private static let stallWait: Duration = .seconds(3)
    /// How long the run waits for members in flight before the shard is released.
    static let closingWait: Duration = .milliseconds(500)

    let shard: ClaimedShard
    let session: Int
    let context: PushContext
    let environment: Environment
    var window: Window
    private(set) var isDropped = false
    private(set) var sent = 0
    var recorded = 0

    var phase = Phase.working
    private var healths: [ClientHealth?] = Array(
        repeating: nil,
        count: Platform.allCases.count
    )
    /// Slots freed since the last turn, by platform.
    var freed = Array(repeating: 0, count: Platform.allCases.count)
    private var readTo: String?
    private var isReading = false
    private var isLoading = false
    private var isWaitingForSlots = false
    private var isWoken = false
    var hasProgress = false
    var wantsCheckpoint = false
    /// Whether a checkpoint is being written, with records or without. There is only one at a time.
    var isWriting = false
    /// The checkpoint that is being written, if it has records.
    var writing: Window.Checkpoint?
    var timer: LoopTimer?
    let begun = ContinuousClock.now
    var lastCheckpoint = ContinuousClock.now
    /// The time at which something was last answered or sent.
    var lastProgress = ContinuousClock.now

    init(
        _ shard: ClaimedShard,
        session: Int,
        context: PushContext,
        environment: Environment
    ) {
        self.shard = shard
        self.session = session
        self.context = context
        self.environment = environment
        window = Window(
            unrecorded: environment.unrecorded,
            inFlightShare: environment.inFlightShare
        )
        readTo = shard.cursor
    }

    /// Whether the run keeps a pace. The members of a cancelled push are suppressed without a pace.
    var isPaced: Bool { context.pace != nil && !shard.isCancelled }

    /// Shards of named devices use the slots of single devices.
    var use: SendBudget.Use { shard.lane == Lane.direct.rawValue ? .direct : .shards }

    var engine: DeliveryEngine { environment.engine }

    // MARK: Called from outside

    func start() {
        environment.log.debug("shard begins", details)
        timer = DispatchLoop.loop.schedule(after: Self.tick, every: Self.tick) { [weak self] in
            self?.pump()
        }
        wake()
    }

    /// Resumes sending, as slots of the flight budget are free.
    func capacityAppeared() {
        if isWaitingForSlots { wake() }
    }

    /// Requests a checkpoint, whose reply has the push's status: the push may have been cancelled.
    func look() {
        wantsCheckpoint = true
        wake()
    }

    /// Sends nothing more, and releases the shard. Members that are not answered soon become rows.
    /// The engine's drain waits for these.
    func stop() { close(dueAt: nil) }

    /// Drops the shard, as the session is lost. The next owner begins after its cursor.
    func drop() {
        guard !isDropped, !isOver else { return }
        isDropped = true
        for member in window.heldByEnded() {
            freed[member.delivery.device.provider.ordinal] += 1
        }
        end()
    }

    // MARK: Called by the sender

    func member(at position: Int) -> ShardMember? { window.member(at: position) }

    func context(at position: Int) -> PushContext { context }

    func health(at position: Int) -> ClientHealth {
        health(of: window.member(at: position)?.delivery.device.provider ?? .apns)
    }

    /// The window records which members hold slots.
    func admitted(_ position: Int) {}

    func release(_ position: Int) {
        engine.flight.budget.release(use, health(at: position).client)
    }

    func health(of platform: Platform) -> ClientHealth {
        if let known = healths[platform.ordinal] { return known }
        let health = engine.healths.health(of: shard.app, at: platform)
        healths[platform.ordinal] = health
        return health
    }

    /// Returns the first member after a position that was read and has another platform or
    /// environment.
    func other(than device: DeviceTarget, behind position: Int) -> Int? {
        window.first(behind: position) {
            $0.delivery.device.provider != device.provider
                || $0.delivery.device.environment != device.environment
        }
    }

    func ended(_ position: Int, _ end: DeliveryEnd) {
        let platform = member(at: position)?.delivery.device.provider.ordinal ?? 0
        switch window.ended(position, end) {
        case .freed: freed[platform] += 1
        case .keepsSlot: break
        case .row(let member): finishRow(member, end)
        case .unknown: assertionFailure("a member ended twice")
        }
        hasProgress = true
        wake()
    }

    // MARK: Turns

    /// Schedules one pump for all events in a turn of the loop.
    func wake() {
        guard !isWoken, !isOver else { return }
        isWoken = true
        DispatchLoop.loop.atEndOfTurn { self.pump() }
    }

    private func pump() {
        isWoken = false
        guard !isOver else { return }
        let now = ContinuousClock.now
        if hasProgress {
            hasProgress = false
            lastProgress = now
        }
        returnSlots()
        switch phase {
        case .working:
            readAhead()
            send(now)
            checkpointIfDue(now)
        case .closing(let dueAt, let until): close(now, dueAt: dueAt, until: until)
        case .releasing, .over: break
        }
    }

    func returnSlots() {
        guard freed.contains(where: { $0 > 0 }) else { return }
        let slots = freed
        freed = Array(repeating: 0, count: slots.count)
        engine.sender.free(slots, of: self)
    }

    // MARK: Reading

    private func readAhead() {
        guard !isReading, !window.hasReadAll, window.unsent < Self.pageLimit else { return }
        isReading = true
        DispatchLoop.task { await self.read() }
    }

    private func read() async {
        var pause = ExponentialBackoff()
        var retries = UnreadableShard()
        while !isOver {
            do {
                let shards = environment.database.shards
                let read = try await shards.page(shard, after: readTo, limit: Self.pageLimit)
                // Before any of these members is sent to, so that a repeat finds the badges as they
                // are now.
                let page = try await shards.prepare(session: session, shard, read)
                readTo = page.members.last?.target ?? readTo
                window.append(page.members.map(ShardMember.init), isLast: page.isLast)
                break
            } catch {
                let verdict = retries.failed(error, isCancelled: shard.isCancelled)
                if verdict != .sessionLost {
                    environment.log.warning(
                        "a shard cannot be read",
                        details.with(.error, .string("\(error)"))
                    )
                }
                switch verdict {
                case .tryAgain: await pause.wait(on: DispatchLoop.loop)
                case .sessionLost: return engine.abandon(session: session)
                case .giveBack: return giveBackUnread()
                case .end: return await endUnread()
                }
            }
        }
        isReading = false
        wake()
    }

    private func giveBackUnread() {
        close(dueAt: engine.clock.now().adding(milliseconds: UnreadableShard.waitMilliseconds))
    }

    private func endUnread() async {
        do {
            try await environment.database.ledger.endUnread(session: session, shard)
            drop()
        } catch let error as StorageError where error.kind == .sessionLost {
            engine.abandon(session: session)
        } catch {
            giveBackUnread()
        }
    }

    // MARK: Sending

    private func send(_ now: ContinuousClock.Instant) {
        let wanted = window.worthSending(atMost: Self.batchLimit)
        if wanted > 0 {
            send(wanted, now)
        } else if window.unsent == 0 {
            // Waiting for a page, or for the end, does not count as a stall.
            lastProgress = max(lastProgress, now - Self.stragglerWait)
        }
        if case .working = phase, window.unsent > 0, !isWriting,
            now - lastProgress >= Self.stallWait
        {
            environment.log.debug("shard paused", details)
            close(dueAt: engine.clock.now().adding(milliseconds: 1000))
        }
    }

    private func send(_ wanted: Int, _ now: ContinuousClock.Instant) {
        var count = wanted
        if isPaced {
            count = context.pace?.take(wanted, at: MonotonicInstant.now().milliseconds) ?? 0
            guard count > 0 else {
                // Waiting for its own pace does not count as a stall.
                lastProgress = now
                return
            }
        }
        let (done, stop) = sendNext(count)
        if isPaced { context.pace?.giveBack(count - done) }
        sent += done
        if done > 0 { lastProgress = now }
        isWaitingForSlots = false
        switch stop {
        case nil: if window.room > 0, !isPaced { wake() }
        case .noRoom: isWaitingForSlots = true
        case .ill(let time):
            environment.log.debug("shard waits for its provider", details)
            close(dueAt: time)
        case .unready: loadCredentials()
        }
    }

    private func sendNext(_ count: Int) -> (done: Int, stop: RunSender.Stop?) {
        let positions = window.take(count)
        let (done, stop) = engine.sender.send(positions, of: self)
        if done < positions.count { window.putBack(from: positions.lowerBound + done) }
        return (done, stop)
    }

    private func loadCredentials() {
        guard !isLoading else { return }
        isLoading = true
        DispatchLoop.task {
            _ = await self.engine.loadCredentials(of: [self.shard.app], session: self.session)
            self.isLoading = false
            self.wake()
        }
    }
}
