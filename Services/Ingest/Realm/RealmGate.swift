import EventLoop
import Observability

/// The budget for the memory of uploads that are being decoded in this process. Small and large ones
/// have a half each, so that no small one waits for a large one, and in both the apps take turns. One
/// that exceeds its half is decoded while no other of that half is.
final class RealmGate: Sendable {
    private struct Waiter {
        let cost: Int
        let continuation: CheckedContinuation<Void, Never>
    }

    private struct Lane {
        var used = 0
        var line = FairLine<Waiter>()
        /// The first in the line, for whom there was no room yet.
        var next: Waiter?
    }

    private let limit: Int
    private let lock = Lock()
    nonisolated(unsafe) private var small = Lane()
    nonisolated(unsafe) private var large = Lane()

    /// - Parameter limit: In bytes.
    init(limit: Int) { self.limit = limit / 2 }

    /// Returns the memory that decoding takes at most: the places of all changes, and the values of
    /// one object.
    static func cost(ofBytes count: Int) -> Int { count * 4 + min(count * 16, 24 << 20) }

    /// Waits for room; `leave` with the same cost must follow.
    func enter(_ app: String, cost: Int) async {
        await withCheckedContinuation { continuation in
            let waiter = Waiter(cost: cost, continuation: continuation)
            let admitted = lock.withLock {
                isLarge(cost)
                    ? unsafe enter(app, waiter, &large) : unsafe enter(app, waiter, &small)
            }
            for waiter in admitted { waiter.continuation.resume() }
        }
    }

    func leave(cost: Int) {
        let admitted = lock.withLock {
            isLarge(cost) ? unsafe leave(cost, &large) : unsafe leave(cost, &small)
        }
        for waiter in admitted { waiter.continuation.resume() }
    }

    private func isLarge(_ cost: Int) -> Bool { cost > limit / 4 }

    private func enter(_ app: String, _ waiter: Waiter, _ lane: inout Lane) -> [Waiter] {
        lane.line.append(waiter, of: app)
        return admitted(to: &lane)
    }

    private func leave(_ cost: Int, _ lane: inout Lane) -> [Waiter] {
        lane.used -= cost
        return admitted(to: &lane)
    }

    private func admitted(to lane: inout Lane) -> [Waiter] {
        var admitted: [Waiter] = []
        while let waiter = lane.next ?? lane.line.popFirst() {
            guard lane.used == 0 || lane.used + waiter.cost <= limit else {
                lane.next = waiter
                break
            }
            lane.next = nil
            lane.used += waiter.cost
            admitted.append(waiter)
        }
        return admitted
    }
}
