/// Bounds the log lines about events that an attacker causes: the first is reported at once, the
/// later ones as a count, at most one line in `interval`.
struct SummedLine {
    private let interval: Duration
    private var next: ContinuousClock.Instant?
    private var count = 0

    init(every interval: Duration = .seconds(10)) { self.interval = interval }

    /// Counts one event.
    ///
    /// - Returns: The number of events since the last line, if a line is due.
    mutating func event(at now: ContinuousClock.Instant) -> Int? {
        count += 1
        if let next, now < next { return nil }
        next = now + interval
        defer { count = 0 }
        return count
    }
}
