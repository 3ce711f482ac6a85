import EventLoop
import Observability
import PushCore
import PushProviders
import PushStorage

/// Sending the members of shards.
///
/// By the hundred thousand, so what they share is looked up once for each batch: the client, the
/// payload, the slots of the flight budget. Nothing is hashed for a single member.
extension DeliveryEngine {
    /// Why a batch of members was not sent whole.
    enum MembersStop: Equatable {
        /// The flight budget, or its provider's share of it, is used up.
        case noRoom
        /// The provider is ill: not before then.
        case ill(until: Instant)
        /// The app's credentials must be read again.
        case unready
    }

    /// A batch of members needs as many free slots at least, where its provider has some of its own
    /// in flight: one by one they would cost more than they gain.
    private var smallestBatch: Int { max(1, min(32, budget.total / 64)) }

    /// Sends the next members of a shard.
    ///
    /// - Returns: How many left the window's unsent ones, and why not all did.
    func sendMembers(of run: ShardRun, atMost count: Int) -> (sent: Int, stop: MembersStop?) {
        guard credentials.isLoaded(run.shard.app) else { return (0, .unready) }
        let now = Instant.now()
        let range = run.window.take(count)
        var slots = MemberSlots()
        var routes = MemberRoutes(room: range.count)
        var stop: MembersStop?
        var other = -1
        var position = range.lowerBound
        while position < range.upperBound {
            let member = run.window[position]
            let platform = member.delivery.device.provider
            let health = run.health(of: platform, in: self)
            if slots.free[platform.ordinal] == 0 {
                let granted = admit(range.upperBound - position, health.client)
                guard granted > 0 else {
                    stop = .noRoom
                    break
                }
                slots.free[platform.ordinal] = granted
            }
            let verdict = route(member, at: position, of: run, health, &routes, now)
            if case .ill(let time) = verdict {
                if other <= position {
                    other = run.other(than: member.delivery.device, behind: position) ?? -1
                }
                guard other > position else {
                    stop = .ill(until: time)
                    break
                }
                // The others must not wait for it.
                let wait = time.milliseconds - now.milliseconds
                let due = health.dueTime(after: wait, at: .now(), now, &random)
                end(position, of: run, .handBack(at: due), nil, now)
            }
            slots.free[platform.ordinal] -= 1
            position += 1
        }
        for platform in Platform.allCases where slots.free[platform.ordinal] > 0 {
            let client = run.health(of: platform, in: self).client
            budget.release(.shards, client, slots.free[platform.ordinal])
        }
        if position < range.upperBound { run.window.putBack(from: position) }
        for route in routes.all where !route.positions.isEmpty { hand(over: route, of: run) }
        return (position - range.lowerBound, stop)
    }

    private func admit(_ count: Int, _ client: FlightBudget.Client) -> Int {
        let granted = budget.admit(.shards, client, atMost: count)
        guard granted < min(count, smallestBatch), budget.owned(for: .shards) > granted else {
            return granted
        }
        budget.release(.shards, client, granted)
        return 0
    }

    private enum Routing {
        case done
        case ill(until: Instant)
    }

    /// Puts a member where it leaves, or ends it where it cannot.
    private func route(
        _ member: ShardMember,
        at position: Int,
        of run: ShardRun,
        _ health: ProviderHealth,
        _ routes: inout MemberRoutes,
        _ now: Instant
    ) -> Routing {
        if let (decision, answer) = unsendable(
            suppression: member.delivery.suppression,
            switchedOff: credentials.switchedOff(
                member.delivery.device.provider,
                of: member.delivery.app
            ),
            expiresAt: expiry(of: member.delivery, run.context),
            wantedUntil: member.delivery.expiresAt,
            now
        ) {
            end(position, of: run, decision, answer, now)
            return .done
        }
        let variant = run.context.variant(
            for: member.delivery.locale,
            member.delivery.values
        )
        let index =
            routes.index(of: member, variant)
            ?? routes.add(
                makeRoute(for: member.delivery, variant, of: run, health, room: routes.room)
            )
        let route = routes.all[index]
        let payload: RenderedPayload
        switch route.payload(of: member) {
        case .success(let rendered): payload = rendered
        case .failure(let refusal):
            end(position, of: run, .settle(.failed), refusal.answer, now)
            return .done
        }
        let environment = member.delivery.device.environment
        if health.breakers[environment].isOpen {
            let steady = SteadyInstant.now()
            if case .later(let time) = health.breakers[environment].admit(now: steady) {
                return .ill(until: now.adding(milliseconds: time.milliseconds(since: steady)))
            }
        }
        route.positions.append(position)
        route.notifications.append(
            OutgoingNotification(
                notificationID: run.context.notificationID(of: member.delivery.key.target),
                target: member.delivery.device,
                payload: payload,
                expiration: member.delivery.expiresAt?.seconds,
                apnsTopic: member.delivery.apnsTopic ?? run.context.apnsTopic,
                apnsTopicIsExplicit: member.delivery.apnsTopic != nil
            )
        )
        return .done
    }

    private func makeRoute(
        for delivery: Delivery,
        _ variant: String?,
        of run: ShardRun,
        _ health: ProviderHealth,
        room: Int
    ) -> MemberRoute {
        let topic = delivery.apnsTopic ?? run.context.apnsTopic
        let way: MemberRoute.Way
        switch credentials.client(for: delivery, apnsTopic: topic) {
        case .misconfigured(let reason):
            way = .none(MemberRoute.Refusal(ProviderAnswer(.misconfigured, reason: reason)))
        case .client(let client):
            do {
                let platform = delivery.device.provider
                way = .client(client, try run.context.template(platform, variant: variant))
            } catch {
                way = .none(MemberRoute.Refusal(error))
            }
        }
        return MemberRoute(delivery, variant, way: way, health: health, room: room)
    }

    private func hand(over route: MemberRoute, of run: ShardRun) {
        guard case .client(let client, let template) = route.way else { return }
        let (positions, health, platform) = (route.positions, route.health, route.platform)
        let overwrites = template.repeatOverwrites
        let started = ContinuousClock.now
        meters.inFlight.add(positions.count)
        meters.membersSent.add(positions.count)
        client.send(route.notifications) { index, answer in
            self.assumeIsolated { engine in
                engine.memberAnswered(
                    positions[index],
                    of: run,
                    answer,
                    platform,
                    health,
                    repeatOverwrites: overwrites,
                    after: started.duration(to: .now)
                )
            }
        }
    }

    /// One answer of a provider, or its absence, for a member.
    private func memberAnswered(
        _ position: Int,
        of run: ShardRun,
        _ answer: ProviderAnswer,
        _ platform: Platform,
        _ health: ProviderHealth,
        repeatOverwrites: Bool,
        after duration: Duration
    ) {
        if hasEnded { return meters.inFlight.add(-1) }
        meters.answered(platform, answer.outcome, duration)
        guard !run.isDropped else {
            budget.release(.shards, health.client)
            return roomAppeared()
        }
        guard let member = run.window.member(at: position) else { return }
        let now = Instant.now()
        let end = judge(
            answer,
            Tries(member, expiresAt: expiry(of: member.delivery, run.context)),
            health,
            repeatOverwrites: repeatOverwrites,
            isOurs: isCurrent(run.session),
            now
        )
        run.ended(position, end, at: platform, in: self)
    }

    private func end(
        _ position: Int,
        of run: ShardRun,
        _ decision: RecordedDecision,
        _ answer: ProviderAnswer?,
        _ now: Instant
    ) {
        let delivery = run.window[position].delivery
        let end = DeliveryEnd(
            decision: decision,
            answer: answer,
            at: now,
            attempts: delivery.attempts,
            unanswered: delivery.unanswered
        )
        run.ended(position, end, at: delivery.device.provider, in: self)
    }

    // MARK: Members that have become rows

    /// A checkpoint is durable. Those that it wrote down in flight are ours as rows until their
    /// answers come.
    func recorded(
        _ records: [ShardRun.Window.Checkpoint.Record],
        _ written: ShardRun.Window.Written,
        of run: ShardRun
    ) {
        meters.checkpoints.add()
        for record in records {
            if let end = record.end {
                meters.settled(end.decision, at: record.member.delivery.device.provider)
            }
        }
        for member in written.rows { ownedKeys.insert(member.delivery.key) }
        for (member, end) in written.endedRows {
            ownedKeys.insert(member.delivery.key)
            finishRow(member.delivery, of: run, end)
        }
    }

    /// A member that is a row by now has ended.
    func finishRow(_ member: Delivery, of run: ShardRun, _ end: DeliveryEnd) {
        var owned = OwnedDelivery(
            member,
            context: run.context,
            session: run.session,
            health: run.health(of: member.device.provider, in: self)
        )
        owned.attempts = end.attempts
        owned.unanswered = end.unanswered
        owned.slot = .shards
        finish(owned, end.decision, end.at, end.answer)
    }

    /// Slots that members have given back.
    func free(_ slots: [Int], of run: ShardRun) {
        var count = 0
        for platform in Platform.allCases where slots[platform.ordinal] > 0 {
            let client = run.health(of: platform, in: self).client
            budget.release(.shards, client, slots[platform.ordinal])
            count += slots[platform.ordinal]
        }
        if count > 0 { roomAppeared() }
    }
}

/// Slots that a batch was granted and has not used, by platform.
private struct MemberSlots {
    var free = Array(repeating: 0, count: Platform.allCases.count)
}

/// The members of one batch that leave the same way. A reference, as it is looked at for each of
/// them.
private final class MemberRoute {
    enum Way {
        case client(any ProviderClient, PayloadTemplate)
        case none(Refusal)
    }

    struct Refusal: Error {
        let answer: ProviderAnswer

        init(_ answer: ProviderAnswer) { self.answer = answer }

        init(_ error: RenderingError) {
            answer = ProviderAnswer(.rejected, reason: error.description)
        }
    }

    let platform: Platform
    private let environment: PushEnvironment
    private let apnsTopic: String?
    /// Of the push's languages.
    private let variant: String?
    let way: Way
    /// What all devices get, where they get the same.
    private let shared: RenderedPayload?
    let health: ProviderHealth
    var positions: [Int] = []
    var notifications: [OutgoingNotification] = []

    /// As many as the batch may have, at once.
    init(
        _ delivery: Delivery,
        _ variant: String?,
        way: Way,
        health: ProviderHealth,
        room: Int
    ) {
        // Topics that no credential has are as many as devices care to name.
        if case .client = way {
            positions.reserveCapacity(room)
            notifications.reserveCapacity(room)
        }
        platform = delivery.device.provider
        environment = delivery.device.environment
        apnsTopic = delivery.apnsTopic
        self.variant = variant
        self.way = way
        self.health = health
        if case .client(_, let template) = way, !template.isPersonal {
            shared = try? template.payload()
        } else {
            shared = nil
        }
    }

    func payload(of member: ShardMember) -> Result<RenderedPayload, Refusal> {
        if let shared { return .success(shared) }
        switch way {
        case .none(let refusal): return .failure(refusal)
        case .client(_, let template):
            do {
                return .success(
                    try template.payload(
                        values: member.delivery.values,
                        badge: member.delivery.badge
                    )
                )
            } catch {
                return .failure(Refusal(error))
            }
        }
    }

    func takes(_ member: ShardMember, _ variant: String?) -> Bool {
        platform == member.delivery.device.provider
            && environment == member.delivery.device.environment
            && apnsTopic == member.delivery.apnsTopic
            && self.variant == variant
    }
}

/// The ways of one batch: as many as there are environments, topics and languages, which are few.
private struct MemberRoutes {
    let room: Int
    var all: [MemberRoute] = []
    private var last = 0

    init(room: Int) { self.room = room }

    mutating func index(of member: ShardMember, _ variant: String?) -> Int? {
        if last < all.count, all[last].takes(member, variant) { return last }
        guard let index = all.firstIndex(where: { $0.takes(member, variant) }) else { return nil }
        last = index
        return index
    }

    mutating func add(_ route: MemberRoute) -> Int {
        all.append(route)
        last = all.count - 1
        return last
    }
}
