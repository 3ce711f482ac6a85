import EventLoop
import Observability
import PushCore
import PushStorage
import ServiceKit

/// Works on one shard: reads its members ahead, sends them through the engine, and checkpoints what
/// became of them.
///
/// Authority: the shard's members from its cursor on, while the session that claimed it lasts. What
/// is in flight, what has ended and what may be sent is `ShardWindow`'s to say; this drives it, at
/// the end of each turn of the loop in which something happened, and every 50 ms for what is due by
/// time. The next page is read and the last checkpoint is written while members go on being sent. Of a
/// cancelled push nobody is sent to, and all else is the same.
///
/// States: working → closing (nothing is sent any more; what was sent is recorded, and the shard goes
/// back) → over. A shard is closed when its provider is ill, when nothing moves, when its push was
/// cancelled, and by a stop. A lost session drops it from any state, without a word.
///
/// Confined to the loop.
final class ShardRun: SessionWork, OrderedRun, @unchecked Sendable {
    typealias Window = ShardWindow<ShardMember, DeliveryEnd>

    /// What all runs of a process share.
    struct Environment {
        let engine: DeliveryEngine
        let database: PushDatabase
        let loop: EventLoop
        let log: Log
        let checkpointEvery: Int
        /// Of what may be in flight, how much is meant for one shard.
        let inFlightShare: Int
        /// Called when a run is over, after it has left the engine.
        let onEnd: (ShardRun) -> Void
    }

    enum Phase {
        case working
        /// `until`: what is in flight then becomes rows.
        case closing(dueAt: Instant?, until: ContinuousClock.Instant)
        case releasing
        case over
    }

    /// Members of a page.
    private static let pageLimit = 2000
    /// Members sent at a time, so that the shards of a process take turns.
    private static let batchLimit = 512
    private static let tick: Duration = .milliseconds(50)
    /// What there is to record waits no longer.
    static let checkpointWait: Duration = .milliseconds(250)
    /// A member in flight becomes a row when it has held the checkpoint up for so long.
    static let stragglerWait: Duration = .seconds(1)
    /// Nothing was answered or sent for so long, and there is more to send: others get their turn.
    private static let stallWait: Duration = .seconds(3)
    /// How long what is in flight is waited for when a shard is given back.
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
    /// Slots given back since the last turn, by platform.
    var freed = Array(repeating: 0, count: Platform.allCases.count)
    private var readTo: String?
    private var isReading = false
    private var isLoading = false
    private var isHungry = false
    private var isWoken = false
    var hasProgress = false
    var wantsCheckpoint = false
    /// One at a time, be it with records or without.
    var isWriting = false
    /// The one with records.
    var writing: Window.Checkpoint?
    var timer: LoopTimer?
    let begun = ContinuousClock.now
    var lastCheckpoint = ContinuousClock.now
    /// When something was answered or sent last.
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
            checkpointEvery: environment.checkpointEvery,
            inFlightShare: environment.inFlightShare
        )
        readTo = shard.cursor
    }

    /// What was cancelled is told of as fast as it can be.
    var isPaced: Bool { context.pace != nil && !shard.isCancelled }

    var engine: DeliveryEngine { environment.engine }
    var loop: EventLoop { environment.loop }

    // MARK: From outside

    func start() {
        environment.log.debug("shard begins", details)
        timer = loop.schedule(after: Self.tick, every: Self.tick) { [weak self] in self?.pump() }
        wake()
    }

    /// Slots of the flight budget are free.
    func roomAppeared() {
        if isHungry { wake() }
    }

    /// The push may have been cancelled: the next checkpoint tells.
    func look() {
        wantsCheckpoint = true
        wake()
    }

    /// Sends nothing more, and gives the shard back. What is not answered soon becomes rows, which
    /// the engine's drain waits for.
    func stop() { close(dueAt: nil) }

    /// The session is lost: whoever takes the shard begins behind its cursor.
    func drop() {
        guard !isDropped, !isOver else { return }
        isDropped = true
        for member in window.heldByEnded() {
            freed[member.delivery.device.provider.ordinal] += 1
        }
        end()
    }

    // MARK: What its sender asks and tells

    func member(at position: Int) -> ShardMember? { window.member(at: position) }

    func context(at position: Int) -> PushContext { context }

    func health(at position: Int) -> ClientHealth {
        health(of: window.member(at: position)?.delivery.device.provider ?? .apns)
    }

    /// The window knows who holds a slot.
    func admitted(_ position: Int) {}

    func release(_ position: Int) {
        engine.flight.budget.release(.shards, health(at: position).client)
    }

    func health(of platform: Platform) -> ClientHealth {
        if let known = healths[platform.ordinal] { return known }
        let health = engine.healths.health(of: shard.app, at: platform)
        healths[platform.ordinal] = health
        return health
    }

    /// The first member of another platform or environment that was read behind a position.
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
        case .kept: break
        case .row(let member): finishRow(member, end)
        case .unknown: assertionFailure("a member ended twice")
        }
        hasProgress = true
        wake()
    }

    // MARK: Turns

    /// Once for all that happens in a turn.
    func wake() {
        guard !isWoken, !isOver else { return }
        isWoken = true
        loop.atEndOfTurn { self.pump() }
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
        Task(executorPreference: loop) { await self.read() }
    }

    private func read() async {
        var pause = Pause()
        var trouble = UnreadableShard()
        while !isOver {
            do {
                let shards = environment.database.shards
                let read = try await shards.page(shard, after: readTo, limit: Self.pageLimit)
                // Before anybody of it is sent to: a repeat must find the badges as they are.
                let page = try await shards.prepare(session: session, shard, read)
                readTo = page.members.last?.target ?? readTo
                window.append(page.members.map(ShardMember.init), isLast: page.isLast)
                break
            } catch {
                let verdict = trouble.failed(error, isCancelled: shard.isCancelled)
                if verdict != .sessionLost {
                    environment.log.warning(
                        "a shard cannot be read",
                        details.with(.error, .string("\(error)"))
                    )
                }
                switch verdict {
                case .tryAgain: await pause.wait(on: loop)
                case .sessionLost: return await engine.abandon(session: session)
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
            await engine.abandon(session: session)
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
            // Waiting for a page, or for the end, is no standstill.
            lastProgress = max(lastProgress, now - Self.stragglerWait)
        }
        if case .working = phase, window.unsent > 0, !isWriting,
            now - lastProgress >= Self.stallWait
        {
            environment.log.debug("shard stands still", details)
            close(dueAt: engine.clock.now().adding(milliseconds: 1000))
        }
    }

    private func send(_ wanted: Int, _ now: ContinuousClock.Instant) {
        var count = wanted
        if isPaced {
            count = context.pace?.take(wanted, at: SteadyInstant.now().milliseconds) ?? 0
            guard count > 0 else {
                // Waiting for its own pace is no standstill.
                lastProgress = now
                return
            }
        }
        let (done, stop) = sendNext(count)
        if isPaced { context.pace?.giveBack(count - done) }
        sent += done
        if done > 0 { lastProgress = now }
        isHungry = false
        switch stop {
        case nil: if window.room > 0, !isPaced { wake() }
        case .noRoom: isHungry = true
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
        Task(executorPreference: loop) {
            _ = await self.engine.loadCredentials(of: [self.shard.app], session: self.session)
            self.isLoading = false
            self.wake()
        }
    }
}
