/// Decides when to stop reading because too many records or bytes are outstanding. Pure: no clock,
/// no librdkafka.
///
/// States: reading; full, where no records are taken and librdkafka's own limit stops its fetching;
/// held back, where that lasted and the partitions are paused, so that the queue can still be
/// served, as it also carries the group's requests. Not at once: a pause discards the records that
/// librdkafka has fetched ahead. The last two end at half of both limits.
struct ConsumerBackpressure {
    enum Action: Equatable { case none, pause, readOn }

    let maximumRecords: Int
    let maximumBytes: Int
    /// Whether the partitions are paused.
    private(set) var isHeldBack = false
    /// The time since which it is full without a break.
    private var fullSince: ContinuousClock.Instant?
    /// Whether it was full, so that the queue may hold events that are not announced again.
    private var hasLeftSome = false

    /// How long the queue may stay unserved; a group expels a member only after minutes of silence.
    static let timeLimit: Duration = .seconds(1)

    init(maximumRecords: Int, maximumBytes: Int) {
        self.maximumRecords = maximumRecords
        self.maximumBytes = maximumBytes
    }

    /// Notes how much is outstanding now, whether it grew or shrank.
    mutating func inHand(
        records: Int,
        bytes: Int,
        at now: @autoclosure () -> ContinuousClock.Instant
    ) -> Action {
        if records >= maximumRecords || bytes >= maximumBytes { return full(at: now()) }
        fullSince = nil
        guard hasLeftSome, records <= maximumRecords / 2, bytes <= maximumBytes / 2 else {
            return .none
        }
        hasLeftSome = false
        isHeldBack = false
        return .readOn
    }

    private mutating func full(at now: ContinuousClock.Instant) -> Action {
        hasLeftSome = true
        let since = fullSince ?? now
        fullSince = since
        guard !isHeldBack, now - since >= Self.timeLimit else { return .none }
        isHeldBack = true
        return .pause
    }
}

/// Decides when to make librdkafka fetch again: it stops when its queue reaches one of its limits,
/// and checks again by itself up to a second later. Pure.
///
/// Due each time that a quarter of either limit was taken: after it stopped, three quarters are
/// left to hand out while more arrives. Both limits count, since a queue of large records is full
/// with few of them.
struct FetchPrompt {
    private let records: Int
    private let bytes: Int
    private var taken = 0
    private var takenBytes = 0

    init(limitRecords: Int, limitBytes: Int) {
        records = max(1, limitRecords / 4)
        bytes = max(1, limitBytes / 4)
    }

    /// - Returns: Whether it is due.
    mutating func took(records count: Int, bytes size: Int) -> Bool {
        taken += count
        takenBytes += size
        guard taken >= records || takenBytes >= bytes else { return false }
        (taken, takenBytes) = (0, 0)
        return true
    }
}
