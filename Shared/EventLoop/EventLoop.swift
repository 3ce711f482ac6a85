internal import CUV
internal import Glibc
internal import Observability

/// One thread, one libuv loop, one Swift executor.
///
/// Authority: objects that belong together live on one loop and are called without locks. A loop is
/// the serial executor of its actors and the preferred executor of its tasks; jobs run by
/// `runSynchronously(isolatedTo:taskExecutor:)` throughout, so that a hop between two actors of one
/// loop is free. Start an unstructured task with `Task(executorPreference: loop)`; a plain `Task`
/// goes to the global pool.
///
/// A turn: libuv's timers; jobs (prepare); waiting for descriptors; their callbacks; jobs (check).
/// Jobs that a callback enqueues run in the same turn, and `atEndOfTurn` after them.
///
/// Shutdown: `stop` closes every open handle, runs the queued work and joins the thread.
@safe
package final class EventLoop: SerialExecutor, TaskExecutor, @unchecked Sendable {
    private enum Work {
        case job(UnownedJob)
        case body(() -> Void)
    }

    package let name: String
    package let stopClock = StopClock()
    let uv: UnsafeMutablePointer<uv_loop_t>
    private let async: UnsafeMutablePointer<uv_async_t>
    private let prepare: UnsafeMutablePointer<uv_prepare_t>
    private let check: UnsafeMutablePointer<uv_check_t>
    private let idle: UnsafeMutablePointer<uv_idle_t>
    /// The read buffer of all streams of the loop: its bytes are consumed before the next read.
    let readBuffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64 * 1024, alignment: 16)
    private var thread = pthread_t()

    /// Enqueued by other threads.
    private let lock = Lock()
    private var remote: [Work] = []
    private var acceptsWakeUps = true

    /// Enqueued on the loop itself; touched by its thread alone.
    private var local: [Work] = []
    private var endOfTurn: [() -> Void] = []
    /// Empty arrays that reuse the memory of the previous round.
    private var spareWork: [Work] = []
    private var spareFlushes: [() -> Void] = []
    private var isIdling = false
    /// Whether a stop has closed the handles; later work must not wait. Confined to the loop.
    private(set) var isStopping = false
    private var stopped: CheckedContinuation<Void, Never>?
    private var watchdog = Watchdog()
    private var sleepers: SleepQueue?
    /// The number of jobs and bodies that went through the queue; a free hop does not count.
    /// Confined to the loop.
    package private(set) var queueTrips = 0
    /// Whether libuv still had handles registered when the loop ended, which must never be. Read it
    /// after `stop`.
    package private(set) var hasLeftovers = false

    /// How many rounds a drain runs jobs that its own jobs enqueued, before descriptors get a turn.
    private static let roundsPerDrain = 32

    /// Starts the thread.
    ///
    /// - Parameter name: The kernel shows at most 15 bytes.
    /// - Throws: `EventLoopError` if libuv or the kernel refuses.
    package init(name: String) throws {
        self.name = name
        unsafe uv = .allocate(capacity: 1)
        unsafe async = .allocate(capacity: 1)
        unsafe prepare = .allocate(capacity: 1)
        unsafe check = .allocate(capacity: 1)
        unsafe idle = .allocate(capacity: 1)
        let status = unsafe uv_loop_init(uv)
        guard status == 0 else { throw EventLoopError(status: status, call: "uv_loop_init") }
        let me = unsafe Unmanaged.passUnretained(self).toOpaque()
        unsafe uv.pointee.data = me
        let asyncStatus = unsafe uv_async_init(uv, async) { _ in }
        guard asyncStatus == 0 else {
            throw EventLoopError(status: asyncStatus, call: "uv_async_init")
        }
        unsafe uv_prepare_init(uv, prepare)
        unsafe uv_prepare_start(prepare) { handle in
            guard let loop = unsafe eventLoop(of: handle?.pointee.loop) else { return }
            loop.drain()
            loop.watchdog.turnEnds()
        }
        unsafe uv_check_init(uv, check)
        unsafe uv_check_start(check) { handle in
            guard let loop = unsafe eventLoop(of: handle?.pointee.loop) else { return }
            loop.watchdog.turnBegan()
            loop.drain()
        }
        unsafe uv_idle_init(uv, idle)
        // These handles have no Swift object, by which `closeHandles` distinguishes them from
        // others.
        unsafe async.pointee.data = nil
        unsafe prepare.pointee.data = nil
        unsafe check.pointee.data = nil
        unsafe idle.pointee.data = nil

        let retained = unsafe Unmanaged.passRetained(self).toOpaque()
        let created = unsafe pthread_create(&thread, nil, loopThread, retained)
        guard created == 0 else {
            unsafe Unmanaged<EventLoop>.fromOpaque(retained).release()
            throw EventLoopError(status: -created, call: "pthread_create")
        }
    }

    deinit {
        unsafe readBuffer.deallocate()
        unsafe async.deallocate()
        unsafe prepare.deallocate()
        unsafe check.deallocate()
        unsafe idle.deallocate()
        unsafe uv.deallocate()
    }

    // MARK: The current loop

    /// The loop of the current thread.
    package static var current: EventLoop? {
        guard let pointer = unsafe pthread_getspecific(currentLoopKey) else { return nil }
        return unsafe Unmanaged<EventLoop>.fromOpaque(pointer).takeUnretainedValue()
    }

    package var isCurrent: Bool {
        unsafe pthread_getspecific(currentLoopKey) == Unmanaged.passUnretained(self).toOpaque()
    }

    package func checkIsolated() {
        precondition(isCurrent, "not on the loop \(name)")
    }

    package func isIsolatingCurrentContext() -> Bool? { isCurrent }

    // MARK: Work

    package func enqueue(_ job: consuming ExecutorJob) {
        enqueue(.job(UnownedJob(job)))
    }

    /// Runs `body` on the loop, soon; never before this call returns.
    package func execute(_ body: @escaping @Sendable () -> Void) {
        enqueue(.body(body))
    }

    /// Runs `body` once, when this turn's jobs are done and before the loop waits again: the place
    /// to write the turn's output. On the loop only.
    package func atEndOfTurn(_ body: @escaping () -> Void) {
        checkIsolated()
        endOfTurn.append(body)
    }

    private func enqueue(_ work: Work) {
        if isCurrent {
            local.append(work)
            return
        }
        lock.withLock {
            remote.append(work)
            if remote.count == 1 && acceptsWakeUps { unsafe uv_async_send(async) }
        }
    }

    /// Starts timing; called first in every libuv callback.
    func callbackBegan() { watchdog.turnBegan() }

    /// Runs jobs until the queue is empty, or until the descriptors must get their turn.
    fileprivate func drain() {
        var rounds = 0
        // No turn comes after a stop's last drain, so it must finish everything.
        while rounds < Self.roundsPerDrain || isStopping {
            rounds += 1
            lock.withLock {
                if !remote.isEmpty {
                    local.append(contentsOf: remote)
                    remote.removeAll(keepingCapacity: true)
                }
            }
            if local.isEmpty {
                if endOfTurn.isEmpty { break }
                runFlushes()
                continue
            }
            runBatch()
        }
        if isStopping {
            // Closes the handles that the jobs have opened since.
            closeHandles()
        } else {
            pollWithoutWaiting(!local.isEmpty || !endOfTurn.isEmpty)
        }
    }

    /// Runs one batch. Jobs that it enqueues go into another array, for the next round.
    private func runBatch() {
        var batch = spareWork
        spareWork = []
        swap(&batch, &local)
        for work in batch { run(work) }
        batch.removeAll(keepingCapacity: true)
        spareWork = batch
    }

    private func runFlushes() {
        var flushes = spareFlushes
        spareFlushes = []
        swap(&flushes, &endOfTurn)
        for flush in flushes { flush() }
        flushes.removeAll(keepingCapacity: true)
        spareFlushes = flushes
    }

    private func run(_ work: Work) {
        queueTrips &+= 1
        switch work {
        case .job(let job):
            unsafe job.runSynchronously(
                isolatedTo: asUnownedSerialExecutor(),
                taskExecutor: asUnownedTaskExecutor()
            )
        case .body(let body): body()
        }
    }

    /// Nil once a stop has begun: no task may begin to wait then.
    var sleepQueue: SleepQueue? {
        if isStopping { return nil }
        if let sleepers { return sleepers }
        let made = SleepQueue(on: self)
        sleepers = made
        return made
    }

    /// The number of tasks in `sleep`. On the loop only.
    package var sleeperCount: Int {
        checkIsolated()
        return sleepers?.sleeperCount ?? 0
    }

    /// The number of open listeners, streams, watches, timers and signals; all sleepers share one.
    /// On the loop only.
    package var openHandles: Int {
        checkIsolated()
        var count = 0
        unsafe withUnsafeMutablePointer(to: &count) { pointer in
            unsafe uv_walk(
                uv,
                { handle, count in
                    guard let handle = unsafe handle, unsafe uv_is_closing(handle) == 0,
                        unsafe handle.pointee.data != nil
                    else { return }
                    unsafe count?.assumingMemoryBound(to: Int.self).pointee += 1
                },
                pointer
            )
        }
        return count
    }

    /// Makes libuv poll the descriptors without waiting, by an active idle handle.
    private func pollWithoutWaiting(_ wanted: Bool) {
        guard wanted != isIdling else { return }
        isIdling = wanted
        if wanted {
            unsafe uv_idle_start(idle) { _ in }
        } else {
            unsafe uv_idle_stop(idle)
        }
    }

    /// Reports each turn that was longer than `limit`: everything on the loop waited that long.
    /// Called on the loop, when that turn has ended.
    package func watchTurns(
        longerThan limit: Duration = .milliseconds(50),
        _ report: @escaping @Sendable (Duration) -> Void
    ) {
        execute { self.watchdog.watch(limit: limit, report) }
    }

    // MARK: Stopping

    /// Closes open handles, ends the sleep of tasks, runs queued work, joins the thread. Call it
    /// once, from outside the loop; nothing may be enqueued afterwards.
    package func stop() async {
        precondition(!isCurrent, "a loop cannot wait for its own end")
        await withCheckedContinuation { (continuation: CheckedContinuation<Void, Never>) in
            execute {
                self.stopped = continuation
                self.closeEverything()
            }
        }
        pthread_join(thread, nil)
    }

    private func closeEverything() {
        isStopping = true
        lock.withLock { acceptsWakeUps = false }
        closeHandles()
    }

    private func closeHandles() {
        unsafe uv_walk(
            uv,
            { handle, _ in
                guard let handle = unsafe handle, unsafe uv_is_closing(handle) == 0 else { return }
                if let data = unsafe handle.pointee.data {
                    unsafe Unmanaged<LoopHandle>.fromOpaque(data).takeUnretainedValue().close()
                } else {
                    unsafe uv_close(handle, nil)
                }
            },
            nil
        )
    }

    /// Runs the thread for its whole life.
    fileprivate func runThread() {
        unsafe pthread_setspecific(currentLoopKey, Unmanaged.passUnretained(self).toOpaque())
        unsafe carillon_set_thread_name(name)
        // libuv writes to sockets without MSG_NOSIGNAL. With SIGPIPE blocked, a vanished peer is
        // only an error of the write, and never ends the process.
        var broken = sigset_t()
        unsafe sigemptyset(&broken)
        unsafe sigaddset(&broken, SIGPIPE)
        unsafe pthread_sigmask(SIG_BLOCK, &broken, nil)
        repeat {
            unsafe uv_run(uv, UV_RUN_DEFAULT)
            // The handles are gone; work enqueued meanwhile still runs, and may begin to block on
            // the thread pool, or open a handle.
            while lock.withLock({ !remote.isEmpty }) || !local.isEmpty || !endOfTurn.isEmpty {
                drainWithoutHandles()
            }
            closeHandles()
        } while unsafe uv_loop_alive(uv) != 0
        sleepers = nil
        hasLeftovers = unsafe uv_loop_close(uv) != 0
        stopped?.resume()
    }

    private func drainWithoutHandles() {
        let batch = lock.withLock {
            defer { remote.removeAll() }
            return local + remote
        }
        local.removeAll()
        for work in batch { run(work) }
        let flushes = endOfTurn
        endOfTurn.removeAll()
        for flush in flushes { flush() }
    }
}

/// A refusal by libuv or the kernel.
package struct EventLoopError: Error, CustomStringConvertible {
    /// A negative errno, as libuv returns it.
    package let status: Int32
    package let call: String

    package init(status: Int32, call: String) {
        self.status = status
        self.call = call
    }

    package var description: String {
        let text = unsafe uv_strerror(status).map { unsafe String(cString: $0) } ?? "unknown"
        return "\(call): \(text)"
    }
}

/// The key under which each loop's thread stores its loop.
private let currentLoopKey: pthread_key_t = {
    var key = pthread_key_t()
    let status = unsafe pthread_key_create(&key, nil)
    precondition(status == 0, "pthread_key_create: \(status)")
    return key
}()

private func loopThread(_ argument: UnsafeMutableRawPointer?) -> UnsafeMutableRawPointer? {
    guard let argument = unsafe argument else { return nil }
    unsafe Unmanaged<EventLoop>.fromOpaque(argument).takeRetainedValue().runThread()
    return nil
}

private func eventLoop(of loop: UnsafeMutablePointer<uv_loop_t>?) -> EventLoop? {
    guard let data = unsafe loop?.pointee.data else { return nil }
    return unsafe Unmanaged<EventLoop>.fromOpaque(data).takeUnretainedValue()
}

extension EventLoop {
    /// The number of cores that this process may use, as limited by `taskset` or a container's
    /// cpuset; at least one.
    package static var usableCores: Int { max(1, Int(uv_available_parallelism())) }
}
