import PushCore

/// Spreads the due times of deliveries that are released because their provider is failing. They
/// are due one after the other, as fast as a healthy provider accepts them. Otherwise all would be
/// claimed and released together, each time ahead of all other retries. Pure: its times are
/// milliseconds of a steady clock.
struct DueSpread {
    /// The lowest pace, deliveries a second …
    static let slowestPace = 1000.0
    /// … and the longest spread; deliveries beyond it share these times.
    static let longest: Int64 = 300_000

    private var next = -Double.infinity

    /// - Parameters:
    ///   - wait: The shortest delay of a delivery.
    ///   - now: The time.
    ///   - pace: The provider's answers a second.
    ///   - jitter: Random, 0..<1, so that several processes do not keep step.
    /// - Returns: The milliseconds until the next delivery is due: `wait` or more.
    mutating func delay(atLeast wait: Int64, at now: Int64, pace: Double, jitter: Double) -> Int64 {
        let earliest = Double(now + wait)
        let interval = 1000 / max(pace, Self.slowestPace)
        // The step is between 0.5 and 1.5 intervals, one on average.
        next = max(next + interval * (0.5 + jitter), earliest)
        if next > earliest + Double(Self.longest) { next = earliest }
        return Int64(next) - now
    }
}
