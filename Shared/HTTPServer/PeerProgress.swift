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
