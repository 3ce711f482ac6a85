import Storage

/// Decides what happens to a shard whose members cannot be read. It waits for an unreachable
/// database, but a shard with a persistent error must not hold a place that other shards need.
/// Pure: no clock, no I/O.
struct UnreadableShard {
    enum Verdict: Equatable {
        case tryAgain
        /// The session is lost, and with it the shard.
        case sessionLost
        /// The shard is released, and retried later.
        case giveBack
        /// Its push was cancelled. The other members cannot be read, so they are suppressed without
        /// outcome records.
        case end
    }

    /// The most attempts to read a page that fails with a persistent error.
    static let limit = 5
    /// How long such a shard is released, so that other shards get its place.
    static let waitMilliseconds: Int64 = 60_000

    private var refusals = 0

    mutating func failed(_ error: any Error, isCancelled: Bool) -> Verdict {
        guard let error = error as? StorageError else { return .tryAgain }
        if error.kind == .sessionLost { return .sessionLost }
        guard !error.isRetryable else { return .tryAgain }
        refusals += 1
        guard refusals >= Self.limit else { return .tryAgain }
        return isCancelled ? .end : .giveBack
    }
}
