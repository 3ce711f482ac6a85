import PushStorage

/// What becomes of a shard whose members cannot be read: a database that is away is waited for, but what it
/// answers for keeps no place that other shards could have. Pure: no clock, no I/O.
struct UnreadableShard {
    enum Verdict: Equatable {
        case tryAgain
        /// The session is another's, and the shard with it.
        case sessionLost
        /// It goes back, and is tried again later.
        case giveBack
        /// Its push was cancelled: the rest is suppressed without being told of, as nobody can say who they
        /// are.
        case end
    }

    /// A page that the database answers for, and that cannot be read, is tried so often.
    static let limit = 5
    /// Such a shard is tried again after this long; others have its turn meanwhile.
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
