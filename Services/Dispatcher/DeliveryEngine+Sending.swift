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
    private static let tooOld = "not sent within half of DELIVERY_RETENTION, or MPNS' six hours"

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
        for delivery in deliveries { ownedKeys.insert(delivery.key) }
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
        let (now, time) = (Instant.now(), SteadyInstant.now().milliseconds)
        var ready: [OwnedDelivery] = []
        ready.reserveCapacity(deliveries.count)
        for delivery in deliveries {
            guard let context = contexts[delivery.pushID] else { continue }
            let client = FlightBudget.Client(
                app: delivery.app,
                provider: delivery.device.provider.rawValue
            )
            var owned = OwnedDelivery(
                delivery,
                context: context,
                session: session,
                health: health(of: client)
            )
            if isFirst, let wait = context.pace?.reserve(at: time) {
                finish(owned, .handBack(at: now.adding(milliseconds: wait)), now)
            } else if isStopping {
                finish(owned, .handBack(at: now), now)
            } else if owned.use != .direct || owned.health.backlog.isEmpty,
                budget.admit(owned.use, client)
            {
                owned.slot = owned.use
                ready.append(owned)
            } else {
                wait(owned, now)
            }
        }
        send(ready, now)
        // Slots may have been free behind what waits.
        sendBacklogs()
    }

    /// Sends rows that hold their slots.
    func send(_ ready: [OwnedDelivery], _ now: Instant) {
        var groups: [ObjectIdentifier: RowGroup] = [:]
        for owned in ready {
            switch prepare(owned, now) {
            case .finished(let decision, let answer):
                finish(owned, decision, now, answer)
            case .send(let client, let notification):
                groups[ObjectIdentifier(client), default: RowGroup(client, owned.use)]
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
        let expiresAt = expiry(of: delivery, owned.context)
        if let (decision, answer) = unsendable(
            suppression: delivery.suppression,
            switchedOff: credentials.switchedOff(delivery.device.provider, of: delivery.app),
            expiresAt: expiresAt,
            wantedUntil: delivery.expiresAt,
            now
        ) {
            return .finished(decision, answer)
        }
        // What waited here may outlast what was known of its app: a lost connection to Postgres may
        // have lost the news of a change.
        guard credentials.isLoaded(delivery.app) else { return .finished(.handBack(at: now), nil) }
        let client: any ProviderClient
        let apnsTopic = delivery.apnsTopic ?? owned.context.apnsTopic
        switch credentials.client(for: delivery, apnsTopic: apnsTopic) {
        case .client(let found): client = found
        case .misconfigured(let reason):
            return .finished(.settle(.failed), ProviderAnswer(.misconfigured, reason: reason))
        }
        let payload: RenderedPayload
        do {
            payload = try owned.context.payload(
                delivery.device.provider,
                locale: delivery.locale,
                values: delivery.values,
                badge: delivery.badge
            )
        } catch {
            return .finished(.settle(.failed), ProviderAnswer(.rejected, reason: "\(error)"))
        }
        let steady = SteadyInstant.now()
        switch owned.health.breakers[delivery.device.environment].admit(now: steady) {
        case .later(let time):
            let wait = time.milliseconds(since: steady)
            let due = owned.health.dueTime(after: wait, at: steady, now, &random)
            return .finished(.handBack(at: due), nil)
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

    /// How a delivery ends that is not to be sent at all.
    func unsendable(
        suppression: String?,
        switchedOff: String?,
        expiresAt: Instant,
        wantedUntil: Instant?,
        _ now: Instant
    ) -> (RecordedDecision, ProviderAnswer)? {
        if let reason = suppression {
            return (.settle(.suppressed), ProviderAnswer(.notSent, reason: reason))
        }
        if let switchedOff {
            return (.settle(.suppressed), ProviderAnswer(.notSent, reason: switchedOff))
        }
        if DeliveryAttempts.isExpired(at: now, expiresAt: expiresAt) {
            // Whose push would have waited longer is told why we do not.
            let isOurs = wantedUntil.map { expiresAt < $0 } ?? true
            let reason = isOurs ? Self.tooOld : "expired before it was sent"
            return (.settle(.expired), ProviderAnswer(.notSent, reason: reason))
        }
        return nil
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
    }

    /// One answer of a provider, or its absence.
    private func answered(
        _ owned: OwnedDelivery,
        _ answer: ProviderAnswer,
        repeatOverwrites: Bool,
        after duration: Duration
    ) {
        let now = Instant.now()
        owned.health.backlog.answered()
        // Its row goes back with the session, uncounted.
        if hasEnded { return meters.inFlight.add(-1) }
        meters.answered(owned.delivery.device.provider, answer.outcome, duration)
        let end = judge(
            answer,
            Tries(owned.delivery, expiresAt: expiry(of: owned.delivery, owned.context)),
            owned.health,
            repeatOverwrites: repeatOverwrites,
            isOurs: isCurrent(owned.session),
            now
        )
        var owned = owned
        owned.attempts = end.attempts
        owned.unanswered = end.unanswered
        finish(owned, end.decision, now, answer)
    }

    /// What one answer means for its delivery, and for what others of its provider may expect.
    func judge(
        _ answer: ProviderAnswer,
        _ tries: Tries,
        _ health: ProviderHealth,
        repeatOverwrites: Bool,
        isOurs: Bool,
        _ now: Instant
    ) -> DeliveryEnd {
        let steady = SteadyInstant.now()
        let unsent = health.breakers[tries.environment].unsentInARow
        if isOurs { health.breakers[tries.environment].finished(answer.outcome, now: steady) }
        if answer.outcome == .accepted {
            health.wave.alive(now: steady)
            return DeliveryEnd(
                decision: .settle(.delivered),
                answer: answer,
                at: now,
                attempts: tries.attempts + 1,
                unanswered: tries.unanswered
            )
        }
        var attempts = DeliveryAttempts(
            limit: RetryPolicy.attemptLimit,
            backoff: RetryPolicy.backoff(for: tries.platform, answer.outcome),
            attempts: tries.attempts,
            unanswered: tries.unanswered,
            unsent: unsent
        )
        let decision = attempts.finished(
            answer.outcome,
            repeatOverwrites: repeatOverwrites,
            now: now,
            expiresAt: tries.expiresAt,
            jitter: Double.random(in: 0..<1, using: &random)
        )
        let recorded: RecordedDecision
        switch decision {
        case .settle(let outcome): recorded = .settle(outcome)
        // There is no device behind it that could be gone.
        case .settleAndDisableToken where tries.isForTopic: recorded = .settle(.failed)
        case .settleAndDisableToken(let since):
            recorded =
                judgeDeadToken(of: health, steady)
                ? .settleAndDisable(since: since) : .settle(.failed)
        case .retry(let time): recorded = .retry(at: time)
        }
        return DeliveryEnd(
            decision: recorded,
            answer: answer,
            at: now,
            attempts: attempts.attempts,
            unanswered: attempts.unanswered
        )
    }

    /// Whether this dead token may be cleaned up (promise 9).
    private func judgeDeadToken(of health: ProviderHealth, _ now: SteadyInstant) -> Bool {
        switch health.wave.dead(now: now) {
        case .disable: return true
        case .keep: return false
        case .keepAndAlarm(let dead, let answers):
            log.error(
                "a sudden wave of dead tokens: none is disabled until it is over",
                [
                    .app: .string(health.client.app), .provider: .string(health.client.provider),
                    .count: .integer(dead), .detail: .string("of \(answers) answers in a minute"),
                ]
            )
            meters.deadTokenWaves.add()
            return false
        }
    }
}

/// What an answer is judged by, without the texts of its delivery.
struct Tries {
    let platform: Platform
    let environment: PushEnvironment
    let attempts: Int
    let unanswered: Int
    let expiresAt: Instant
    let isForTopic: Bool

    init(_ delivery: Delivery, expiresAt: Instant) {
        platform = delivery.device.provider
        environment = delivery.device.environment
        attempts = delivery.attempts
        unanswered = delivery.unanswered
        self.expiresAt = expiresAt
        isForTopic = delivery.isForTopic
    }

    /// Field by field: a delivery that is handed on is copied, with all its texts.
    init(_ member: ShardMember, expiresAt: Instant) {
        platform = member.delivery.device.provider
        environment = member.delivery.device.environment
        attempts = member.delivery.attempts
        unanswered = member.delivery.unanswered
        self.expiresAt = expiresAt
        isForTopic = false
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
