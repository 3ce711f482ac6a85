/// Tracks whether a peer still takes its bytes. Pure: the caller passes the count and the time.
struct PeerProgress {
    private var taken: Int
    private var since: ContinuousClock.Instant

    init(taken: Int, at now: ContinuousClock.Instant) {
        self.taken = taken
        since = now
    }

    /// - Returns: Whether nothing more was taken for `limit`.
    mutating func isStalled(
        taken: Int,
        at now: ContinuousClock.Instant,
        limit: Duration
    ) -> Bool {
        if taken != self.taken { self = PeerProgress(taken: taken, at: now) }
        return now >= since + limit
    }
}

/// Tracks how fast a peer reads the responses held for it. Pure: the caller passes the taken bytes
/// and the time.
struct DrainRate {
    private struct Mark {
        let taken: Int
        let at: ContinuousClock.Instant
    }

    /// The start of the current window.
    private var window: Mark
    /// The newer and the older of two consecutive marks, from which the rate is computed.
    private var newer: Mark
    private var older: Mark

    /// The least time before a rate is computed: a new response says nothing about its reader.
    private static let leastTime: Duration = .milliseconds(250)
    /// The interval of marks. A rate covers at most two intervals: bytes taken earlier say little
    /// about the future.
    private static let markEvery: Duration = .seconds(5)

    init(taken: Int, at now: ContinuousClock.Instant) {
        window = Mark(taken: taken, at: now)
        newer = window
        older = window
    }

    /// Returns whether less than `least` bytes a second were taken over a whole `length`.
    mutating func isTooSlow(
        taken: Int,
        at now: ContinuousClock.Instant,
        least: Int,
        over length: Duration
    ) -> Bool {
        let mark = Mark(taken: taken, at: now)
        if now >= newer.at + Self.markEvery { (older, newer) = (newer, mark) }
        guard now >= window.at + length else { return false }
        defer { window = mark }
        return Double(taken - window.taken) < Double(least) * ((now - window.at) / .seconds(1))
    }

    /// Returns the seconds until the held bytes are taken, at the recent rate.
    ///
    /// - Returns: Nil if it is too early to tell.
    func secondsLeft(held: Int, taken: Int, at now: ContinuousClock.Instant) -> Double? {
        guard now >= older.at + Self.leastTime else { return nil }
        let perSecond = Double(max(0, taken - older.taken)) / ((now - older.at) / .seconds(1))
        return Double(held) / max(perSecond, 1)
    }
}
