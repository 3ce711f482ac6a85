import EventLoop
import Observability
import PushCore
import PushProviders
import PushStorage

/// Sends the members of shards.
///
/// By the hundred thousand, so what they share is looked up once for each batch: the client, the
/// payload, the slots of the flight budget. Nothing is hashed for a single member.
///
/// Authority: members between the window that they were taken from and their end, of which that
/// window's owner is told.
///
/// Confined to the loop.
final class MemberSender: @unchecked Sendable {
    private let room: FlightRoom
    private let session: WorkSession
    private let credentials: CredentialDirectory
    private let policy: OutcomePolicy
    private let clock: DatabaseClock
    private let meters: DeliveryMeters
    private var random = FastRandom()
    /// Slots were given back.
    var onFreed: () -> Void = {}

    init(
        room: FlightRoom,
        session: WorkSession,
        credentials: CredentialDirectory,
        policy: OutcomePolicy,
        clock: DatabaseClock,
        meters: DeliveryMeters
    ) {
        self.room = room
        self.session = session
        self.credentials = credentials
        self.policy = policy
        self.clock = clock
        self.meters = meters
    }

    /// Sends the next members of a shard.
    ///
    /// - Parameters:
    ///   - members: As their window has them, one after the other.
    ///   - first: The position of the first of them.
    ///   - run: Who hears of their ends.
    /// - Returns: How many need not be offered again, why not all, and those that ended unsent.
    func send<Source: MemberSource>(_ members: [ShardMember], from first: Int, of run: Source)
        -> MembersSent
    {
        guard credentials.isLoaded(run.app) else { return MembersSent(stop: .unready) }
        let now = clock.now()
        let range = first..<first + members.count
        var sent = MembersSent()
        var slots = MemberSlots()
        var routes = MemberRoutes(room: range.count)
        var other = -1
        var position = range.lowerBound
        while position < range.upperBound {
            let member = members[position - first]
            let platform = member.delivery.device.provider
            let health = run.health(of: platform)
            if slots.free[platform.ordinal] == 0 {
                let granted = room.budget.admitBatch(
                    health.client,
                    atMost: range.upperBound - position
                )
                guard granted > 0 else {
                    sent.stop = .noRoom
                    break
                }
                slots.free[platform.ordinal] = granted
            }
            let verdict = route(member, at: position, of: run, health, &routes, &sent, now)
            if case .ill(let time) = verdict {
                if other <= position {
                    other = run.other(than: member.delivery.device, behind: position) ?? -1
                }
                guard other > position else {
                    sent.stop = .ill(until: time)
                    break
                }
                // The others must not wait for it.
                let wait = time.milliseconds - now.milliseconds
                let due = health.dueTime(after: wait, at: .now(), now, &random)
                sent.end(
                    member,
                    at: position,
                    DeliveryEnd(.release(at: due), of: member.delivery, at: now)
                )
            }
            slots.free[platform.ordinal] -= 1
            position += 1
        }
        for platform in Platform.allCases where slots.free[platform.ordinal] > 0 {
            let client = run.health(of: platform).client
            room.budget.release(.shards, client, slots.free[platform.ordinal])
        }
        for route in routes.all where !route.positions.isEmpty { hand(over: route, of: run) }
        sent.count = position - first
        return sent
    }

    private enum Routing {
        case done
        case ill(until: Instant)
    }

    /// Puts a member where it leaves, or ends it where it cannot.
    private func route<Source: MemberSource>(
        _ member: ShardMember,
        at position: Int,
        of run: Source,
        _ health: OwnedDelivery.Health,
        _ routes: inout MemberRoutes,
        _ sent: inout MembersSent,
        _ now: Instant
    ) -> Routing {
        if let end = policy.unsendable(
            member.delivery,
            switchedOff: credentials.switchedOff(
                member.delivery.device.provider,
                of: member.delivery.app
            ),
            expiresAt: policy.expiry(
                of: member.delivery,
                spread: run.context.spreadMilliseconds
            ),
            now
        ) {
            sent.end(member, at: position, end)
            return .done
        }
        let variant = run.context.variant(
            for: member.delivery.locale,
            member.delivery.values
        )
        let index =
            routes.index(of: member, variant)
            ?? routes.add(
                makeRoute(for: member.delivery, variant, of: run, health, now, room: routes.room)
            )
        let route = routes.all[index]
        let payload: RenderedPayload
        switch route.payload(of: member) {
        case .success(let rendered): payload = rendered
        case .failure(let refusal):
            sent.end(
                member,
                at: position,
                DeliveryEnd(
                    .settle(.failed),
                    of: member.delivery,
                    reason: refusal.reason,
                    at: now
                )
            )
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

    private func makeRoute<Source: MemberSource>(
        for delivery: Delivery,
        _ variant: String?,
        of run: Source,
        _ health: OwnedDelivery.Health,
        _ now: Instant,
        room: Int
    ) -> MemberRoute {
        let topic = delivery.apnsTopic ?? run.context.apnsTopic
        let way: MemberRoute.Way
        switch credentials.client(for: delivery, apnsTopic: topic) {
        case .misconfigured(let reason):
            way = .none(MemberRoute.Refusal(reason: reason))
        case .client(let client):
            do {
                let platform = delivery.device.provider
                let template = try run.context.template(
                    platform,
                    variant: variant,
                    tellsID: credentials.tellsPushIDs(delivery.app),
                    at: now
                )
                way = .client(client, template)
            } catch {
                way = .none(MemberRoute.Refusal(reason: error.description))
            }
        }
        return MemberRoute(delivery, variant, way: way, health: health, room: room)
    }

    private func hand<Source: MemberSource>(over route: MemberRoute, of run: Source) {
        guard case .client(let client, let template) = route.way else { return }
        let (positions, health, platform) = (route.positions, route.health, route.platform)
        let overwrites = template.repeatOverwrites
        let started = ContinuousClock.now
        meters.inFlight.add(positions.count)
        meters.membersSent.add(positions.count)
        client.send(route.notifications) { index, answer in
            self.answered(
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

    /// One answer of a provider, or its absence, for a member.
    private func answered<Source: MemberSource>(
        _ position: Int,
        of run: Source,
        _ answer: ProviderAnswer,
        _ platform: Platform,
        _ health: OwnedDelivery.Health,
        repeatOverwrites: Bool,
        after duration: Duration
    ) {
        if session.hasEnded { return meters.inFlight.add(-1) }
        meters.answered(platform, answer.outcome, duration)
        guard !run.isDropped else {
            room.budget.release(.shards, health.client)
            return onFreed()
        }
        guard let member = run.member(at: position) else { return }
        let now = clock.now()
        let heard = health.heard(
            answer.outcome,
            about: member.delivery,
            isOurs: session.isCurrent(run.session),
            .now()
        )
        let end = policy.answered(
            answer,
            member.delivery,
            expiresAt: policy.expiry(
                of: member.delivery,
                spread: run.context.spreadMilliseconds
            ),
            isOnce: run.context.isNowOrNever,
            repeatOverwrites: repeatOverwrites,
            unsent: heard.unsent,
            keepsToken: heard.keepsToken,
            jitter: Double.random(in: 0..<1, using: &random),
            now
        )
        run.ended(position, end, at: platform)
    }

    /// Slots that members have given back.
    func free<Source: MemberSource>(_ slots: [Int], of run: Source) {
        var count = 0
        for platform in Platform.allCases where slots[platform.ordinal] > 0 {
            let client = run.health(of: platform).client
            room.budget.release(.shards, client, slots[platform.ordinal])
            count += slots[platform.ordinal]
        }
        if count > 0 { onFreed() }
    }
}
