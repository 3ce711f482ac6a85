internal import EventLoop

/// How many answers that may be large are made at once for one connection, beside those that its peer
/// has not read: handlers that wait for their turn hold no more than their requests. Confined to its
/// loop.
final class AnswerRoom: @unchecked Sendable {
    private let loop: EventLoop
    private let limit: Int
    /// What the connection holds of answers.
    private let heldBytes: () -> Int
    private var inside = 0
    private var waiters: [Waiter] = []

    /// What is set aside for each of them: a part of one, and what of it waits to be written.
    private static let share = 256 * 1024

    /// A cancellation may come first.
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

    /// In the order in which they came.
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
                // There may be room since: a task that does not prefer the loop is queued once more
                // before this.
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

    /// The answer is the connection's, or nobody makes it any more.
    func leave() {
        inside -= 1
        admit()
    }

    /// Called whenever the peer may have read.
    func admit() {
        while !waiters.isEmpty, hasRoom {
            inside += 1
            waiters.removeFirst().continuation?.resume()
        }
    }
}
