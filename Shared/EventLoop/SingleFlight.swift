/// A single-flight call: all callers that ask while it runs share its result, within one time
/// limit. Confined to its loop.
///
/// A caller that needs a result from after some moment shares only a flight whose `beganAt` is not
/// earlier than that.
package final class SingleFlight<Value: Sendable>: @unchecked Sendable {
    private let loop: EventLoop
    private let limit: Duration
    private let tooLate: any Error
    package let beganAt = ContinuousClock.now
    /// Whether the data may have changed since it was read.
    package var isStale = false
    private var result: Result<Value, any Error>?
    private var waiters: [CheckedContinuation<Value, any Error>] = []
    private var task: Task<Void, Never>?
    private var timer: LoopTimer?
    private var whenOver: (Result<Value, any Error>) -> Void = { _ in }

    /// - Parameters:
    ///   - loop: The loop of the call and its callers.
    ///   - limit: The time limit, after which the call is cancelled, and not awaited.
    ///   - tooLate: The error for the callers after the time limit.
    package init(on loop: EventLoop, atMost limit: Duration, orElse tooLate: any Error) {
        self.loop = loop
        self.limit = limit
        self.tooLate = tooLate
    }

    package var isOver: Bool { result != nil }

    /// - Parameters:
    ///   - ask: Runs on the loop.
    ///   - whenOver: Called once, before the callers continue.
    package func start(
        _ ask: @escaping @Sendable () async throws -> Value,
        whenOver: @escaping (Result<Value, any Error>) -> Void
    ) {
        self.whenOver = whenOver
        timer = loop.schedule(after: limit) { [self] in
            task?.cancel()
            end(.failure(tooLate))
        }
        let asking = Task.immediate(executorPreference: loop) { [self] in
            do { end(.success(try await ask())) } catch { end(.failure(error)) }
        }
        if !isOver { task = asking }
    }

    private func end(_ result: Result<Value, any Error>) {
        guard self.result == nil else { return }
        self.result = result
        timer?.cancel()
        timer = nil
        task = nil
        whenOver(result)
        whenOver = { _ in }
        let waiting = waiters
        waiters = []
        for waiter in waiting { waiter.resume(with: result) }
    }

    /// - Returns: The result.
    /// - Throws: The errors of the call, or the timeout error.
    package func wait() async throws -> Value {
        // Checked inside the closure: a task that does not prefer the loop may leave it on the way
        // there, and the result may arrive in between.
        try await withCheckedThrowingContinuation { waiter in
            if loop.isCurrent { add(waiter) } else { loop.execute { self.add(waiter) } }
        }
    }

    private func add(_ waiter: CheckedContinuation<Value, any Error>) {
        if let result { waiter.resume(with: result) } else { waiters.append(waiter) }
    }
}
