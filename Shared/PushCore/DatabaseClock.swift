private import Observability
private import Synchronization

/// Postgres' clock as this process knows it: the difference between it and a steady clock of ours.
///
/// Rows say by Postgres' clock when they are due, released and expired. Whoever acts on them asks here, so
/// a wall clock that is wrong on this host, or is set, changes nothing. Until the first measurement it is
/// the wall clock.
///
/// From any thread.
package final class DatabaseClock: Sendable {
    /// What is reported: a host whose clock is kept by NTP differs by milliseconds.
    package static let tolerance: Duration = .seconds(5)
    /// How long a provider's complaint about the time of a token is reported.
    private static let complaintMilliseconds: Int64 = 600_000
    private static let unmeasured = Int64.min

    private let wall: @Sendable () -> Instant
    private let steady: @Sendable () -> SteadyInstant
    /// Postgres' time less the steady clock's, in milliseconds.
    private let difference = Atomic<Int64>(unmeasured)
    private let lock = Lock()
    nonisolated(unsafe) private var complaint: (provider: Platform, at: SteadyInstant)?

    package init(
        wall: @escaping @Sendable () -> Instant = { .now() },
        steady: @escaping @Sendable () -> SteadyInstant = { .now() }
    ) {
        self.wall = wall
        self.steady = steady
    }

    package func now() -> Instant {
        let known = difference.load(ordering: .relaxed)
        if known == Self.unmeasured { return wall() }
        return Instant(milliseconds: steady().milliseconds + known)
    }

    /// Measures by a time that Postgres gave. It lies between the question and the answer, which bounds the
    /// difference; what is known already is moved no further than to these bounds, so that a slow answer
    /// costs no precision.
    ///
    /// - Parameters:
    ///   - time: Postgres' `now()` or `clock_timestamp()`.
    ///   - asked: When it was asked for.
    ///   - answered: When it came.
    package func measured(_ time: Instant, asked: SteadyInstant, answered: SteadyInstant) {
        let least = time.milliseconds - answered.milliseconds
        let most = max(least, time.milliseconds - asked.milliseconds)
        let known = difference.load(ordering: .relaxed)
        difference.store(
            known == Self.unmeasured ? least + (most - least) / 2 : min(max(known, least), most),
            ordering: .relaxed
        )
    }

    /// How far this host's wall clock is ahead of Postgres'; negative: behind; zero before it was measured.
    package var hostIsAhead: Duration {
        .milliseconds(wall().milliseconds - now().milliseconds)
    }

    /// Whether this host's clock and Postgres' disagree: one of them is wrong, and nobody knows which.
    package var isInDoubt: Bool { Self.isTooMuch(hostIsAhead) }

    /// A provider refused a token for the time in it.
    package func refused(by provider: Platform) {
        let now = steady()
        lock.withLock { unsafe complaint = (provider, now) }
    }

    /// What an operator should mend: a difference beyond the tolerance, or a provider's complaint in the
    /// last minutes. Work goes on.
    package var warning: String? {
        let ahead = hostIsAhead
        if Self.isTooMuch(ahead) { return Self.text(hostIsAhead: ahead) }
        let now = steady()
        return lock.withLock {
            guard let complaint = unsafe complaint,
                now.milliseconds(since: complaint.at) < Self.complaintMilliseconds
            else { return nil }
            let provider = complaint.provider.rawValue
            return "\(provider) refuses tokens for their time: check Postgres' clock"
        }
    }

    /// A difference that is to be reported, in words.
    package static func text(hostIsAhead ahead: Duration) -> String {
        let seconds = ahead.wholeMilliseconds.magnitude / 1000
        let side = ahead > .zero ? "ahead of" : "behind"
        return "this host's clock is \(seconds) s \(side) Postgres'"
    }

    package static func isTooMuch(_ difference: Duration) -> Bool {
        difference > tolerance || difference < .zero - tolerance
    }
}
