/// Exponential backoff before the next attempt: it doubles from `base`, up to `cap`.
package struct Backoff: Equatable, Sendable {
    package var baseMilliseconds: Int64
    package var capMilliseconds: Int64
    /// The longest `Retry-After` that is obeyed. Longer ones are cut to this.
    package var retryAfterCapMilliseconds: Int64

    package init(
        baseMilliseconds: Int64 = 1000,
        capMilliseconds: Int64 = 600_000,
        retryAfterCapMilliseconds: Int64 = 86_400_000
    ) {
        self.baseMilliseconds = max(1, baseMilliseconds)
        self.capMilliseconds = max(1, capMilliseconds)
        self.retryAfterCapMilliseconds = max(1, retryAfterCapMilliseconds)
    }

    /// Returns the delay after `count` attempts. `jitter`, 0..<1, spreads it over its upper half,
    /// so that deliveries that failed together are not retried together.
    package func delayMilliseconds(after count: Int, jitter: Double) -> Int64 {
        var full = min(baseMilliseconds, capMilliseconds)
        var doublings = max(0, count - 1)
        while doublings > 0, full < capMilliseconds {
            full = full > capMilliseconds / 2 ? capMilliseconds : full * 2
            doublings -= 1
        }
        return full / 2 + Int64(Double(full - full / 2) * min(max(jitter, 0), 1))
    }
}

/// The next step of a delivery.
package enum DeliveryDecision: Equatable, Sendable {
    /// The delivery has ended.
    case settle(Outcome)
    /// The delivery has ended, and its token is disabled unless the device registered it after `since`.
    case settleAndDisableToken(since: Instant?)
    /// Send again, but not earlier.
    case retry(at: Instant)
}

/// The rules that turn a provider's answer into the next step of one delivery. Pure: no clock, no I/O.
package struct DeliveryAttempts: Equatable, Sendable {
    /// The most attempts without an answer. A second one is made only if a repeat overwrites the
    /// first.
    private static let unansweredLimit = 2

    package let limit: Int
    package let backoff: Backoff
    /// The number of requests that were sent, or may have been.
    package private(set) var attempts: Int
    /// The number of `attempts` that had no answer.
    package private(set) var unanswered: Int
    /// The number of consecutive attempts that were not sent. Not stored in the row: after a
    /// restart, an unreachable provider is retried early.
    package private(set) var unsent: Int

    /// Creates the state from the counts of a row. After `limit` attempts, 1 or more, a transient
    /// answer is final.
    package init(
        limit: Int = 20,
        backoff: Backoff = Backoff(),
        attempts: Int = 0,
        unanswered: Int = 0,
        unsent: Int = 0
    ) {
        self.limit = max(1, limit)
        self.backoff = backoff
        self.attempts = attempts
        self.unanswered = unanswered
        self.unsent = unsent
    }

    /// Whether a delivery has expired. Checked before every attempt: nothing is sent late.
    package static func isExpired(at now: Instant, expiresAt: Instant?) -> Bool {
        guard let expiresAt else { return false }
        return now >= expiresAt
    }

    /// Counts an attempt that has ended and returns the next step. `repeatOverwrites` says whether
    /// a second copy replaces the first on the device; `jitter` is random, 0..<1.
    package mutating func finished(
        _ outcome: ProviderOutcome,
        repeatOverwrites: Bool,
        now: Instant,
        expiresAt: Instant?,
        jitter: Double
    ) -> DeliveryDecision {
        if outcome != .notSent { attempts += 1 }
        switch outcome {
        case .accepted:
            return .settle(.delivered)
        case .unregistered(let since):
            return .settleAndDisableToken(since: since.map(Instant.init(milliseconds:)))
        case .mismatched:
            return .settleAndDisableToken(since: nil)
        case .rejected, .misconfigured:
            return .settle(.failed)
        case .unavailable where attempts >= limit, .throttled where attempts >= limit:
            return .settle(.failed)
        case .unavailable(let retryAfter), .throttled(let retryAfter):
            let wait = backoff.delayMilliseconds(after: attempts, jitter: jitter)
            return retry(
                after: max(wait, lowerBound(retryAfter, jitter: jitter)),
                now: now,
                expiresAt: expiresAt
            )
        case .noAnswer:
            unanswered += 1
            guard repeatOverwrites, unanswered < Self.unansweredLimit, attempts < limit else {
                return .settle(.inDoubt)
            }
            let wait = backoff.delayMilliseconds(after: attempts, jitter: jitter)
            // The notification may have arrived, so it is not `expired`: if there is no time for a
            // second attempt, it is `in_doubt`.
            guard case .retry(let time) = retry(after: wait, now: now, expiresAt: expiresAt) else {
                return .settle(.inDoubt)
            }
            return .retry(at: time)
        case .notSent:
            unsent += 1
            return retry(
                after: backoff.delayMilliseconds(after: unsent, jitter: jitter),
                now: now,
                expiresAt: expiresAt
            )
        }
    }

    private func retry(after wait: Int64, now: Instant, expiresAt: Instant?) -> DeliveryDecision {
        let time = now.adding(milliseconds: wait)
        guard !Self.isExpired(at: time, expiresAt: expiresAt) else { return .settle(.expired) }
        return .retry(at: time)
    }

    /// Returns the `Retry-After` plus up to a tenth of it, so that not all retries come at once.
    private func lowerBound(_ retryAfter: Duration?, jitter: Double) -> Int64 {
        guard let retryAfter, retryAfter > .zero else { return 0 }
        let asked = min(retryAfter.wholeMilliseconds, backoff.retryAfterCapMilliseconds)
        return asked + Int64(Double(asked / 10) * min(max(jitter, 0), 1))
    }
}
