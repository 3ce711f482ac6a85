/// How many shards a process may claim beside those that it works on. Pure.
struct ShardRoom: Equatable {
    let count: Int
    /// Whether those of pushes with a pace are among them.
    let includesPaced: Bool

    /// One that keeps a slow pace holds its place for hours: half of the places stay for the others.
    ///
    /// - Parameters:
    ///   - limit: Shards at a time, `DISPATCH_SHARDS`.
    ///   - running: Those that are worked on.
    ///   - paced: Those of them that keep a pace.
    init(limit: Int, running: Int, paced: Int) {
        let free = max(0, limit - running)
        let forPaced = max(1, limit / 2) - paced
        includesPaced = forPaced > 0
        count = includesPaced ? min(free, forPaced) : free
    }
}
