import PushStorage

/// The rows and the pushes in planning that somebody in this process works on, to tell those apart
/// that are this session's and nobody works on.
///
/// Confined to the loop. No clock, no I/O.
final class WorkInHand: @unchecked Sendable {
    private(set) var rows: Set<DeliveryKey> = []
    private var planning: Set<String> = []
    private var strayRows = StraySearch<DeliveryKey>()
    private var strayPlans = StraySearch<String>()

    func take(_ key: DeliveryKey) { rows.insert(key) }

    func leave(_ key: DeliveryKey) { rows.remove(key) }

    /// A planner works on this push from now on.
    func begins(planning pushID: String) { planning.insert(pushID) }

    func ends(planning pushID: String) { planning.remove(pushID) }

    /// The session is lost: its rows are another's.
    func drop() {
        rows = []
        strayRows = StraySearch()
        strayPlans = StraySearch()
    }

    /// A row may be ours without anybody working on it: the answer to the transaction that made it
    /// ours was lost.
    func lookForStrays() { strayRows.isWanted = true }

    var isLookWanted: Bool { strayRows.isWanted }

    func strays(among owned: Set<DeliveryKey>) -> Set<DeliveryKey> {
        strayRows.look(owned: owned, inHand: rows)
    }

    func strayPlans(among claimed: Set<String>) -> Set<String> {
        strayPlans.look(owned: claimed, inHand: planning)
    }
}
