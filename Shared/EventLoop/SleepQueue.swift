internal import CUV

/// The sleeping tasks of one loop, however many, on one libuv timer. Confined to the loop's thread.
///
/// Tasks that are due in the same millisecond share one bucket, and a heap orders the milliseconds
/// that have a bucket. So sleeping, cancelling and waking cost the same with ten sleepers and with
/// ten thousand. When the loop stops, all sleeps end.
@safe
final class SleepQueue: LoopHandle {
    private var buckets: [UInt64: [Int: Sleeper]] = [:]
    /// A binary heap; it may still have milliseconds whose sleepers were all cancelled.
    private var times: [UInt64] = []
    private var count = 0
    /// The time that the timer waits for; nil while it is stopped.
    private var armed: UInt64?

    var sleeperCount: Int { buckets.values.reduce(0) { $0 + $1.count } }

    init(on loop: EventLoop) {
        super.init(UV_TIMER, on: loop)
        unsafe uv_timer_init(loop.uv, pointer(as: uv_timer_t.self))
        adopt()
    }

    func add(_ sleeper: Sleeper, for duration: Duration) {
        let (seconds, attoseconds) = duration.components
        // More than a century is for ever.
        let wait =
            UInt64(clamping: min(max(seconds, 0), 3_200_000_000)) * 1_000_000_000
            + UInt64(clamping: max(attoseconds, 0) / 1_000_000_000)
        count += 1
        sleeper.number = count
        sleeper.due = (uv_hrtime() + wait + 999_999) / 1_000_000
        if buckets[sleeper.due] == nil { push(sleeper.due) }
        buckets[sleeper.due, default: [:]][sleeper.number] = sleeper
        arm()
    }

    func remove(_ sleeper: Sleeper) {
        buckets[sleeper.due]?[sleeper.number] = nil
        guard buckets[sleeper.due]?.isEmpty == true else { return }
        buckets[sleeper.due] = nil
        // A sorted array is a heap, too.
        if times.count > 64 + 2 * buckets.count { times = buckets.keys.sorted() }
        arm()
    }

    private func wake() {
        armed = nil
        let now = unsafe uv_now(loop.uv)
        while let time = times.first, time <= now {
            pop()
            let due = buckets.removeValue(forKey: time) ?? [:]
            for (_, sleeper) in due.sorted(by: { $0.key < $1.key }) { sleeper.finish(.success(())) }
        }
        arm()
    }

    private func arm() {
        guard !isClosed else { return }
        while let time = times.first, buckets[time] == nil { pop() }
        let timer = unsafe pointer(as: uv_timer_t.self)
        guard let next = times.first else {
            if armed != nil { unsafe uv_timer_stop(timer) }
            armed = nil
            return
        }
        guard armed != next else { return }
        armed = next
        // libuv counts from the turn's start; a late turn must not shorten the wait.
        unsafe uv_update_time(loop.uv)
        let now = unsafe uv_now(loop.uv)
        let wait = next > now ? next - now : 0
        unsafe uv_timer_start(
            timer,
            { handle in unsafe SleepQueue.from(handle?.pointee.data)?.wake() },
            wait,
            0
        )
    }

    override func willClose() {
        let sleepers = buckets.values.flatMap(\.values)
        buckets = [:]
        times = []
        for sleeper in sleepers { sleeper.finish(.failure(CancellationError())) }
    }

    // MARK: The heap

    private func push(_ time: UInt64) {
        times.append(time)
        var index = times.count - 1
        while index > 0, times[(index - 1) / 2] > times[index] {
            times.swapAt((index - 1) / 2, index)
            index = (index - 1) / 2
        }
    }

    private func pop() {
        times.swapAt(0, times.count - 1)
        times.removeLast()
        var index = 0
        while true {
            var least = 2 * index + 1
            guard least < times.count else { return }
            if least + 1 < times.count, times[least + 1] < times[least] { least += 1 }
            guard times[least] < times[index] else { return }
            times.swapAt(least, index)
            index = least
        }
    }
}

/// One sleeping task; confined to the loop. A cancellation may come before the start.
final class Sleeper: @unchecked Sendable {
    fileprivate(set) var due: UInt64 = 0
    fileprivate(set) var number = 0
    private var continuation: CheckedContinuation<Void, any Error>?
    private var isCancelled = false

    func start(
        _ duration: Duration,
        on loop: EventLoop,
        _ continuation: CheckedContinuation<Void, any Error>
    ) {
        guard !isCancelled, let queue = loop.sleepQueue else {
            continuation.resume(throwing: CancellationError())
            return
        }
        self.continuation = continuation
        queue.add(self, for: duration)
    }

    func cancel(on loop: EventLoop) {
        isCancelled = true
        guard continuation != nil else { return }
        loop.sleepQueue?.remove(self)
        finish(.failure(CancellationError()))
    }

    fileprivate func finish(_ result: Result<Void, any Error>) {
        continuation?.resume(with: result)
        continuation = nil
    }
}
