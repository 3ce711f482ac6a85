/// The number of members that the shards of one lane may leave unrecorded without a slot of the
/// flight budget. Pure: no clock, no I/O.
///
/// It keeps promise 3: a crash repeats at most `DISPATCH_SHARDS` × `DISPATCH_CHECKPOINT_EVERY`
/// such members of a lane, however many shards are open and whenever they opened. Each shard is
/// meant to have an equal share. A checkpoint costs as much for one member as for hundreds, so the
/// shares are as large as the number of open shards allows. If a further shard opens, all shares
/// shrink at once. Members beyond a smaller share stay counted until they are recorded; until then
/// other members may find nothing left, and keep their slots.
final class UnrecordedBudget {
    private let checkpointEvery: Int
    private let limit: Int
    private var shards = 0
    /// The members that are unrecorded and hold no slot, at most `limit`.
    private(set) var count = 0

    /// - Parameters:
    ///   - checkpointEvery: `DISPATCH_CHECKPOINT_EVERY`, the largest share; 1 or more.
    ///   - shards: `DISPATCH_SHARDS`, the number of shards that may have it; 1 or more.
    init(checkpointEvery: Int, shards: Int) {
        self.checkpointEvery = max(1, checkpointEvery)
        limit = self.checkpointEvery * max(1, shards)
    }

    /// The share of one shard, 1 or more.
    var share: Int { max(1, min(checkpointEvery, limit / max(1, shards))) }

    func open() { shards += 1 }

    /// Counts a member that has ended.
    ///
    /// - Returns: `false` if nothing is left. The member then keeps its slot until it is recorded.
    func take() -> Bool {
        guard count < limit else { return false }
        count += 1
        return true
    }

    /// Uncounts members that are recorded.
    func giveBack(_ members: Int) { count -= members }

    /// - Parameter unrecorded: The shard's members that are still counted.
    func close(unrecorded: Int) {
        giveBack(unrecorded)
        shards -= 1
    }
}
