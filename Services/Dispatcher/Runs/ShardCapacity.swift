/// The number of shards that a process may claim in addition to its running ones. Pure.
struct ShardCapacity: Equatable {
    let count: Int
    /// Whether it may claim shards of pushes with a pace.
    let includesPaced: Bool

    /// Computes the capacity. A shard with a slow pace holds its place for hours, so half of the
    /// places are reserved for other shards.
    ///
    /// - Parameters:
    ///   - limit: The most shards at a time, `DISPATCH_SHARDS`.
    ///   - running: The number of shards that this process works on.
    ///   - paced: The number of running shards that have a pace.
    init(limit: Int, running: Int, paced: Int) {
        let free = max(0, limit - running)
        let forPaced = max(1, limit / 2) - paced
        includesPaced = forPaced > 0
        count = includesPaced ? min(free, forPaced) : free
    }
}
