import Cryptography
import Gateway
import HTTPServer
import Observability
import ServiceKit

/// Hashes secrets by scrypt, which takes a tenth of a second each, on its own threads: so few that the loops
/// keep half of the processors, and of a lower priority than the loops.
///
/// Authority: one for the whole process. Concurrent calls with the same key share one job; a job that no
/// caller waits for any longer is not started.
///
/// Shutdown: waiting calls fail with `busy`; running jobs finish by themselves.
final class SecretVerifier: ServicePart, Sendable {
    /// The work of a job: returns the hash of a right secret, `nil` for a wrong one.
    typealias Work = @Sendable () throws -> PasswordHash?

    let name = "secret-checks"
    static let maximumWaiting = 100
    static let restSeconds = SecretQueue<Work>.restSeconds

    typealias Caller = SecretQueue<Work>.Caller

    private struct Job {
        let key: [UInt8]
        var isRunning = false
        var waiters: [Int: CheckedContinuation<PasswordHash?, any Error>] = [:]
    }

    private let lock = Lock()
    private let threads: WorkerThreads
    private let waiting: Gauge
    nonisolated(unsafe) private var queue: SecretQueue<Work>
    nonisolated(unsafe) private var jobs: [Int: Job] = [:]
    /// The job ids by key: calls with the same key share a job.
    nonisolated(unsafe) private var jobsByKey: [[UInt8]: Int] = [:]
    nonisolated(unsafe) private var lastID = 0
    nonisolated(unsafe) private var isOver = false

    /// - Parameters:
    ///   - threads: The number of jobs that run at once.
    ///   - metrics: The registry for the gauge of waiting jobs.
    ///   - maximumWaiting: The capacity of the queue; beyond it, calls are refused.
    init(
        threads: Int,
        metrics: Metrics,
        maximumWaiting: Int = SecretVerifier.maximumWaiting
    ) {
        unsafe queue = SecretQueue(maximumWaiting: maximumWaiting)
        waiting = metrics.gauge(.secureWaitingHashes)
        self.threads = WorkerThreads(count: threads, niceness: 10)
        self.threads.start { [weak self] in self?.takeNext() }
    }

    deinit { threads.stop() }

    /// Returns one thread for every two processors, and at least one.
    static func threads(ofProcessors count: Int) -> Int { max(1, count / 2) }

    func run() async throws {
        await withTaskCancellationHandler {
            while !Task.isCancelled { try? await Task.sleep(for: .seconds(3600)) }
        } onCancel: {
            self.end()
        }
    }

    /// Runs work on a hashing thread, or joins the job with the same key.
    ///
    /// - Parameters:
    ///   - key: A key that is the same for the same work, and differs for all other work.
    ///   - caller: The sender, which takes turns with others.
    ///   - presence: The waiting client; once it has gone, the call ends.
    ///   - work: The work, which blocks its thread.
    /// - Returns: The result of the work.
    /// - Throws: The error of the work; `SecureRefusal.busy` if the queue is full, the job has waited too long
    ///   or the service stops; `CancellationError` once the client has gone.
    func result(
        _ key: [UInt8],
        of caller: Caller,
        for presence: ClientPresence,
        _ work: @escaping Work
    ) async throws -> PasswordHash? {
        try await presence.whileThere { try await self.wait(key, of: caller, work) }
    }

    /// Records a wrong secret of a network. From now on its jobs wait behind the others.
    func noteFailure(from network: [UInt8]) {
        lock.withLock { unsafe queue.noteFailure(from: network, now: .now) }
    }

    private func wait(
        _ key: [UInt8],
        of caller: Caller,
        _ work: @escaping Work
    ) async throws -> PasswordHash? {
        let waiter = lock.withLock { newID() }
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation { continuation in
                join(key, of: caller, waiter, continuation, work)
            }
        } onCancel: {
            leave(waiter)
        }
    }

    // MARK: Under the lock

    private func newID() -> Int {
        unsafe lastID += 1
        return unsafe lastID
    }

    private func join(
        _ key: [UInt8],
        of caller: Caller,
        _ waiter: Int,
        _ continuation: CheckedContinuation<PasswordHash?, any Error>,
        _ work: @escaping Work
    ) {
        let refused = lock.withLock { () -> [CheckedContinuation<PasswordHash?, any Error>] in
            guard unsafe !isOver, !Task.isCancelled else { return [continuation] }
            if let known = unsafe jobsByKey[key] {
                unsafe jobs[known]?.waiters[waiter] = continuation
                return []
            }
            let (id, now) = (newID(), ContinuousClock.now)
            var refused = unsafe queue.removeOld(now: now).flatMap { take($0) }
            let admission = unsafe queue.add(work, id, of: caller, now: now)
            if admission == .refused { return refused + [continuation] }
            unsafe jobs[id] = Job(key: key, waiters: [waiter: continuation])
            unsafe jobsByKey[key] = id
            if case .waitsInsteadOf(let displaced) = admission { refused += take(displaced) }
            return refused
        }
        reportWaiting()
        for continuation in refused { continuation.resume(throwing: SecureRefusal.busy) }
        threads.wake()
    }

    /// Removes a job, and returns the calls that wait for it.
    private func take(_ id: Int) -> [CheckedContinuation<PasswordHash?, any Error>] {
        guard let job = unsafe jobs.removeValue(forKey: id) else { return [] }
        if unsafe jobsByKey[job.key] == id { unsafe jobsByKey[job.key] = nil }
        return Array(job.waiters.values)
    }

    private func leave(_ waiter: Int) {
        let left = lock.withLock { () -> CheckedContinuation<PasswordHash?, any Error>? in
            guard let id = unsafe jobs.first(where: { $0.value.waiters[waiter] != nil })?.key else {
                return nil
            }
            let continuation = unsafe jobs[id]?.waiters.removeValue(forKey: waiter)
            if let job = unsafe jobs[id], job.waiters.isEmpty, !job.isRunning {
                unsafe queue.remove(id)
                _ = take(id)
            }
            return continuation
        }
        reportWaiting()
        left?.resume(throwing: CancellationError())
    }

    private func end() {
        let left = lock.withLock {
            unsafe isOver = true
            return unsafe queue.removeAll().flatMap { take($0) }
        }
        reportWaiting()
        for continuation in left { continuation.resume(throwing: SecureRefusal.busy) }
    }

    private func reportWaiting() {
        waiting.set(lock.withLock { unsafe queue.count })
    }

    // MARK: On a thread of its own

    /// - Returns: The next job; `nil` if no job waits.
    private func takeNext() -> (@Sendable () -> Void)? {
        let (next, late) = lock.withLock {
            () -> ((id: Int, job: Work)?, [CheckedContinuation<PasswordHash?, any Error>]) in
            let now = ContinuousClock.now
            let late = unsafe queue.removeOld(now: now).flatMap { take($0) }
            let next = unsafe queue.next(now: now)
            if let next { unsafe jobs[next.id]?.isRunning = true }
            return (next, late)
        }
        if next != nil || !late.isEmpty { reportWaiting() }
        for continuation in late { continuation.resume(throwing: SecureRefusal.busy) }
        guard let next else { return nil }
        return {
            let result = Result { try next.job() }
            let waiters = self.lock.withLock { self.take(next.id) }
            for waiter in waiters { waiter.resume(with: result) }
        }
    }
}
