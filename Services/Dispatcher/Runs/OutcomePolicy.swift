import PushCore
import PushProviders
import PushStorage

/// Decides whether a delivery ends or is retried, before it is sent and by its provider's answer.
/// The rules are the same for rows and for members of shards. Pure: no clock, no I/O.
struct OutcomePolicy: Sendable {
    private static let tooOld = "not sent within half of DELIVERY_RETENTION, or MPNS' six hours"

    /// The age at which a delivery that could not be sent expires, whatever its push says.
    let maximumAge: Int64

    /// Returns when a delivery expires, whatever its push says. Rows are dropped with the partition
    /// of their day, and no row may be pending then.
    func expiry(of delivery: Delivery, spread: Int?) -> Instant {
        let age =
            delivery.device.provider == .mpns
            ? min(maximumAge, RetryPolicy.maximumMPNSAge) : maximumAge
        // The last devices of a spread audience are sent to at its end: the limit is that much
        // later.
        let latest = delivery.createdAt.adding(milliseconds: age + Int64(spread ?? 0))
        return min(delivery.expiresAt ?? latest, latest)
    }

    /// Returns the end of a delivery that is not sent at all; `nil` if it is to be sent.
    /// `switchedOff` is the reason why its provider is switched off.
    func unsendable(
        _ delivery: Delivery,
        switchedOff: String?,
        expiresAt: Instant,
        _ now: Instant
    ) -> DeliveryEnd? {
        if let reason = delivery.suppression ?? switchedOff {
            return DeliveryEnd(.settle(.suppressed), of: delivery, reason: reason, at: now)
        }
        guard DeliveryAttempts.isExpired(at: now, expiresAt: expiresAt) else { return nil }
        // If its push would have waited longer, the reason names Carillon's limit.
        let isOurs = delivery.expiresAt.map { expiresAt < $0 } ?? true
        let reason = isOurs ? Self.tooOld : "expired before it was sent"
        return DeliveryEnd(.settle(.expired), of: delivery, reason: reason, at: now)
    }

    /// Returns the end of a delivery by its answer. `isOnce` says that it is sent only once.
    /// `repeatOverwrites` says that a second copy replaces the first on the device. `unsent` counts
    /// how often in a row nothing could be sent to its provider. `keepsToken` says that a wave of
    /// dead tokens forbids to disable its token. `jitter` is random, 0..<1.
    func answered(
        _ answer: ProviderAnswer,
        _ delivery: Delivery,
        expiresAt: Instant,
        isOnce: Bool = false,
        repeatOverwrites: Bool,
        unsent: Int,
        keepsToken: Bool,
        jitter: Double,
        _ now: Instant
    ) -> DeliveryEnd {
        var attempts = DeliveryAttempts(
            limit: RetryPolicy.attemptLimit,
            backoff: RetryPolicy.backoff(for: delivery.device.provider, answer.outcome),
            attempts: delivery.attempts,
            unanswered: delivery.unanswered,
            unsent: unsent
        )
        let decision: DeliveryEnd.Decision
        switch attempts.finished(
            answer.outcome,
            repeatOverwrites: repeatOverwrites,
            now: now,
            // "Now or never" (`isOnce`): a request that was sent is not retried.
            expiresAt: isOnce && answer.outcome != .notSent ? now : expiresAt,
            jitter: jitter
        ) {
        case .settle(let outcome): decision = .settle(outcome)
        // A topic has no device that could be gone.
        case .settleAndDisableToken where keepsToken || delivery.isForTopic:
            decision = .settle(.failed)
        case .settleAndDisableToken(let since): decision = .settleAndDisable(since: since)
        case .retry(let time): decision = .retry(at: time)
        }
        return DeliveryEnd(
            decision,
            status: answer.status,
            reason: answer.reason,
            messageID: answer.providerMessageID,
            attempts: attempts.attempts,
            unanswered: attempts.unanswered,
            at: now
        )
    }
}

extension DeliveryEnd {
    /// Creates the end of a delivery without an attempt.
    init(_ decision: Decision, of delivery: Delivery, reason: String? = nil, at now: Instant) {
        self.init(
            decision,
            reason: reason,
            attempts: delivery.attempts,
            unanswered: delivery.unanswered,
            at: now
        )
    }
    /// Returns the end of a delivery whose provider's circuit breaker is open. The reason is stored
    /// in its row, for explanations.
    static func postponed(
        _ delivery: Delivery,
        until due: Instant,
        at now: Instant
    ) -> DeliveryEnd {
        DeliveryEnd(
            .release(at: due),
            of: delivery,
            reason: LocalWait.breaker.rawValue,
            at: now
        )
    }
}
