/// Whether a peer still takes what it is sent. Pure: told a count and the time, again and again.
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

/// How fast a peer takes the answers that are held for it. Pure: told what was taken, again and again.
struct AnswerPace {
    private struct Mark {
        let taken: Int
        let at: ContinuousClock.Instant
    }

    /// Where the window began that is judged next.
    private var window: Mark
    /// Of two that follow each other the newer and the older, from which the pace is reckoned.
    private var newer: Mark
    private var older: Mark

    /// An answer that was only just made says nothing of who reads it.
    private static let leastTime: Duration = .milliseconds(250)
    /// What was taken longer ago than twice this says little of what comes.
    private static let markEvery: Duration = .seconds(5)

    init(taken: Int, at now: ContinuousClock.Instant) {
        window = Mark(taken: taken, at: now)
        newer = window
        older = window
    }

    /// - Returns: Whether less than `least` bytes a second were taken over the whole of a `length`.
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

    /// In how many seconds what is held will be taken, at the pace of the last few.
    ///
    /// - Returns: Nil where it is too early to tell.
    func secondsLeft(held: Int, taken: Int, at now: ContinuousClock.Instant) -> Double? {
        guard now >= older.at + Self.leastTime else { return nil }
        let perSecond = Double(max(0, taken - older.taken)) / ((now - older.at) / .seconds(1))
        return Double(held) / max(perSecond, 1)
    }
}
