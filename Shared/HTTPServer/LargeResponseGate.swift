internal import EventLoop

/// Limits the large responses that one connection builds at once, by the bytes its peer has not
/// read. A waiting handler holds only its request. Confined to its loop.
final class LargeResponseGate: @unchecked Sendable {
    private let loop: EventLoop
    private let limit: Int
    /// Returns the response bytes that the connection holds.
    private let heldBytes: () -> Int
    private var inside = 0
    private var waiters: [Waiter] = []

    /// The bytes reserved for each response: one part of it, and its unsent bytes.
    private static let share = 256 * 1024

    /// A waiting handler. A cancellation may precede the wait.
    private final class Waiter: @unchecked Sendable {
        var continuation: CheckedContinuation<Void, any Error>?
        var isCancelled = false
    }

    init(limit: Int, on loop: EventLoop, heldBytes: @escaping () -> Int) {
        self.limit = limit
        self.loop = loop
        self.heldBytes = heldBytes
    }

    private var hasRoom: Bool {
        let held = heldBytes()
        return inside == 0 ? held < limit : held + (inside + 1) * Self.share <= limit
    }

    /// Waits for admission, first come, first served.
    func enter() async throws {
        loop.checkIsolated()
        if waiters.isEmpty, hasRoom {
            inside += 1
            return
        }
        let waiter = Waiter()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation {
                (continuation: CheckedContinuation<Void, any Error>) in
                guard !waiter.isCancelled else {
                    return continuation.resume(throwing: CancellationError())
                }
                waiter.continuation = continuation
                waiters.append(waiter)
                // There may be room by now: a task that does not prefer the loop is queued once
                // more before this.
                admit()
            }
        } onCancel: {
            loop.execute { self.cancel(waiter) }
        }
    }

    private func cancel(_ waiter: Waiter) {
        waiter.isCancelled = true
        guard let index = waiters.firstIndex(where: { $0 === waiter }) else { return }
        waiters.remove(at: index).continuation?.resume(throwing: CancellationError())
    }

    /// Leaves the gate: the connection has the response, or its handler gave up.
    func leave() {
        inside -= 1
        admit()
    }

    /// Admits waiting handlers; called whenever the peer may have read.
    func admit() {
        while !waiters.isEmpty, hasRoom {
            inside += 1
            waiters.removeFirst().continuation?.resume()
        }
    }
}
