/// Whether this process may work, and under which session.
///
/// States: idle without a session, working under a session, stopping, over. A lost session does not
/// come back, and a stop is final. A task that works under a session checks here before each step
/// that only the owner may take.
///
/// No clock of its own, no I/O.
@DispatchLoop
final class WorkSession {
    /// The session to write under; `nil` while there is none.
    private(set) var current: Int?
    private(set) var isStopping = false
    /// The time at which a stop no longer waits for answers.
    private(set) var stopsAt: ContinuousClock.Instant?
    /// Whether the drain has ended: later answers are not recorded.
    private(set) var hasEnded = false

    /// The session to claim under; `nil` while stopping.
    var working: Int? { isStopping ? nil : current }

    func isCurrent(_ session: Int) -> Bool { current == session }

    func begin(_ session: Int) { current = session }

    /// - Returns: Whether this was the current session.
    func lose(_ session: Int) -> Bool {
        guard current == session else { return false }
        current = nil
        return true
    }

    /// - Returns: Whether this is the first call.
    func stop(at limit: ContinuousClock.Instant) -> Bool {
        guard !isStopping else { return false }
        isStopping = true
        stopsAt = limit
        return true
    }

    func end() { hasEnded = true }
}
