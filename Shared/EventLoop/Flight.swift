/// One question that is on its way, and all who wait for its answer: they share it, and none waits for
/// longer than it may take. Confined to its loop.
///
/// Who wants an answer from after a moment shares only a flight whose `beganAt` is no earlier.
package final class Flight<Value: Sendable>: @unchecked Sendable {
    private let loop: EventLoop
    private let limit: Duration
    private let tooLate: any Error
    package let beganAt = ContinuousClock.now
    /// What the answer is about has changed since it was read, perhaps.
    package var isOvertaken = false
    private var result: Result<Value, any Error>?
    private var waiters: [CheckedContinuation<Value, any Error>] = []
    private var task: Task<Void, Never>?
    private var timer: LoopTimer?
    private var whenOver: (Result<Value, any Error>) -> Void = { _ in }

    /// - Parameters:
    ///   - loop: Where it is asked, and waited for.
    ///   - limit: How long it may take. What is asked is cancelled then, and not waited for.
    ///   - tooLate: What those who wait are told then.
    package init(on loop: EventLoop, atMost limit: Duration, orElse tooLate: any Error) {
        self.loop = loop
        self.limit = limit
        self.tooLate = tooLate
    }

    package var isOver: Bool { result != nil }

    /// - Parameters:
    ///   - ask: Runs on the loop.
    ///   - whenOver: Called once, before those who wait go on.
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

    /// - Returns: The answer.
    /// - Throws: What asking threw, or that it took too long.
    package func wait() async throws -> Value {
        // Looked at where it is written, in the closure: a task that does not prefer the loop may leave it
        // on its way there, and the answer come in between.
        try await withCheckedThrowingContinuation { waiter in
            if loop.isCurrent { add(waiter) } else { loop.execute { self.add(waiter) } }
        }
    }

    private func add(_ waiter: CheckedContinuation<Value, any Error>) {
        if let result { waiter.resume(with: result) } else { waiters.append(waiter) }
    }
}
