import Cryptography
import EventLoop
import Observability
import PushCore
import PushProviders
import PushStorage
import ServiceKit

/// Sending rows.
extension DeliveryEngine {
    private static let cannotRead = "credentials cannot be read"

    /// Takes deliveries that are already ours in the table, and sends them.
    ///
    /// - Parameters:
    ///   - deliveries: Rows that this session owns.
    ///   - contexts: Those of their pushes.
    ///   - session: Under which they were taken.
    ///   - isFirst: Whether they were planned just now, so that a push with a pace sends what goes
    ///     beyond it later. What is tried again has been spread by its back-off.
    func take(
        _ deliveries: [Delivery],
        of contexts: [String: PushContext],
        session: Int,
        isFirst: Bool = false
    ) async {
        guard !deliveries.isEmpty, isCurrent(session) else { return }
        hold(deliveries)
        // What is left here goes back when the session closes.
        guard await loadCredentials(of: Set(deliveries.map(\.app)), session: session) else {
            return
        }
        send(deliveries, of: contexts, session: session, isFirst: isFirst)
    }

    /// Waits out a database that is away: what is ours stays ours, and the session ends by itself.
    ///
    /// - Returns: `false` where the session ended first, or a stop came.
    func loadCredentials(of apps: Set<String>, session: Int) async -> Bool {
        var backoff = Pause()
        while true {
            do {
                try await credentials.load(apps)
                trouble.clear(Self.cannotRead)
                return isCurrent(session)
            } catch {
                trouble.set(Self.cannotRead)
                log.warning("credentials cannot be read", [.error: .string("\(error)")])
                await backoff.wait(on: loop)
            }
            guard isCurrent(session), !Task.isCancelled else { return false }
        }
    }

    private func send(
        _ deliveries: [Delivery],
        of contexts: [String: PushContext],
        session: Int,
        isFirst: Bool
    ) {
        guard isCurrent(session) else { return }
        begin(
            deliveries.compactMap { delivery in
                contexts[delivery.pushID].map {
                    OwnedDelivery(
                        ShardMember(delivery),
                        context: $0,
                        session: session,
                        health: health(of: delivery)
                    )
                }
            },
            isFirst: isFirst
        )
    }

    private func health(of delivery: Delivery) -> OwnedDelivery.Health {
        healths.health(
            of: FlightBudget.Client(
                app: delivery.app,
                provider: delivery.device.provider.rawValue
            )
        )
    }

    /// Sends events before they are rows, and keeps the promise of their room.
    ///
    /// - Parameters:
    ///   - events: That are new, looked up, and in the lane; none of them is sent yet.
    ///   - session: Under which they are to be written down.
    ///   - room: What was promised for them.
    func take(_ events: [LaneEvent], session: Int, room: Int) async {
        let isLoaded =
            isCurrent(session)
            ? await loadCredentials(of: Set(events.map(\.push.app)), session: session) : false
        defer { flight.keepPromise(room) }
        guard isLoaded else { return drop(events) }
        var deliveries: [OwnedDelivery] = []
        for event in events where event.begin(session: session) {
            for (place, member) in event.members.enumerated() {
                deliveries.append(
                    OwnedDelivery(
                        member,
                        at: place,
                        of: event,
                        context: event.context,
                        session: session,
                        health: health(of: member.delivery)
                    )
                )
            }
        }
        begin(deliveries, isFirst: false)
    }

    private func begin(_ deliveries: [OwnedDelivery], isFirst: Bool) {
        let (now, time) = (clock.now(), SteadyInstant.now().milliseconds)
        var ready: [OwnedDelivery] = []
        ready.reserveCapacity(deliveries.count)
        for owned in deliveries {
            let client = owned.health.client
            if isFirst, let wait = owned.context.pace?.reserve(at: time) {
                giveBack(owned, at: now.adding(milliseconds: wait), now)
            } else if isStopping {
                giveBack(owned, at: now, now)
            } else if owned.use != .direct || owned.health.backlog.isEmpty,
                flight.budget.admit(owned.use, client)
            {
                owned.slot = owned.use
                ready.append(owned)
            } else {
                backlogs.wait(owned, now)
            }
        }
        send(ready, now)
        // Slots may have been free behind what waits.
        backlogs.sendReady()
    }

    /// Sends rows that hold their slots.
    func send(_ ready: [OwnedDelivery], _ now: Instant) {
        var groups: [ObjectIdentifier: RowGroup] = [:]
        for owned in ready {
            switch prepare(owned, now) {
            case .finished(let end): finish(owned, end)
            case .send(let client, let notification):
                owned.event?.reached(.rendered, at: .now)
                groups[ObjectIdentifier(client), default: RowGroup(client, owned.use)]
                    .add(owned, notification)
            }
        }
        for group in groups.values { hand(over: group) }
    }

    private enum Preparation {
        case finished(DeliveryEnd)
        case send(any ProviderClient, OutgoingNotification)
    }

    /// What to do with one delivery before anything is sent.
    private func prepare(_ owned: OwnedDelivery, _ now: Instant) -> Preparation {
        let delivery = owned.delivery
        func ends(_ decision: DeliveryEnd.Decision, _ reason: String? = nil) -> Preparation {
            .finished(DeliveryEnd(decision, of: delivery, reason: reason, at: now))
        }
        if let end = policy.unsendable(
            delivery,
            switchedOff: credentials.switchedOff(delivery.device.provider, of: delivery.app),
            expiresAt: policy.expiry(of: delivery, spread: owned.context.spreadMilliseconds),
            now
        ) {
            return .finished(end)
        }
        // What waited here may outlast what was known of its app: a lost connection to Postgres may
        // have lost the news of a change.
        guard credentials.isLoaded(delivery.app) else { return ends(.release(at: now)) }
        let client: any ProviderClient
        let apnsTopic = delivery.apnsTopic ?? owned.context.apnsTopic
        switch credentials.client(for: delivery, apnsTopic: apnsTopic) {
        case .client(let found): client = found
        case .misconfigured(let reason): return ends(.settle(.failed), reason)
        }
        let payload: RenderedPayload
        do {
            payload = try owned.context.payload(
                delivery.device.provider,
                locale: delivery.locale,
                values: delivery.values,
                badge: delivery.badge,
                tellsID: credentials.tellsPushIDs(delivery.app),
                at: now
            )
        } catch {
            return ends(.settle(.failed), "\(error)")
        }
        let steady = SteadyInstant.now()
        switch owned.health.breakers[delivery.device.environment].admit(now: steady) {
        case .later(let time):
            let wait = time.milliseconds(since: steady)
            let due = owned.health.dueTime(after: wait, at: steady, now, &random)
            return ends(.release(at: due))
        case .send: break
        }
        return .send(
            client,
            OutgoingNotification(
                notificationID: owned.context.notificationID(of: delivery.target),
                target: delivery.device,
                payload: payload,
                expiration: delivery.expiresAt?.seconds,
                apnsTopic: apnsTopic,
                apnsTopicIsExplicit: delivery.apnsTopic != nil,
                isUrgent: owned.use == .direct
            )
        )
    }

    private func hand(over group: RowGroup) {
        let sent = group.deliveries
        let time = SteadyInstant.now().milliseconds
        for owned in sent { owned.health.backlog.sent(1, at: time) }
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
        let handedOver = ContinuousClock.now
        for owned in sent { owned.event?.reached(.handedOver, at: handedOver) }
    }

    /// One answer of a provider, or its absence.
    private func answered(
        _ owned: OwnedDelivery,
        _ answer: ProviderAnswer,
        repeatOverwrites: Bool,
        after duration: Duration
    ) {
        let now = clock.now()
        owned.health.backlog.answered()
        // Its row goes back with the session, uncounted.
        if session.hasEnded { return meters.inFlight.add(-1) }
        meters.answered(owned.delivery.device.provider, answer.outcome, duration)
        owned.event?.reached(.answered, at: .now)
        let heard = owned.health.heard(
            answer.outcome,
            about: owned.delivery,
            isOurs: isCurrent(owned.session),
            .now()
        )
        finish(
            owned,
            policy.answered(
                answer,
                owned.delivery,
                expiresAt: policy.expiry(
                    of: owned.delivery,
                    spread: owned.context.spreadMilliseconds
                ),
                isOnce: owned.context.isNowOrNever,
                repeatOverwrites: repeatOverwrites,
                unsent: heard.unsent,
                keepsToken: heard.keepsToken,
                jitter: Double.random(in: 0..<1, using: &random),
                now
            )
        )
    }
}

/// Rows that go to one provider client in one call.
private struct RowGroup {
    let client: any ProviderClient
    let use: FlightBudget.Use
    private(set) var deliveries: [OwnedDelivery] = []
    private(set) var notifications: [OutgoingNotification] = []

    init(_ client: any ProviderClient, _ use: FlightBudget.Use) {
        self.client = client
        self.use = use
    }

    mutating func add(_ delivery: OwnedDelivery, _ notification: OutgoingNotification) {
        deliveries.append(delivery)
        notifications.append(notification)
    }
}
