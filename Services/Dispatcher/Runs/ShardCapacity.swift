/// The number of shards that a process may claim beside those that it works on. Pure.
struct ShardCapacity: Equatable {
    let count: Int
    /// Whether shards of pushes with a pace are among them.
    let includesPaced: Bool

    /// Computes the capacity. A shard with a slow pace holds its place for hours: half of the places
    /// stay for the others.
    ///
    /// - Parameters:
    ///   - limit: Shards at a time, `DISPATCH_SHARDS`.
    ///   - running: The shards that are worked on.
    ///   - paced: The shards of these that have a pace.
    init(limit: Int, running: Int, paced: Int) {
        let free = max(0, limit - running)
        let forPaced = max(1, limit / 2) - paced
        includesPaced = forPaced > 0
        count = includesPaced ? min(free, forPaced) : free
    }
}
