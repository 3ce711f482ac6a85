internal import CUV

extension EventLoop {
    /// Waits on the loop's clock, to the millisecond, from any thread.
    ///
    /// - Throws: `CancellationError` as soon as the task is cancelled, or the loop stops. A stop of
    ///   the loop also cancels the task: it cannot wait here any more, and might retry for ever.
    package func sleep(for duration: Duration) async throws {
        let sleeper = Sleeper()
        do {
            try await withTaskCancellationHandler {
                try await withCheckedThrowingContinuation {
                    (continuation: CheckedContinuation<Void, any Error>) in
                    onLoop { sleeper.start(duration, on: self, continuation) }
                }
            } onCancel: {
                execute { sleeper.cancel(on: self) }
            }
        } catch {
            unsafe withUnsafeCurrentTask { task in unsafe task?.cancel() }
            throw error
        }
    }

    /// Runs a blocking `body` on libuv's thread pool, so that the loop keeps turning.
    ///
    /// `body` cannot be interrupted, so it must end by itself.
    package func blocking<Value: Sendable>(
        _ body: @escaping @Sendable () throws -> Value
    ) async throws -> Value {
        try await withCheckedThrowingContinuation { continuation in
            let work = BlockingWork {
                let result = Result(catching: body)
                return { continuation.resume(with: result) }
            }
            onLoop { work.submit(to: self) }
        }
    }

    /// Runs `body` now if this loop is the current one, else soon.
    private func onLoop(_ body: @escaping @Sendable () -> Void) {
        if isCurrent { body() } else { execute(body) }
    }
}

/// One call on libuv's thread pool. libuv retains it from `submit` until its result is on the loop.
@safe
private final class BlockingWork: @unchecked Sendable {
    private let request = UnsafeMutablePointer<uv_work_t>.allocate(capacity: 1)
    private let body: @Sendable () -> @Sendable () -> Void
    /// Written on the pool's thread, read on the loop afterwards; libuv orders the two.
    private var answer: (@Sendable () -> Void)?
    private var loop: EventLoop?

    init(_ body: @escaping @Sendable () -> @Sendable () -> Void) { self.body = body }

    deinit { unsafe request.deallocate() }

    func submit(to loop: EventLoop) {
        self.loop = loop
        unsafe request.pointee.data = Unmanaged.passRetained(self).toOpaque()
        let status = unsafe uv_queue_work(
            loop.uv,
            request,
            { request in
                guard let data = unsafe request?.pointee.data else { return }
                let work = unsafe Unmanaged<BlockingWork>.fromOpaque(data).takeUnretainedValue()
                work.answer = work.body()
            },
            { request, _ in
                guard let data = unsafe request?.pointee.data else { return }
                let work = unsafe Unmanaged<BlockingWork>.fromOpaque(data).takeRetainedValue()
                work.loop?.callbackBegan()
                work.answer?()
            }
        )
        precondition(status == 0, "uv_queue_work: \(status)")
    }
}

extension EventLoop {
    /// Suspends until the task is cancelled or the loop stops.
    package func untilCancelled() async {
        while (try? await sleep(for: .seconds(3600))) != nil {}
    }
}
