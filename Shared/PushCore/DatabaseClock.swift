private import Observability
private import Synchronization

/// Postgres' clock as this process knows it: the difference between it and a steady clock of ours.
///
/// Rows use Postgres' clock for the times when they are due, released and expired. Code that acts on them
/// reads this clock, so a wall clock that is wrong on this host, or is set, changes nothing. Until the
/// first measurement it is the wall clock.
///
/// Thread-safe.
package final class DatabaseClock: Sendable {
    /// The difference from which a warning is reported: a host whose clock is synchronised by NTP differs by
    /// milliseconds.
    package static let tolerance: Duration = .seconds(5)
    /// The time for which a provider's complaint about the time of a token is reported.
    private static let complaintMilliseconds: Int64 = 600_000
    private static let unmeasured = Int64.min

    private let wall: @Sendable () -> Instant
    private let steady: @Sendable () -> MonotonicInstant
    /// Postgres' time less the steady clock's, in milliseconds.
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

    /// Updates the difference from a time that Postgres returned. The time lies between the query and its
    /// reply, which bounds the difference; the known value is only moved into these bounds, so that a slow
    /// reply costs no precision.
    ///
    /// - Parameters:
    ///   - time: Postgres' `now()` or `clock_timestamp()`.
    ///   - asked: When it was asked for.
    ///   - answered: When the reply came.
    package func measured(_ time: Instant, asked: MonotonicInstant, answered: MonotonicInstant) {
        let least = time.milliseconds - answered.milliseconds
        let most = max(least, time.milliseconds - asked.milliseconds)
        let known = difference.load(ordering: .relaxed)
        difference.store(
            known == Self.unmeasured ? least + (most - least) / 2 : min(max(known, least), most),
            ordering: .relaxed
        )
    }

    /// The lead of this host's wall clock over Postgres'; negative: behind; zero before it was measured.
    package var hostIsAhead: Duration {
        .milliseconds(wall().milliseconds - now().milliseconds)
    }

    /// Whether this host's clock and Postgres' disagree: one of them is wrong, and it is unknown which.
    package var isInDoubt: Bool { Self.exceedsTolerance(hostIsAhead) }

    /// Records that a provider rejected a token for the time in it.
    package func refused(by provider: Platform) {
        let now = steady()
        lock.withLock { unsafe complaint = (provider, now) }
    }

    /// The warning for an operator: a difference beyond the tolerance, or a provider's complaint in the
    /// last ten minutes. The service continues to work.
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

    /// Describes a difference for a report.
    package static func text(hostIsAhead ahead: Duration) -> String {
        let seconds = ahead.wholeMilliseconds.magnitude / 1000
        let side = ahead > .zero ? "ahead of" : "behind"
        return "this host's clock is \(seconds) s \(side) Postgres'"
    }

    package static func exceedsTolerance(_ difference: Duration) -> Bool {
        difference > tolerance || difference < .zero - tolerance
    }
}
