import EventLoop

/// Begins the connections of one slot of the pool. Confined to the loop.
///
/// Name resolution blocks a thread of libuv's pool and cannot be interrupted. An attempt that times
/// out fails, but its resolution keeps running, and the next attempt waits for that same
/// resolution. So a hanging resolver blocks at most one thread for each slot.
final class ConnectionStart: @unchecked Sendable {
    private let loop: EventLoop
    private let make: @Sendable () throws -> ConnectionHandle
    private var isRunning = false
    private var waiter: CheckedContinuation<ConnectionHandle, any Error>?

    /// - Parameters:
    ///   - loop: The loop that it is confined to.
    ///   - make: Blocks; run off the loop.
    init(on loop: EventLoop, _ make: @escaping @Sendable () throws -> ConnectionHandle) {
        self.loop = loop
        self.make = make
    }

    /// Returns a handle that has begun to connect. One caller at a time.
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
            // Without this capture the closure would run on the global pool: a closure does not
            // inherit the isolation of a nonisolated caller.
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
            // If no task waits (during a backoff), the handle is dropped; the next attempt is
            // quick.
            finish(result)
        }
    }

    private func finish(_ result: Result<ConnectionHandle, any Error>) {
        let waiter = waiter
        self.waiter = nil
        waiter?.resume(with: result)
    }
}
