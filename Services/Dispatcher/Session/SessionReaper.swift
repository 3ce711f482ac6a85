import Observability
import PushStorage
import ServiceKit

/// The state that a round of the session reaper leaves for the next.
struct ReapedSessions: Sendable {
    /// Ended sessions that still own rows which could not be released yet.
    var left: Set<Int> = []
    var round = 0
}

/// Ends expired sessions, whose dispatchers died or stopped for longer than their lease, and
/// releases their rows and shards. Every replica does this.
///
/// It is apart from the heartbeat, which it must never delay: the rows may be many, and locked.
func sessionReaper(
    _ sessions: SessionStore,
    in runtime: ServiceRuntime,
    onTakeOver: @escaping @Sendable () -> Void
) -> PeriodicJob<ReapedSessions> {
    // Rows whose session does not exist are very rare, and a search for them is expensive.
    let roundsBetweenSearches = 15
    let log = runtime.log
    return PeriodicJob(
        "session reaper",
        cannot: "what dead dispatchers left is not taken over",
        in: runtime,
        state: ReapedSessions()
    ) { state in
        let ended = try await sessions.endExpired()
        state.left.formUnion(ended)
        if state.round % roundsBetweenSearches == 0 {
            state.left.formUnion(try await sessions.sessionsWithOrphans())
        }
        state.round += 1
        guard !state.left.isEmpty else { return .seconds(2) }
        let released = try await sessions.release(state.left.sorted())
        if released.isAll { state.left = [] }
        if !ended.isEmpty || released.deliveries > 0 {
            log.warning(
                "reaped expired sessions",
                [.count: .integer(released.deliveries)]
            )
            onTakeOver()
        }
        return .seconds(2)
    }
}
