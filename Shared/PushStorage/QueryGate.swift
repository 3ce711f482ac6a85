import Observability

/// How many conditions of clients one loop asks at a time, so that slow ones leave connections to
/// everything else. The first to come is the first to be let in; of those that wait there is a bound.
final class QueryGate: Sendable {
    private static let maximumWaiting = 200

    private let lock = Lock()
    private let limit: Int
    nonisolated(unsafe) private var inside = 0
    nonisolated(unsafe) private var waiting: [CheckedContinuation<Void, Never>] = []

    init(limit: Int) { self.limit = max(1, limit) }

    /// - Throws: `StorageError`, retryable, where too many wait already.
    func enter() async throws {
        let isFull = lock.withLock {
            unsafe inside >= limit && waiting.count >= Self.maximumWaiting
        }
        guard !isFull else {
            throw StorageError(.database, "too many queries wait", isRetryable: true)
        }
        await withCheckedContinuation { continuation in
            let isFree = lock.withLock {
                guard unsafe inside < limit else {
                    unsafe waiting.append(continuation)
                    return false
                }
                unsafe inside += 1
                return true
            }
            if isFree { continuation.resume() }
        }
    }

    func leave() {
        let next: CheckedContinuation<Void, Never>? = lock.withLock {
            guard unsafe waiting.isEmpty else { return unsafe waiting.removeFirst() }
            unsafe inside -= 1
            return nil
        }
        next?.resume()
    }
}
