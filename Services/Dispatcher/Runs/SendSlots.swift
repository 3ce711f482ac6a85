import PushCore

/// The flight budget and the tasks that wait for slots of it.
///
/// Authority: the slots. All slots are taken and released here. After a release, `capacityAppeared`
/// wakes the waiters. It does not know what a slot is used for.
///
/// No clock, no I/O.
@DispatchLoop
final class SendSlots {
    private struct Waiter {
        let lane: Lane
        let count: Int
        /// Whether its slots stay promised until `endPromise`.
        let isPromised: Bool
        let isLarge: Bool
        let continuation: CheckedContinuation<Void, Never>
    }

    var budget: SendBudget
    private let session: WorkSession
    private var waiters: [Waiter] = []
    /// The slots for single devices that are promised to batches which look up their devices first.
    private var promised = 0
    /// The slots promised to large pushes; other pushes do not wait for these.
    private var promisedToLarge = 0
    /// The slots whose promise was ended and that were not promised.
    private var excess = 0
    /// The lanes whose sweeper found too few free slots.
    private var waitingLanes: Set<Lane> = []
    /// Wakes the sweeper of a lane when more slots are free.
    private let wake: (Lane) -> Void
    /// Whether further rows of single devices would only wait.
    var isPressed: () -> Bool = { false }

    init(total: Int, session: WorkSession, wake: @escaping (Lane) -> Void) {
        budget = SendBudget(total: total)
        self.session = session
        self.wake = wake
    }

    func room(in lane: Lane) -> Int {
        session.isStopping ? 0 : free(in: lane)
    }

    private func free(in lane: Lane) -> Int {
        let room = budget.room(for: SendBudget.Use(lane))
        return lane == .direct ? max(0, room - promised - promisedToLarge) : room
    }

    /// Whether a claim is worth its round trip. If not, `wake` is called for the lane once it is.
    func isWorthClaiming(in lane: Lane) -> Bool {
        let room = room(in: lane)
        let isWorthIt =
            room > 0 && !(lane == .direct && isPressed())
            && (room >= 200 || room >= budget.owned(for: SendBudget.Use(lane)))
        if !isWorthIt { waitingLanes.insert(lane) }
        return isWorthIt
    }

    func hasRoom(in lane: Lane, count: Int, isLarge: Bool = false) -> Bool {
        guard session.current != nil, !(lane == .direct && isPressed()) else { return false }
        // Look-ups come before sends: if many batches look up at once, all their deliveries need
        // slots at once.
        let others = isLarge ? promisedToLarge : promised
        if lane == .direct, others > 0, others + count > budget.total / 8 { return false }
        let room = free(in: lane)
        if room > 0, room >= count || room * 4 >= budget.total { return true }
        // No batch waits for slots that slow providers hold.
        return room * 4 >= max(1, budget.total - budget.heldByFew)
    }

    /// Adds a waiter. It is resumed once its lane has `count` free slots, or a quarter of all, and
    /// a session.
    func add(
        _ continuation: CheckedContinuation<Void, Never>,
        waitingFor count: Int,
        in lane: Lane,
        isPromised: Bool = false,
        isLarge: Bool = false
    ) {
        waiters.append(
            Waiter(
                lane: lane,
                count: count,
                isPromised: isPromised,
                isLarge: isLarge,
                continuation: continuation
            )
        )
    }

    /// Promises slots for single devices to a batch that looks up its devices first.
    func promise(_ count: Int, isLarge: Bool = false) {
        if isLarge { promisedToLarge += count } else { promised += count }
    }

    /// Ends a promise: the slots are taken now, or not needed.
    func endPromise(_ count: Int, isLarge: Bool = false) {
        let ended = min(count, isLarge ? promisedToLarge : promised)
        excess += count - ended
        if isLarge { promisedToLarge -= ended } else { promised -= ended }
        wakeWaiters()
    }

    /// Returns how many slots were released that were not owned, or their promises ended twice, since
    /// the last call.
    func takeExcess() -> Int {
        defer { excess = 0 }
        return excess + budget.takeExcess()
    }

    /// Wakes the waiters after slots were released.
    func capacityAppeared() {
        wakeWaiters()
        for lane in waitingLanes {
            waitingLanes.remove(lane)
            if isWorthClaiming(in: lane) { wake(lane) }
        }
    }

    /// Resumes the waiters that can continue: slots were released, or the session changed, or a stop began.
    func wakeWaiters() {
        guard !waiters.isEmpty else { return }
        let all = waiters
        waiters = []
        for waiter in all {
            if session.isStopping
                || hasRoom(in: waiter.lane, count: waiter.count, isLarge: waiter.isLarge)
            {
                if waiter.isPromised { promise(waiter.count, isLarge: waiter.isLarge) }
                waiter.continuation.resume()
            } else {
                waiters.append(waiter)
            }
        }
    }
}
