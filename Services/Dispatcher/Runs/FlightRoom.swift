import PushCore
import PushStorage

/// The budget of flight, and who waits for room in it.
///
/// Authority: the slots. Whoever takes or gives some back does it here; after slots came back,
/// `roomAppeared` wakes those that wait. It knows nothing of what the slots are used for.
///
/// Confined to the loop. No clock, no I/O.
final class FlightRoom: @unchecked Sendable {
    private struct Waiter {
        let lane: Lane
        let count: Int
        /// Keeps the room that it gets until `keepPromise`.
        let isPromised: Bool
        let continuation: CheckedContinuation<Void, Never>
    }

    var budget: FlightBudget
    private let session: WorkSession
    private var waiters: [Waiter] = []
    /// Slots for single devices that somebody was given and has not taken yet, as he looks up first whom
    /// he sends to.
    private var promised = 0
    /// Lanes whose sweeper found too little room.
    private var hungry: Set<Lane> = []
    /// Tells a lane's sweeper of more.
    private let ring: (Lane) -> Void
    /// Whether bringing more rows of single devices would only make them wait.
    var isPressed: () -> Bool = { false }

    init(total: Int, session: WorkSession, ring: @escaping (Lane) -> Void) {
        budget = FlightBudget(total: total)
        self.session = session
        self.ring = ring
    }

    func room(in lane: Lane) -> Int {
        session.isStopping ? 0 : free(in: lane)
    }

    private func free(in lane: Lane) -> Int {
        let room = budget.room(for: FlightBudget.Use(lane))
        return lane == .direct ? max(0, room - promised) : room
    }

    /// Whether a claim is worth its round trip; if not, the lane's bell rings when it is.
    func isWorthClaiming(in lane: Lane) -> Bool {
        let room = room(in: lane)
        let isWorthIt =
            room > 0 && !(lane == .direct && isPressed())
            && (room >= 200 || room >= budget.owned(for: FlightBudget.Use(lane)))
        if !isWorthIt { hungry.insert(lane) }
        return isWorthIt
    }

    func hasRoom(in lane: Lane, count: Int) -> Bool {
        guard session.current != nil, !(lane == .direct && isPressed()) else { return false }
        // Who looks up stands before those that are sent: where many do, their events come all at once.
        if lane == .direct, promised > 0, promised + count > budget.total / 8 { return false }
        let room = free(in: lane)
        if room > 0, room >= count || room * 4 >= budget.total { return true }
        // Nobody waits for what slow providers have.
        return room * 4 >= max(1, budget.total - budget.heldByFew)
    }

    /// Resumed once a lane has room for so many, or for a good part of all, and there is a session.
    func add(
        _ continuation: CheckedContinuation<Void, Never>,
        waitingFor count: Int,
        in lane: Lane,
        isPromised: Bool = false
    ) {
        waiters.append(
            Waiter(lane: lane, count: count, isPromised: isPromised, continuation: continuation)
        )
    }

    /// So many slots for single devices are somebody's who looks up first whom he sends to.
    func promise(_ count: Int) { promised += count }

    /// He takes them now, or does not need them.
    func keepPromise(_ count: Int) {
        promised = max(0, promised - count)
        wakeWaiters()
    }

    /// Slots were given back: whoever waits for one looks again.
    func roomAppeared() {
        wakeWaiters()
        for lane in hungry {
            hungry.remove(lane)
            if isWorthClaiming(in: lane) { ring(lane) }
        }
    }

    /// The session or a stop may have changed what those that wait wait for.
    func wakeWaiters() {
        guard !waiters.isEmpty else { return }
        let all = waiters
        waiters = []
        for waiter in all {
            if session.isStopping || hasRoom(in: waiter.lane, count: waiter.count) {
                if waiter.isPromised { promise(waiter.count) }
                waiter.continuation.resume()
            } else {
                waiters.append(waiter)
            }
        }
    }
}
