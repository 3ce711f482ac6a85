private import Observability
private import Synchronization

/// Postgres' clock, computed from a steady clock of this process and the measured difference.
///
/// Rows use Postgres' clock for the times when they are due, released and expired. Code that
/// compares such times reads this clock. So nothing changes if this host's wall clock is wrong, or
/// is set. Before the first measurement this clock is the wall clock.
///
/// Thread-safe.
package final class DatabaseClock: Sendable {
    /// The smallest difference that causes a warning. A host whose clock is synchronised by NTP
    /// differs by milliseconds.
    package static let tolerance: Duration = .seconds(5)
    /// How long the warning lasts after a provider has rejected the time in a token.
    private static let complaintMilliseconds: Int64 = 600_000
    private static let unmeasured = Int64.min

    private let wall: @Sendable () -> Instant
    private let steady: @Sendable () -> MonotonicInstant
    /// Postgres' time minus the steady clock's time, in milliseconds.
    private let difference = Atomic<Int64>(unmeasured)
    private let lock = Lock()
    nonisolated(unsafe) private var complaint: (provider: Platform, at: MonotonicInstant)?

    package init(
        wall: @escaping @Sendable () -> Instant = { .now() },
        steady: @escaping @Sendable () -> MonotonicInstant = { .now() }
    ) {
        self.wall = wall
        self.steady = steady
    }

    package func now() -> Instant {
        let known = difference.load(ordering: .relaxed)
        if known == Self.unmeasured { return wall() }
        return Instant(milliseconds: steady().milliseconds + known)
    }

    /// Updates the difference from a time that Postgres returned. Postgres read it between the
    /// query and its reply, which gives the difference a lower and an upper bound. The known
    /// difference only moves into these bounds, so that a slow reply costs no precision.
    ///
    /// - Parameters:
    ///   - time: Postgres' `now()` or `clock_timestamp()`.
    ///   - asked: The time of the query.
    ///   - answered: The time of the reply.
    package func measured(_ time: Instant, asked: MonotonicInstant, answered: MonotonicInstant) {
        let least = time.milliseconds - answered.milliseconds
        let most = max(least, time.milliseconds - asked.milliseconds)
        let known = difference.load(ordering: .relaxed)
        difference.store(
            known == Self.unmeasured ? least + (most - least) / 2 : min(max(known, least), most),
            ordering: .relaxed
        )
    }

    /// How far this host's wall clock is ahead of Postgres'; negative if it is behind; zero before
    /// the first measurement.
    package var hostIsAhead: Duration {
        .milliseconds(wall().milliseconds - now().milliseconds)
    }

    /// Whether this host's clock and Postgres' clock differ too much. One is wrong, and it is
    /// unknown which.
    package var isInDoubt: Bool { Self.exceedsTolerance(hostIsAhead) }

    /// Records that a provider rejected the time in a token.
    package func refused(by provider: Platform) {
        let now = steady()
        lock.withLock { unsafe complaint = (provider, now) }
    }

    /// The warning for an operator: the clocks differ too much, or a provider has rejected the time
    /// in a token in the last ten minutes. The service continues to work.
    package var warning: String? {
        let ahead = hostIsAhead
        if Self.exceedsTolerance(ahead) { return Self.text(hostIsAhead: ahead) }
        let now = steady()
        return lock.withLock {
            guard let complaint = unsafe complaint,
                now.milliseconds(since: complaint.at) < Self.complaintMilliseconds
            else { return nil }
            let provider = complaint.provider.rawValue
            return "\(provider) refuses tokens for their time: check Postgres' clock"
        }
    }

    /// Returns the text of a difference for a report.
    package static func text(hostIsAhead ahead: Duration) -> String {
        let seconds = ahead.wholeMilliseconds.magnitude / 1000
        let side = ahead > .zero ? "ahead of" : "behind"
        return "this host's clock is \(seconds) s \(side) Postgres'"
    }

    package static func exceedsTolerance(_ difference: Duration) -> Bool {
        difference > tolerance || difference < .zero - tolerance
    }
}
