import EventLoop
import Observability

/// What keeps a part from its work now, as `/readyz` tells it. From any thread.
final class Trouble: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var reasons: [String] = []

    var reason: String? { lock.withLock { unsafe reasons.first } }

    func set(_ reason: String) {
        lock.withLock {
            if unsafe !reasons.contains(reason) { unsafe reasons.append(reason) }
        }
    }

    func clear(_ reason: String) {
        lock.withLock { unsafe reasons.removeAll { $0 == reason } }
    }
}

/// Growing pauses between tries of what has to succeed in the end: 100 ms, doubled up to 5 s.
struct Pause {
    private var next: Duration = .milliseconds(100)

    /// Ends at once in a cancelled task: whoever loops over this looks at its own end condition.
    mutating func wait(on loop: EventLoop) async {
        let part = Double.random(in: 0.75...1.25)
        try? await loop.sleep(for: next * part)
        next = min(next * 2, .seconds(5))
    }
}

extension EventLoop {
    /// Suspends until the task is cancelled or the loop stops.
    func untilCancelled() async {
        while (try? await sleep(for: .seconds(3600))) != nil {}
    }
}

/// Ends somebody's sleep early: a wake-up that comes while nobody sleeps is kept.
///
/// Confined to the loop.
final class Bell: @unchecked Sendable {
    private let loop: EventLoop
    private var isRung = false
    private var sleeper: CheckedContinuation<Void, Never>?
    private var timer: LoopTimer?

    init(on loop: EventLoop) { self.loop = loop }

    func ring() {
        guard sleeper != nil else {
            isRung = true
            return
        }
        wake()
    }

    /// Sleeps until it rings, the time is over or the task is cancelled. One sleeper at a time.
    func wait(
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
