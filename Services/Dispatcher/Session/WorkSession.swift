/// Whether, and under which session, this process works.
///
/// States: idle without a session, working under one, stopping, over. A lost session is gone for
/// good; a stop is, too. Whoever works under a session asks here before each step that only its owner
/// may take.
///
/// Confined to the loop. No clock of its own, no I/O.
final class WorkSession: @unchecked Sendable {
    /// The session to write under; `nil` while there is none.
    private(set) var current: Int?
    private(set) var isStopping = false
    /// When a stop waits for answers no longer.
    private(set) var stopsAt: ContinuousClock.Instant?
    /// The drain is over: what is answered now is not written down.
    private(set) var hasEnded = false

    /// The session to claim under: none while stopping.
    var working: Int? { isStopping ? nil : current }

    func isCurrent(_ session: Int) -> Bool { current == session }

    func begin(_ session: Int) { current = session }

    /// - Returns: Whether it was the current one.
    func lose(_ session: Int) -> Bool {
        guard current == session else { return false }
        current = nil
        return true
    }

    /// - Returns: Whether this is the first sign of a stop.
    func stop(at limit: ContinuousClock.Instant) -> Bool {
        guard !isStopping else { return false }
        isStopping = true
        stopsAt = limit
        return true
    }

    func end() { hasEnded = true }
}
