/// Decides when to stop reading because too many records or bytes are outstanding. Pure: no clock,
/// no librdkafka.
///
/// States: reading; full: no records are taken, and librdkafka stops fetching at its own limit;
/// held back: full for `timeLimit`, so the partitions are paused and the queue is served again, as
/// it also carries the group's requests. The pause is not immediate, as it discards the records
/// that librdkafka has fetched ahead. Full and held back end at half of both limits.
struct ConsumerBackpressure {
    enum Action: Equatable { case none, pause, readOn }

    let maximumRecords: Int
    let maximumBytes: Int
    /// Whether the partitions are paused.
    private(set) var isHeldBack = false
    /// The time since which the state is full without a break.
    private var fullSince: ContinuousClock.Instant?
    /// Whether it was full, so that the queue may hold events that are not announced again.
    private var hasLeftSome = false

    /// How long the queue may stay unserved; a group expels a member only after minutes of silence.
    static let timeLimit: Duration = .seconds(1)

    init(maximumRecords: Int, maximumBytes: Int) {
        self.maximumRecords = maximumRecords
        self.maximumBytes = maximumBytes
    }

    /// Notes how much is outstanding now; called after each change in either direction.
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

/// Decides when to make librdkafka fetch again: librdkafka stops when its queue reaches a limit,
/// and checks again up to a second later. Pure.
///
/// A prompt is due each time that a quarter of either limit was taken: three quarters are then left
/// to hand out while more records arrive. Both limits count, since a few large records fill the
/// queue.
struct FetchPrompt {
    private let records: Int
    private let bytes: Int
    private var taken = 0
    private var takenBytes = 0

    init(limitRecords: Int, limitBytes: Int) {
        records = max(1, limitRecords / 4)
        bytes = max(1, limitBytes / 4)
    }

    /// - Returns: Whether a prompt is due.
    mutating func took(records count: Int, bytes size: Int) -> Bool {
        taken += count
        takenBytes += size
        guard taken >= records || takenBytes >= bytes else { return false }
        (taken, takenBytes) = (0, 0)
        return true
    }
}
