import PushCore

/// Spreads the due times of deliveries that are released because their provider is failing: one after
/// the other, as fast as a healthy provider accepts them, so that they are not all claimed and released
/// together, each time ahead of all other retries. Pure: its times are milliseconds of a steady clock.
struct DueSpread {
    /// The lowest pace, deliveries a second …
    static let slowestPace = 1000.0
    /// … and the longest spread; deliveries beyond it share these times.
    static let longest: Int64 = 300_000

    private var next = -Double.infinity

    /// - Parameters:
    ///   - wait: How long none of them may be due.
    ///   - now: The time.
    ///   - pace: The provider's answers a second.
    ///   - jitter: Random, 0..<1: several processes must not keep step.
    /// - Returns: The milliseconds until the next one is due: `wait` or more.
    mutating func delay(atLeast wait: Int64, at now: Int64, pace: Double, jitter: Double) -> Int64 {
        let earliest = Double(now + wait)
        let interval = 1000 / max(pace, Self.slowestPace)
        // Between a half and one and a half of the interval, one on average.
        next = max(next + interval * (0.5 + jitter), earliest)
        if next > earliest + Double(Self.longest) { next = earliest }
        return Int64(next) - now
    }
}
