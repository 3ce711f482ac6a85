package import EventLoop

/// Ends somebody's sleep early: a wake-up that comes while nobody sleeps is kept.
///
/// Confined to the loop.
package final class Bell: @unchecked Sendable {
    private let loop: EventLoop
    private var isRung = false
    private var sleeper: CheckedContinuation<Void, Never>?
    private var timer: LoopTimer?

    package init(on loop: EventLoop) { self.loop = loop }

    package func ring() {
        guard sleeper != nil else {
            isRung = true
            return
        }
        wake()
    }

    /// Sleeps until it rings, the time is over or the task is cancelled. One sleeper at a time.
    package func wait(
        atMost duration: Duration,
        isolation: isolated (any Actor)? = #isolation
    ) async {
        loop.checkIsolated()
        if isRung || Task.isCancelled {
            isRung = false
            return
        }
        let (bell, loop) = (self, loop)
        await withTaskCancellationHandler {
            // Captured, or the closure would run on the global pool in a task that does not prefer
            // the loop: it does not inherit the isolation of a nonisolated caller.
            _ = isolation
            await withCheckedContinuation { continuation in
                // Such a task is queued once more before this.
                if bell.isRung || Task.isCancelled {
                    bell.isRung = false
                    return continuation.resume()
                }
                bell.sleeper = continuation
                bell.timer = loop.schedule(after: duration) { bell.wake() }
            }
        } onCancel: {
            loop.execute { bell.wake() }
        }
    }

    private func wake() {
        isRung = false
        timer?.cancel()
        timer = nil
        sleeper?.resume()
        sleeper = nil
    }
}
