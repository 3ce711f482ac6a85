internal import Glibc

/// A few threads for blocking work, of a lower priority than the process's others, so that they take no time
/// from the loops.
///
/// States: not started, running, stopping. `stop` does not wait, and no more work is started: a thread ends
/// after its current work.
@safe
final class WorkerThreads: @unchecked Sendable {
    /// A closure that returns the next work; `nil` if there is nothing to do.
    typealias Source = @Sendable () -> (@Sendable () -> Void)?

    /// The state that the threads retain. It does not retain the threads.
    @safe
    private final class Shared: @unchecked Sendable {
        let mutex = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
        let condition = UnsafeMutablePointer<pthread_cond_t>.allocate(capacity: 1)
        var isOver = false
        /// The number of calls of `wake`. Threads compare it, so that a call between a check and a
        /// wait is not missed.
        var wakes = 0
        var source: Source = { nil }
        let niceness: Int32

        init(niceness: Int32) {
            self.niceness = niceness
            unsafe mutex.initialize(to: pthread_mutex_t())
            unsafe condition.initialize(to: pthread_cond_t())
            let made = unsafe pthread_mutex_init(mutex, nil) | pthread_cond_init(condition, nil)
            precondition(made == 0, "no mutex: \(made)")
        }

        deinit {
            unsafe pthread_cond_destroy(condition)
            unsafe pthread_mutex_destroy(mutex)
            unsafe condition.deallocate()
            unsafe mutex.deallocate()
        }

        func locked<Result>(_ body: () -> Result) -> Result {
            unsafe pthread_mutex_lock(mutex)
            defer { unsafe pthread_mutex_unlock(mutex) }
            return body()
        }

        /// Runs one thread until `stop`.
        func work() {
            // On Linux, "this process" means the calling thread here.
            _ = setpriority(Int32(PRIO_PROCESS.rawValue), 0, niceness)
            while true {
                let (seen, isOver) = locked { (wakes, self.isOver) }
                if isOver { return }
                if let next = source() {
                    next()
                    continue
                }
                locked {
                    while wakes == seen, !self.isOver {
                        unsafe pthread_cond_wait(condition, mutex)
                    }
                }
            }
        }
    }

    private let shared: Shared
    private let count: Int

    /// - Parameters:
    ///   - count: 1 or more.
    ///   - niceness: 0 to 19.
    init(count: Int, niceness: Int32) {
        self.count = count
        shared = Shared(niceness: niceness)
    }

    /// Starts the threads, once. Each calls `source` whenever there may be work.
    func start(_ source: @escaping Source) {
        shared.source = source
        for _ in 0..<count {
            let box = unsafe Unmanaged.passRetained(shared)
            var thread = pthread_t()
            let status = unsafe pthread_create(
                &thread,
                nil,
                { argument in
                    if let argument = unsafe argument {
                        unsafe Unmanaged<Shared>.fromOpaque(argument).takeRetainedValue().work()
                    }
                    return nil
                },
                box.toOpaque()
            )
            precondition(status == 0, "pthread_create: \(status)")
            pthread_detach(thread)
        }
    }

    /// Wakes the threads, as there may be work.
    func wake() {
        shared.locked {
            shared.wakes += 1
            unsafe pthread_cond_broadcast(shared.condition)
        }
    }

    func stop() {
        shared.locked {
            shared.isOver = true
            unsafe pthread_cond_broadcast(shared.condition)
        }
    }
}
