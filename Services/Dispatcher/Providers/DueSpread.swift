import PushCore

/// When what goes back because its provider is ill comes due: one after the other, as fast as a
/// provider in health takes them, so that they are not all claimed and given back together, each time
/// in front of everybody's retries. Pure: its times are milliseconds of a steady clock.
struct DueSpread {
    /// At least so many a second …
    static let slowestPace = 1000.0
    /// … for at most so long; what is more shares these places.
    static let longest: Int64 = 300_000

    private var next = -Double.infinity

    /// - Parameters:
    ///   - wait: How long nothing of it is to come due.
    ///   - now: The time.
    ///   - pace: How many a second the provider answers.
    ///   - jitter: Random, 0..<1: several processes must not keep step.
    /// - Returns: In how many milliseconds the next one does: `wait` or more.
    mutating func delay(atLeast wait: Int64, at now: Int64, pace: Double, jitter: Double) -> Int64 {
        let earliest = Double(now + wait)
        let interval = 1000 / max(pace, Self.slowestPace)
        // Between half and one and a half of it, one on average.
        next = max(next + interval * (0.5 + jitter), earliest)
        if next > earliest + Double(Self.longest) { next = earliest }
        return Int64(next) - now
    }
}
