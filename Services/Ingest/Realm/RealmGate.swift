import EventLoop
import Observability

/// The budget for the memory of uploads that are being decoded in this process.
///
/// Small, large and oversize ones have lanes of their own, so that none waits for a larger kind. In each
/// the apps take turns, and one app leaves half of a lane to the others. An oversize one exceeds its lane:
/// it is decoded while no other oversize one is.
final class RealmGate: Sendable {
    private struct Waiter {
        let cost: Int
        let continuation: CheckedContinuation<Void, Never>
    }

    private struct Lane {
        let limit: Int
        var used = 0
        var usedByApp: [String: Int] = [:]
        var waiting = FairLine<Waiter>()

        mutating func change(_ app: String, by cost: Int) {
            used += cost
            let own = usedByApp[app, default: 0] + cost
            usedByApp[app] = own > 0 ? own : nil
        }

        /// Takes the waiters for whom there is room.
        mutating func takeAdmitted() -> [Waiter] {
            var admitted: [Waiter] = []
            // Those behind one that the lane has no room for do not overtake it, or it might wait for ever.
            while let (app, waiter) = waiting.first(where: leavesTheOthersHalf),
                used == 0 || used + waiter.cost <= limit
            {
                waiting.popFirst(of: app)
                change(app, by: waiter.cost)
                admitted.append(waiter)
            }
            return admitted
        }

        private func leavesTheOthersHalf(_ app: String, _ waiter: Waiter) -> Bool {
            guard let own = usedByApp[app] else { return true }
            return own + waiter.cost <= limit / 2
        }
    }

    private let lock = Lock()
    nonisolated(unsafe) private var small: Lane
    nonisolated(unsafe) private var large: Lane
    nonisolated(unsafe) private var oversize = Lane(limit: 0)

    /// - Parameter limit: In bytes.
    init(limit: Int) {
        unsafe small = Lane(limit: limit / 2)
        unsafe large = Lane(limit: limit / 2)
    }

    /// Returns the memory that decoding takes at most: the places of all changes, and the values of
    /// one object.
    static func cost(ofBytes count: Int) -> Int { count * 4 + min(count * 16, 24 << 20) }

    /// Waits for room; `leave` with the same cost must follow.
    func enter(_ app: String, cost: Int) async {
        await withCheckedContinuation { continuation in
            let waiter = Waiter(cost: cost, continuation: continuation)
            resume(inLaneOf: cost) { lane in lane.waiting.append(waiter, of: app) }
        }
    }

    func leave(_ app: String, cost: Int) {
        resume(inLaneOf: cost) { lane in lane.change(app, by: -cost) }
    }

    private func resume(inLaneOf cost: Int, after change: (inout Lane) -> Void) {
        func admitted(_ lane: inout Lane) -> [Waiter] {
            change(&lane)
            return lane.takeAdmitted()
        }
        let waiters = lock.withLock {
            if unsafe cost > large.limit { return unsafe admitted(&oversize) }
            return unsafe cost > small.limit / 4 ? admitted(&large) : admitted(&small)
        }
        for waiter in waiters { waiter.continuation.resume() }
    }
}
