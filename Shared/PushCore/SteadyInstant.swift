private import Glibc

/// A moment of a clock that only goes forward: for leases, waits and windows of this process. The
/// wall clock may be set, and then a span that is measured with it is any span.
package struct SteadyInstant: Hashable, Comparable, Sendable {
    /// Since the machine started; its sleep counts, as it does for everyone else's leases.
    package var milliseconds: Int64

    package init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    /// For drivers: a decision takes its time as a parameter.
    package static func now() -> SteadyInstant {
        var time = timespec()
        unsafe clock_gettime(CLOCK_BOOTTIME, &time)
        return SteadyInstant(
            milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
        )
    }

    /// Before all others.
    package static let earliest = SteadyInstant(milliseconds: .min)

    package static func < (a: SteadyInstant, b: SteadyInstant) -> Bool {
        a.milliseconds < b.milliseconds
    }

    package func adding(milliseconds: Int64) -> SteadyInstant {
        let (sum, overflow) = self.milliseconds.addingReportingOverflow(milliseconds)
        guard overflow else { return SteadyInstant(milliseconds: sum) }
        return SteadyInstant(milliseconds: milliseconds > 0 ? .max : .min)
    }

    /// How long after another moment this one is.
    package func milliseconds(since other: SteadyInstant) -> Int64 {
        let (difference, overflow) = milliseconds.subtractingReportingOverflow(other.milliseconds)
        guard overflow else { return difference }
        return other.milliseconds > 0 ? .min : .max
    }
}
