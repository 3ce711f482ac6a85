import Observability

/// Limits the client conditions that one loop queries at a time, so that slow queries leave
/// connections for everything else. First come, first served; the number of waiters is bounded.
final class QueryGate: Sendable {
    private static let maximumWaiting = 200

    private let lock = Lock()
    private let limit: Int
    nonisolated(unsafe) private var inside = 0
    nonisolated(unsafe) private var waiting: [Waiter] = []

    /// A waiter, which may be cancelled before it waits.
    private final class Waiter: @unchecked Sendable {
        var continuation: CheckedContinuation<Void, any Error>?
        var isCancelled = false
    }

    init(limit: Int) { self.limit = max(1, limit) }

    /// - Throws: `StorageError`, retryable, if too many are waiting; `CancellationError`.
    func enter() async throws {
        let isFull = lock.withLock {
            unsafe inside >= limit && waiting.count >= Self.maximumWaiting
        }
        guard !isFull else {
            throw StorageError(.database, "too many queries wait", isRetryable: true)
        }
        let waiter = Waiter()
        try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                wait(waiter, continuation)
            }
        } onCancel: {
            giveUp(waiter)
        }
    }

    private func wait(_ waiter: Waiter, _ continuation: CheckedContinuation<Void, any Error>) {
        let verdict: Result<Void, any Error>? = lock.withLock {
            if waiter.isCancelled { return .failure(CancellationError()) }
            guard unsafe inside < limit else {
                waiter.continuation = continuation
                unsafe waiting.append(waiter)
                return nil
            }
            unsafe inside += 1
            return .success(())
        }
        if let verdict { continuation.resume(with: verdict) }
    }

    private func giveUp(_ waiter: Waiter) {
        let continuation = lock.withLock {
            waiter.isCancelled = true
            unsafe waiting.removeAll { $0 === waiter }
            defer { waiter.continuation = nil }
            return waiter.continuation
        }
        continuation?.resume(throwing: CancellationError())
    }

    func leave() {
        let next: CheckedContinuation<Void, any Error>? = lock.withLock {
            guard unsafe waiting.isEmpty else {
                let waiter = unsafe waiting.removeFirst()
                defer { waiter.continuation = nil }
                return waiter.continuation
            }
            unsafe inside -= 1
            return nil
        }
        next?.resume()
    }
}
