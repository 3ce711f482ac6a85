private import Glibc

/// A moment of a monotonic clock, for leases, waits and windows of this process. The wall clock may
/// be set, so it cannot measure durations.
package struct MonotonicInstant: Hashable, Comparable, Sendable {
    /// Milliseconds since the machine started. They include its sleep, as leases of other processes
    /// continue meanwhile.
    package var milliseconds: Int64

    package init(milliseconds: Int64) {
        self.milliseconds = milliseconds
    }

    /// Reads the clock. Only drivers call this: a decision gets its time as a parameter.
    package static func now() -> MonotonicInstant {
        var time = timespec()
        unsafe clock_gettime(CLOCK_BOOTTIME, &time)
        return MonotonicInstant(
            milliseconds: Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
        )
    }

    /// The moment before all others.
    package static let earliest = MonotonicInstant(milliseconds: .min)

    package static func < (a: MonotonicInstant, b: MonotonicInstant) -> Bool {
        a.milliseconds < b.milliseconds
    }

    package func adding(milliseconds: Int64) -> MonotonicInstant {
        let (sum, overflow) = self.milliseconds.addingReportingOverflow(milliseconds)
        guard overflow else { return MonotonicInstant(milliseconds: sum) }
        return MonotonicInstant(milliseconds: milliseconds > 0 ? .max : .min)
    }

    /// Returns the milliseconds from another moment to this one.
    package func milliseconds(since other: MonotonicInstant) -> Int64 {
        let (difference, overflow) = milliseconds.subtractingReportingOverflow(other.milliseconds)
        guard overflow else { return difference }
        return other.milliseconds > 0 ? .min : .max
    }
}
