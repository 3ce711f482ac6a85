import Storage

/// Decides about a shard whose members cannot be read: an unreachable database is waited for, but a
/// shard with a persistent error does not keep a place that other shards could have. Pure: no clock, no
/// I/O.
struct UnreadableShard {
    enum Verdict: Equatable {
        case tryAgain
        /// The session is lost, and the shard with it.
        case sessionLost
        /// The shard is released, and retried later.
        case giveBack
        /// Its push was cancelled: the other members are suppressed without outcome records, as they
        /// cannot be read.
        case end
    }

    /// The most attempts to read a page that fails with an error that is not retryable.
    static let limit = 5
    /// How long such a shard is released for; other shards have its turn in the meantime.
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
