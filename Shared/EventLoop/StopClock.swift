internal import Observability

/// The grace period in which everything on a loop must end once its process stops. Each drain gets
/// its time limit from this clock, so that several drains that wait for an unresponsive peer end in
/// time together.
package final class StopClock: Sendable {
    private struct Window {
        let start: ContinuousClock.Instant
        let end: ContinuousClock.Instant
    }

    private let lock = Lock()
    nonisolated(unsafe) private var window: Window?

    package init() {}

    /// Notes that the process stops, and is killed after `grace`. Only the first call counts.
    package func begin(within grace: Duration, at now: ContinuousClock.Instant = .now) {
        lock.withLock {
            if unsafe window == nil { unsafe window = Window(start: now, end: now + grace) }
        }
    }

    /// Returns how long one drain may take.
    ///
    /// - Parameters:
    ///   - usual: The drain's limit if the process does not stop; its maximum otherwise.
    ///   - share: The share of the remaining time that it may use, 0...1.
    ///   - now: The time.
    /// - Returns: At least zero.
    package func limit(
        _ usual: Duration,
        share: Double,
        at now: ContinuousClock.Instant = .now
    ) -> Duration {
        guard let window = lock.withLock({ unsafe window }) else { return usual }
        return max(.zero, min(usual, (window.end - now) * share))
    }

    /// Whether the process stops, and this share of the grace period has passed.
    package func hasPassed(share: Double, at now: ContinuousClock.Instant = .now) -> Bool {
        guard let window = lock.withLock({ unsafe window }) else { return false }
        return now >= window.start + (window.end - window.start) * share
    }
}
