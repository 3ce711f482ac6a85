import EventLoop

/// The budget for uploads that are being decoded on one loop. The apps take turns; an upload beyond the
/// budget waits, and is decoded alone if it is larger than the whole budget. Confined to its loop.
final class RealmGate: @unchecked Sendable {
    private struct Waiter {
        let cost: Int
        let continuation: CheckedContinuation<Void, Never>
    }

    private let limit: Int
    private var used = 0
    private var line = FairLine<Waiter>()
    /// The first in the line, for whom there was no room yet.
    private var next: Waiter?

    init(limit: Int) { self.limit = limit }

    /// Waits for room; `leave` must follow.
    func enter(_ app: String, _ cost: Int) async {
        if next == nil, line.isEmpty, hasRoom(for: cost) {
            used += cost
            return
        }
        await withCheckedContinuation { continuation in
            line.append(Waiter(cost: cost, continuation: continuation), of: app)
        }
    }

    func leave(_ cost: Int) {
        used -= cost
        while let waiter = next ?? line.popFirst() {
            guard hasRoom(for: waiter.cost) else {
                next = waiter
                return
            }
            next = nil
            used += waiter.cost
            waiter.continuation.resume()
        }
    }

    private func hasRoom(for cost: Int) -> Bool { used == 0 || used + cost <= limit }
}
