package import EventLoop

/// Wakes a sleeping task early. A signal sent while no task sleeps is remembered.
///
/// Confined to the loop.
package final class WakeUp: @unchecked Sendable {
    private let loop: EventLoop
    private var isSignalled = false
    private var sleeper: CheckedContinuation<Void, Never>?
    private var timer: LoopTimer?

    package init(on loop: EventLoop) { self.loop = loop }

    package func signal() {
        guard sleeper != nil else {
            isSignalled = true
            return
        }
        wake()
    }

    /// Sleeps until a signal, the end of `duration` or the task's cancellation. One sleeper at a
    /// time.
    package func wait(
        atMost duration: Duration,
        isolation: isolated (any Actor)? = #isolation
    ) async {
        loop.checkIsolated()
        if isSignalled || Task.isCancelled {
            isSignalled = false
            return
        }
        let (wakeUp, loop) = (self, loop)
        await withTaskCancellationHandler {
            // Captured, or the closure would run on the global pool in a task that does not prefer
            // the loop: it does not inherit the isolation of a nonisolated caller.
            _ = isolation
            await withCheckedContinuation { continuation in
                // Such a task is queued once more before this.
                if wakeUp.isSignalled || Task.isCancelled {
                    wakeUp.isSignalled = false
                    return continuation.resume()
                }
                wakeUp.sleeper = continuation
                wakeUp.timer = loop.schedule(after: duration) { wakeUp.wake() }
            }
        } onCancel: {
            loop.execute { wakeUp.wake() }
        }
    }

    private func wake() {
        isSignalled = false
        timer?.cancel()
        timer = nil
        sleeper?.resume()
        sleeper = nil
    }
}
