import PushCore

/// Keeps a sick provider from holding what the others need: after a run of failures only a few
/// deliveries at a time try it, and the rest become rows due later (promises 7 and 8). Pure: its times
/// are those of a steady clock, which nobody sets back.
struct ProviderBreaker: Equatable {
    enum Admission: Equatable {
        case send
        /// Not before then; not an attempt.
        case later(SteadyInstant)
    }

    /// Failures in a row, with no answer of health between them, that open it.
    static let openingFailures = 50
    /// How many may try while it is open, a window long.
    static let probes = 8
    private static let firstWindow: Int64 = 1000
    private static let longestWindow: Int64 = 30_000

    private var failures = 0
    private var window: Int64 = 0
    private var windowEnds = SteadyInstant.earliest
    private var probesLeft = 0
    /// Whether this window's probes have been let through: what fails before is a straggler that
    /// was sent while it was closed, and says nothing new.
    private var isProbing = false
    /// How often, one wait after the other, nothing could even be sent: a connection that cannot be
    /// made is not tried each second for ever, by however few.
    private(set) var unsentInARow = 0
    private var unsentGrowsAt = SteadyInstant.earliest

    var isOpen: Bool { window > 0 }

    mutating func admit(now: SteadyInstant) -> Admission {
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

    mutating func finished(_ outcome: ProviderOutcome, now: SteadyInstant) {
        switch outcome {
        case .accepted, .unregistered, .mismatched, .rejected, .misconfigured, .throttled:
            self = ProviderBreaker()
        case .unavailable, .noAnswer, .notSent:
            countUnsent(outcome, now)
            if isOpen {
                guard isProbing else { return }
                open(for: min(window * 2, Self.longestWindow), now: now)
            } else {
                failures += 1
                if failures >= Self.openingFailures { open(for: Self.firstWindow, now: now) }
            }
        }
    }

    /// Those that failed together count once.
    private mutating func countUnsent(_ outcome: ProviderOutcome, _ now: SteadyInstant) {
        guard outcome == .notSent else { return unsentInARow = 0 }
        guard now >= unsentGrowsAt else { return }
        unsentInARow = min(unsentInARow + 1, 16)
        let wait = Self.unsentBackoff.delayMilliseconds(after: unsentInARow, jitter: 0)
        unsentGrowsAt = now.adding(milliseconds: wait)
    }

    private static let unsentBackoff = RetryPolicy.unsent

    private mutating func open(for milliseconds: Int64, now: SteadyInstant) {
        window = milliseconds
        windowEnds = now.adding(milliseconds: milliseconds)
        probesLeft = 0
        isProbing = false
    }
}
