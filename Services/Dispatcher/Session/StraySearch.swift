/// Finds strays: rows or pushes in planning that this session owns and no task works on. Their
/// claim was committed, and its reply was lost. Pure: no clock, no I/O.
struct StraySearch<Key: Hashable & Sendable>: Sendable {
    /// Whether there is reason to look.
    var isWanted = false
    private var suspects: Set<Key> = []

    /// Compares the rows that the session owns with those that tasks work on. A row is a stray if
    /// two looks in a row find no task for it. A single look is not enough: a commit comes before
    /// its reply.
    ///
    /// - Returns: The strays to release.
    mutating func look(owned: Set<Key>, inHand: Set<Key>) -> Set<Key> {
        let idle = owned.subtracting(inHand)
        let strays = idle.intersection(suspects)
        suspects = idle.subtracting(strays)
        isWanted = !suspects.isEmpty
        return strays
    }
}
