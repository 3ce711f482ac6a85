/// What is this session's and in nobody's hands, be it rows or pushes in planning: the transaction
/// that made them ours was committed, and its answer was lost. Pure: no clock, no I/O.
struct StraySearch<Key: Hashable & Sendable>: Sendable {
    /// Whether there is reason to look.
    var isWanted = false
    private var suspects: Set<Key> = []

    /// One look at the table. One counts as a stray when two looks in a row found it in nobody's
    /// hands: between a commit and its answer that is as it should be.
    ///
    /// - Returns: Those to hand back.
    mutating func look(owned: Set<Key>, inHand: Set<Key>) -> Set<Key> {
        let idle = owned.subtracting(inHand)
        let strays = idle.intersection(suspects)
        suspects = idle.subtracting(strays)
        isWanted = !suspects.isEmpty
        return strays
    }
}
