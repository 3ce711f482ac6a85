import EventLoop
import Observability
import PushCore
import PushProviders
import PushStorage

/// What becomes of a delivery: before it is sent, and by what its provider answered. The same for
/// rows and for members of shards.
///
/// Authority: the decision alone. What an answer says of its provider it tells that provider's
/// health; who asks writes the decision down.
///
/// Confined to the loop.
final class AnswerJudge: @unchecked Sendable {
    private static let tooOld = "not sent within half of DELIVERY_RETENTION, or MPNS' six hours"

    /// After this a delivery that could never be sent has expired, whatever its push says.
    private let maximumAge: Int64
    private let meters: DeliveryMeters
    private let log: Log
    var random = FastRandom()

    init(maximumAge: Int64, meters: DeliveryMeters, log: Log) {
        self.maximumAge = maximumAge
        self.meters = meters
        self.log = log
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

    /// What one answer means for its delivery, and for what others of its provider may expect.
    func judge(
        _ answer: ProviderAnswer,
        _ tries: Tries,
        _ health: OwnedDelivery.Health,
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
            // Now or never: whoever was reached once is not tried again.
            expiresAt: tries.isOnce && answer.outcome != .notSent ? now : tries.expiresAt,
            jitter: Double.random(in: 0..<1, using: &random)
        )
        let recorded: RecordedDecision
        switch decision {
        case .settle(let outcome): recorded = .settle(outcome)
        // There is no device behind it that could be gone.
        case .settleAndDisableToken where tries.isForTopic: recorded = .settle(.failed)
        case .settleAndDisableToken(let since):
            recorded =
                judgeDeadToken(answer.outcome, of: health, steady)
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
    private func judgeDeadToken(
        _ outcome: ProviderOutcome,
        of health: OwnedDelivery.Health,
        _ now: SteadyInstant
    ) -> Bool {
        let action =
            outcome == .mismatched
            ? health.wave.mismatched(now: now) : health.wave.dead(now: now)
        switch action {
        case .disable: return true
        case .keep: return false
        case .keepAndAlarm(let dead, let answers):
            log.error(
                outcome == .mismatched
                    ? "many tokens are another sender's: none is disabled until FCM accepts a push"
                    : "a sudden wave of dead tokens: none is disabled until it is over",
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
    /// Whether it is sent once, and not again.
    let isOnce: Bool

    init(_ delivery: Delivery, expiresAt: Instant, isOnce: Bool = false) {
        platform = delivery.device.provider
        environment = delivery.device.environment
        attempts = delivery.attempts
        unanswered = delivery.unanswered
        self.expiresAt = expiresAt
        isForTopic = delivery.isForTopic
        self.isOnce = isOnce
    }

    /// Field by field: a delivery that is handed on is copied, with all its texts.
    init(_ member: ShardMember, expiresAt: Instant, isOnce: Bool) {
        platform = member.delivery.device.provider
        environment = member.delivery.device.environment
        attempts = member.delivery.attempts
        unanswered = member.delivery.unanswered
        self.expiresAt = expiresAt
        isForTopic = false
        self.isOnce = isOnce
    }
}
