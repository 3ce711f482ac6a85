/// Decides when too much is in hand to read on, by records and by bytes. Pure: no clock, no
/// librdkafka.
///
/// States: reading; full, where nothing more is taken and librdkafka's own bound stops its fetching;
/// held back, where that lasted and the partitions are paused, so that the queue can be served on,
/// for the group's questions are in it too. Not at once: a pause throws away what librdkafka has
/// fetched ahead. From the last two it goes on at half of both bounds.
struct HoldBack {
    enum Action: Equatable { case none, pause, readOn }

    let maximumRecords: Int
    let maximumBytes: Int
    /// The partitions are paused.
    private(set) var isHeldBack = false
    /// Since when it is full without a break.
    private var fullSince: ContinuousClock.Instant?
    /// It was full, so something may lie in the queue that nobody will announce again.
    private var hasLeftSome = false

    /// How long the queue may lie untouched; a member that is thrown out of its group after that
    /// would have been silent for minutes.
    static let patience: Duration = .seconds(1)

    init(maximumRecords: Int, maximumBytes: Int) {
        self.maximumRecords = maximumRecords
        self.maximumBytes = maximumBytes
    }

    /// What is in hand now, whether it grew or shrank.
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
        guard !isHeldBack, now - since >= Self.patience else { return .none }
        isHeldBack = true
        return .pause
    }
}

/// Decides when librdkafka is to look again whether it may fetch: it stops where what it holds ahead
/// reaches one of its limits, and by itself looks again up to a second later. Pure.
///
/// Each time that a quarter of either limit was taken: after it stopped, three quarters are left to
/// hand out while more comes. By both, since a queue of large records is full with few of them.
struct FetchPrompt {
    private let records: Int
    private let bytes: Int
    private var taken = 0
    private var takenBytes = 0

    init(limitRecords: Int, limitBytes: Int) {
        records = max(1, limitRecords / 4)
        bytes = max(1, limitBytes / 4)
    }

    /// - Returns: Whether it is time.
    mutating func took(records count: Int, bytes size: Int) -> Bool {
        taken += count
        takenBytes += size
        guard taken >= records || takenBytes >= bytes else { return false }
        (taken, takenBytes) = (0, 0)
        return true
    }
}
