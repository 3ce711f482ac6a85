import PushStorage

/// The rows and the pushes in planning that tasks of this process work on. All others that the
/// session owns are strays.
///
/// No clock, no I/O.
@DispatchLoop
final class WorkInHand {
    private(set) var rows: Set<DeliveryKey> = []
    private var planning: Set<String> = []
    private var strayRows = StraySearch<DeliveryKey>()
    private var strayPlans = StraySearch<String>()

    func take(_ key: DeliveryKey) { rows.insert(key) }

    func leave(_ key: DeliveryKey) { rows.remove(key) }

    /// Notes that a planner works on this push from now on.
    func begins(planning pushID: String) { planning.insert(pushID) }

    func ends(planning pushID: String) { planning.remove(pushID) }

    /// Drops all rows: the session is lost, and other sessions own them.
    func drop() {
        rows = []
        strayRows = StraySearch()
        strayPlans = StraySearch()
    }

    /// Requests a search for stray rows: the reply to a transaction that claimed rows was lost.
    func lookForStrays() { strayRows.isWanted = true }

    var isLookWanted: Bool { strayRows.isWanted }

    func strays(among owned: Set<DeliveryKey>) -> Set<DeliveryKey> {
        strayRows.look(owned: owned, inHand: rows)
    }

    func strayPlans(among claimed: Set<String>) -> Set<String> {
        strayPlans.look(owned: claimed, inHand: planning)
    }
}
