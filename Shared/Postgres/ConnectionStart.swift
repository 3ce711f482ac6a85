import EventLoop

/// How one slot's connections begin. Confined to the loop.
///
/// Resolving a name blocks a thread of libuv's pool and cannot be cut short. So an attempt that has
/// waited long enough fails and leaves it to go on, and the next attempt waits for that same one:
/// a resolver that hangs costs one thread a slot, never more.
final class ConnectionStart: @unchecked Sendable {
    private let loop: EventLoop
    private let make: @Sendable () throws -> ConnectionHandle
    private var isRunning = false
    private var waiter: CheckedContinuation<ConnectionHandle, any Error>?

    /// - Parameters:
    ///   - loop: Where it lives.
    ///   - make: Blocks; run off the loop.
    init(on loop: EventLoop, _ make: @escaping @Sendable () throws -> ConnectionHandle) {
        self.loop = loop
        self.make = make
    }

    /// One caller at a time.
    ///
    /// - Throws: `PostgresError.connect`; `CancellationError`.
    func handle(
        within limit: Duration,
        isolation: isolated (any Actor)? = #isolation
    ) async throws -> ConnectionHandle {
        loop.checkIsolated()
        try Task.checkCancellation()
        if !isRunning { begin() }
        let timer = loop.schedule(after: limit) { [weak self] in
            self?.finish(
                .failure(
                    PostgresError(
                        .connect,
                        "cannot connect to Postgres: its host name is not resolved in time"
                    )
                )
            )
        }
        defer { timer.cancel() }
        return try await withTaskCancellationHandler {
            // Captured, or the closure would run on the global pool: it does not inherit the
            // isolation of a nonisolated caller.
            _ = isolation
            return try await withCheckedThrowingContinuation { waiter = $0 }
        } onCancel: {
            loop.execute { self.finish(.failure(CancellationError())) }
        }
    }

    private func begin() {
        isRunning = true
        Task(executorPreference: loop) { [self] in
            let result: Result<ConnectionHandle, any Error>
            do {
                result = .success(try await loop.blocking(make))
            } catch {
                result = .failure(error)
            }
            isRunning = false
            // Where nobody waits, in a pause between attempts, it is let go: the next is quick.
            finish(result)
        }
    }

    private func finish(_ result: Result<ConnectionHandle, any Error>) {
        let waiter = waiter
        self.waiter = nil
        waiter?.resume(with: result)
    }
}
