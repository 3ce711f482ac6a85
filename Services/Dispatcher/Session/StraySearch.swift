/// Finds strays, be it rows or pushes in planning, which this session owns and no task works on: their
/// claim was committed, and its reply was lost. Pure: no clock, no I/O.
struct StraySearch<Key: Hashable & Sendable>: Sendable {
    /// Whether there is reason to look.
    var isWanted = false
    private var suspects: Set<Key> = []

    /// Compares the rows that the session owns with those that tasks work on. A row counts as a stray
    /// when two looks in a row found it without a task: between a commit and its reply that is normal.
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
