import Cryptography
import EventLoop
import Observability
import PushCore
import PushProviders
import PushStorage

/// Sends the members of runs, and decides their ends by the answers.
///
/// It takes members in batches and looks up the shared values of a batch once: the client, the
/// payload, the slots of the flight budget. A shard's members are sent in order, up to one that has
/// to wait. Members of other runs are sent in any order. If one has to wait for its provider's
/// share, it waits here (`RunSender+Waiting`) or is due later.
///
/// Authority: members from their hand-over until their end, which is reported to their run.
@DispatchLoop
final class RunSender {
    /// The reason why a part of a shard's batch was not sent.
    enum Stop: Equatable {
        /// No slot is free, or the provider has used up its share.
        case noRoom
        /// The provider's circuit breaker is open until then.
        case ill(until: Instant)
        /// The app's credentials must be read again.
        case unready
    }

    let room: SendSlots
    let session: WorkSession
    private let credentials: any ClientDirectory
    private let policy: OutcomePolicy
    let clock: DatabaseClock
    private let meters: DeliveryMetrics
    private var random = FastRandom()
    /// Called when slots are free again.
    var onFreed: () -> Void = {}
    /// The providers that have waiting members.
    var waited: [ClientHealth] = []
    var timer: LoopTimer?

    init(
        room: SendSlots,
        session: WorkSession,
        credentials: any ClientDirectory,
        policy: OutcomePolicy,
        clock: DatabaseClock,
        meters: DeliveryMetrics
    ) {
        self.room = room
        self.session = session
        self.credentials = credentials
        self.policy = policy
        self.clock = clock
        self.meters = meters
    }

    // MARK: In order

    /// Sends the next members of a shard.
    ///
    /// - Parameters:
    ///   - positions: The positions, in order, taken from the window of the shard.
    ///   - run: The shard's run.
    /// - Returns: The number of members that are done, and why the others are not.
    func send(_ positions: Range<Int>, of run: any OrderedRun) -> (done: Int, stop: Stop?) {
        let now = clock.now()
        var slots = Platform.allCases.map { _ in 0 }
        var table = RouteTable(credentials, room: positions.count, at: now)
        var other = -1
        var stop: Stop?
        var position = positions.lowerBound
        while position < positions.upperBound, let member = run.member(at: position) {
            let health = run.health(at: position)
            let platform = member.delivery.device.provider.ordinal
            if slots[platform] == 0 {
                slots[platform] = room.budget.admitBatch(
                    run.use,
                    health.client,
                    atMost: positions.upperBound - position
                )
                guard slots[platform] > 0 else {
                    stop = .noRoom
                    break
                }
            }
            switch prepare(member, at: position, of: run, health, &table, now) {
            case .routed: break
            case .ended(let end): run.ended(position, end)
            case .unready: stop = .unready
            case .ill(let steady, let wait):
                if other <= position {
                    other = run.other(than: member.delivery.device, behind: position) ?? -1
                }
                guard other > position else {
                    stop = .ill(until: now.adding(milliseconds: wait))
                    break
                }
                // Members of other providers must not wait for this one.
                let due = health.dueTime(after: wait, at: steady, now, &random)
                run.ended(position, .postponed(member.delivery, until: due, at: now))
            }
            guard stop == nil else { break }
            slots[platform] -= 1
            position += 1
        }
        for platform in Platform.allCases where slots[platform.ordinal] > 0 {
            let client = run.health(of: platform).client
            room.budget.release(run.use, client, slots[platform.ordinal])
        }
        let done = position - positions.lowerBound
        meters.membersSent.add(table.routes.reduce(0) { $0 + $1.positions.count })
        handOver(table, of: run, shard: run.use)
        return (done, stop)
    }

    /// Frees slots that a shard's ended members held, by platform.
    func free(_ slots: [Int], of run: any OrderedRun) {
        for platform in Platform.allCases where slots[platform.ordinal] > 0 {
            let client = run.health(of: platform).client
            room.budget.release(run.use, client, slots[platform.ordinal])
        }
        if slots.contains(where: { $0 > 0 }) { onFreed() }
    }

    // MARK: In any order

    /// Sends members of rows and of inline runs, which need no order.
    ///
    /// - Parameters:
    ///   - positions: Members that are not sent yet.
    ///   - run: A run that is not a shard's.
    ///   - keepsPace: Whether members beyond the pace of their push are released until later.
    ///     Retries ignore the pace: their backoff has spread them.
    func send(_ positions: Range<Int>, of run: any Run, keepsPace: Bool = false) {
        let (now, time) = (clock.now(), MonotonicInstant.now().milliseconds)
        var ready: [Int] = []
        ready.reserveCapacity(positions.count)
        for position in positions {
            guard let member = run.member(at: position) else { continue }
            let health = run.health(at: position)
            if keepsPace, let wait = run.context(at: position).pace?.reserve(at: time) {
                release(position, of: run, at: now.adding(milliseconds: wait), now)
            } else if session.isStopping {
                release(position, of: run, at: now, now)
            } else if member.use != .direct || health.backlog.isEmpty,
                room.budget.admit(member.use, health.client)
            {
                run.admitted(position)
                ready.append(position)
            } else {
                wait(position, of: run, now)
            }
        }
        send(ready, of: run, now)
        // Slots may be free for members that wait.
        sendReady()
    }

    /// Sends members that hold their slots.
    func send(_ ready: [Int], of run: any Run, _ now: Instant) {
        guard !ready.isEmpty else { return }
        var table = RouteTable(credentials, room: min(ready.count, 64), at: now)
        for position in ready {
            guard let member = run.member(at: position) else { continue }
            let health = run.health(at: position)
            switch prepare(member, at: position, of: run, health, &table, now) {
            case .routed: break
            case .ended(let end): finish(position, of: run, member, health, end)
            case .unready:
                let end = DeliveryEnd(.release(at: now), of: member.delivery, at: now)
                finish(position, of: run, member, health, end)
            case .ill(let steady, let wait):
                let due = health.dueTime(after: wait, at: steady, now, &random)
                let end = DeliveryEnd.postponed(member.delivery, until: due, at: now)
                finish(position, of: run, member, health, end)
            }
        }
        handOver(table, of: run)
    }

    /// Ends a member that holds a slot, which it keeps until its end is recorded.
    private func finish(
        _ position: Int,
        of run: any Run,
        _ member: ShardMember,
        _ health: ClientHealth,
        _ end: DeliveryEnd
    ) {
        if member.use == .direct { room.budget.ended(health.client) }
        run.ended(position, end)
    }

    /// Releases a member that holds no slot. It is due later, and this does not count as an
    /// attempt.
    func release(_ position: Int, of run: any Run, at due: Instant, _ now: Instant) {
        guard let member = run.member(at: position) else { return }
        run.ended(position, DeliveryEnd(.release(at: due), of: member.delivery, at: now))
    }

    // MARK: Before sending

    private enum Preparation {
        case routed
        case ended(DeliveryEnd)
        case unready
        /// The provider's circuit breaker is open, from this time on for so many milliseconds.
        case ill(MonotonicInstant, Int64)
    }

    /// Adds a member to its route, or returns why it is not sent.
    private func prepare(
        _ member: ShardMember,
        at position: Int,
        of run: any Run,
        _ health: ClientHealth,
        _ table: inout RouteTable,
        _ now: Instant
    ) -> Preparation {
        let delivery = member.delivery
        let context = run.context(at: position)
        if let end = policy.unsendable(
            delivery,
            switchedOff: credentials.switchedOff(delivery.device.provider, of: delivery.app),
            expiresAt: policy.expiry(of: delivery, spread: context.spreadMilliseconds),
            now
        ) {
            return .ended(end)
        }
        do throws(RouteTable.Obstacle) {
            let (route, payload, overwrites) = try table.find(delivery, of: context, health)
            let environment = delivery.device.environment
            if health.breakers[environment].isOpen {
                let steady = MonotonicInstant.now()
                if case .later(let time) = health.breakers[environment].admit(now: steady) {
                    return .ill(steady, time.milliseconds(since: steady))
                }
            }
            table.add(
                OutgoingNotification(
                    notificationID: context.notificationID(of: delivery.target),
                    target: delivery.device,
                    payload: payload,
                    expiration: delivery.expiresAt?.seconds,
                    apnsTopic: delivery.apnsTopic ?? context.apnsTopic,
                    apnsTopicIsExplicit: delivery.apnsTopic != nil,
                    isUrgent: delivery.lane == Lane.direct.rawValue,
                    delivery: delivery.device.provider == .connection
                        ? context.stored(delivery) : nil
                ),
                at: position,
                overwrites: overwrites,
                to: route
            )
            return .routed
        } catch {
            switch error {
            case .unready: return .unready
            case .failure(let reason):
                return .ended(DeliveryEnd(.settle(.failed), of: delivery, reason: reason, at: now))
            }
        }
    }

    /// - Parameters:
    ///   - table: The members that are sent, by route.
    ///   - run: Their run.
    ///   - shard: The use of the slots that a shard's members hold; `nil` for other runs.
    private func handOver(_ table: RouteTable, of run: any Run, shard: SendBudget.Use? = nil) {
        // Only a broadcast's members leave the share of single devices alone.
        let isInBacklog = shard != .shards
        for route in table.routes where !route.positions.isEmpty {
            let (positions, overwrites) = (route.positions, route.overwrites)
            let (health, platform) = (route.health, route.platform)
            let started = ContinuousClock.now
            if isInBacklog {
                health.backlog.sent(
                    positions.count,
                    ofShard: shard != nil,
                    at: MonotonicInstant.now().milliseconds
                )
            }
            run.reached(.rendered, positions, at: started)
            meters.inFlight.add(positions.count)
            let completion = DispatchLoop.callback { (index: Int, answer: ProviderAnswer) in
                if isInBacklog {
                    health.backlog.answered(
                        ofShard: shard != nil,
                        at: MonotonicInstant.now().milliseconds
                    )
                }
                self.answered(
                    positions[index],
                    of: run,
                    answer,
                    platform,
                    health,
                    isShard: shard != nil,
                    repeatOverwrites: overwrites[index],
                    since: started
                )
            }
            route.client.send(route.notifications, completion: completion)
            run.reached(.handedOver, positions, at: .now)
        }
    }

    // MARK: Answers

    /// Handles one answer of a provider, or its absence.
    private func answered(
        _ position: Int,
        of run: any Run,
        _ answer: ProviderAnswer,
        _ platform: Platform,
        _ health: ClientHealth,
        isShard: Bool,
        repeatOverwrites: Bool,
        since started: ContinuousClock.Instant
    ) {
        // A member that is answered after the drain is released with the session, and its attempt
        // is not counted.
        if session.hasEnded { return meters.inFlight.add(-1) }
        let answeredAt = ContinuousClock.now
        meters.answered(platform, answer.outcome, started.duration(to: answeredAt))
        guard !run.isDropped, let member = run.member(at: position) else {
            run.release(position)
            return onFreed()
        }
        run.reached(.answered, [position], at: answeredAt)
        let now = clock.now()
        let heard = health.recordAnswer(
            answer.outcome,
            about: member.delivery,
            isOurs: session.isCurrent(run.session),
            .now()
        )
        let context = run.context(at: position)
        let end = policy.answered(
            answer,
            member.delivery,
            expiresAt: policy.expiry(of: member.delivery, spread: context.spreadMilliseconds),
            isOnce: context.isNowOrNever,
            repeatOverwrites: repeatOverwrites,
            unsent: heard.unsent,
            keepsToken: heard.keepsToken,
            jitter: Double.random(in: 0..<1, using: &random),
            now
        )
        if isShard {
            run.ended(position, end)
        } else {
            finish(position, of: run, member, health, end)
        }
    }
}
