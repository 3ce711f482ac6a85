package import EventLoop

/// Exponential backoff with jitter for retries without a limit: 100 ms, doubling up to 5 s.
package struct ExponentialBackoff {
    private var next: Duration = .milliseconds(100)

    package init() {}

    /// Waits; returns at once in a cancelled task: the caller's loop checks its own end condition.
    package mutating func wait(on loop: EventLoop) async {
        let part = Double.random(in: 0.75...1.25)
        try? await loop.sleep(for: next * part)
        next = min(next * 2, .seconds(5))
    }
}
