import PushCore

/// A circuit breaker. After consecutive failures only a few deliveries probe the provider, and the
/// others become rows due later, so that a failing provider does not hold the budget of the others
/// (promises 7 and 8). Pure: its times are those of a steady clock, which is never set back.
struct ProviderBreaker: Equatable {
    enum Admission: Equatable {
        case send
        /// Do not send before this time; this does not count as an attempt.
        case later(MonotonicInstant)
    }

    /// The number of consecutive failures that open the breaker.
    static let openingFailures = 50
    /// The probes in each window while it is open.
    static let probes = 8
    private static let firstWindow: Int64 = 1000
    private static let longestWindow: Int64 = 30_000

    private var failures = 0
    /// The first of the failures in a row; `nil` if the last attempt did not fail.
    private(set) var failingSince: MonotonicInstant?
    private var window: Int64 = 0
    /// While it is open: the time from which on deliveries may probe the provider.
    private(set) var windowEnds = MonotonicInstant.earliest
    private var probesLeft = 0
    /// Whether the probes of this window have begun. An earlier failure belongs to a request that
    /// was sent while the breaker was closed, and says nothing new.
    private var isProbing = false
    /// How often in a row nothing could be sent, counted once for each backoff. So a connection
    /// that cannot be made is not retried each second for ever, not even by few deliveries.
    private(set) var unsentInARow = 0
    private var unsentGrowsAt = MonotonicInstant.earliest

    var isOpen: Bool { window > 0 }

    mutating func admit(now: MonotonicInstant) -> Admission {
        guard isOpen else { return .send }
        if now >= windowEnds {
            windowEnds = now.adding(milliseconds: window)
            probesLeft = Self.probes
            isProbing = true
        }
        guard probesLeft > 0 else { return .later(windowEnds) }
        probesLeft -= 1
        return .send
    }

    mutating func finished(_ outcome: ProviderOutcome, now: MonotonicInstant) {
        switch outcome {
        case .accepted, .unregistered, .mismatched, .rejected, .misconfigured, .throttled:
            self = ProviderBreaker()
        case .unavailable, .noAnswer, .notSent:
            countUnsent(outcome, now)
            if failingSince == nil { failingSince = now }
            if isOpen {
                guard isProbing else { return }
                open(for: min(window * 2, Self.longestWindow), now: now)
            } else {
                failures += 1
                if failures >= Self.openingFailures { open(for: Self.firstWindow, now: now) }
            }
        }
    }

    /// Counts an attempt that was not sent. Attempts that failed together count once.
    private mutating func countUnsent(_ outcome: ProviderOutcome, _ now: MonotonicInstant) {
        guard outcome == .notSent else { return unsentInARow = 0 }
        guard now >= unsentGrowsAt else { return }
        unsentInARow = min(unsentInARow + 1, 16)
        let wait = Self.unsentBackoff.delayMilliseconds(after: unsentInARow, jitter: 0)
        unsentGrowsAt = now.adding(milliseconds: wait)
    }

    private static let unsentBackoff = RetryPolicy.unsent

    private mutating func open(for milliseconds: Int64, now: MonotonicInstant) {
        window = milliseconds
        windowEnds = now.adding(milliseconds: milliseconds)
        probesLeft = 0
        isProbing = false
    }
}
