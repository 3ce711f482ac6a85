import Observability

/// The reasons why a part is not ready, as `/readyz` reports them. Thread-safe.
package final class NotReadyReasons: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var reasons: [String] = []

    package init() {}

    package var reason: String? { lock.withLock { unsafe reasons.first } }

    package func set(_ reason: String) {
        lock.withLock {
            if unsafe !reasons.contains(reason) { unsafe reasons.append(reason) }
        }
    }

    package func clear(_ reason: String) {
        lock.withLock { unsafe reasons.removeAll { $0 == reason } }
    }
}
