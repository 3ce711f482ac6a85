import Cryptography
import Door
import HTTPServer
import Observability
import ServiceKit

/// Hashes secrets by scrypt, which takes a tenth of a second each, on threads of its own: so many that
/// the loops keep half of the processors, and of lower priority than theirs.
///
/// Authority: one for the whole process. What asks for the same at the same time is one job, with all
/// who ask waiting for it; a job that nobody waits for any more is not begun.
///
/// Shutdown: who waits is told to come back; what runs ends by itself.
final class SecretChecks: ServicePart, Sendable {
    /// What a job comes to: the hash of a secret, or of a wrong one nothing.
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
    private let threads: WorkThreads
    private let waiting: Gauge
    nonisolated(unsafe) private var queue: SecretQueue<Work>
    nonisolated(unsafe) private var jobs: [Int: Job] = [:]
    /// The job that hashes the same.
    nonisolated(unsafe) private var alike: [[UInt8]: Int] = [:]
    nonisolated(unsafe) private var lastID = 0
    nonisolated(unsafe) private var isOver = false

    /// - Parameters:
    ///   - threads: How many hash at once.
    ///   - metrics: Where it is told how many wait.
    ///   - maximumWaiting: Beyond it, others are refused.
    init(
        threads: Int,
        metrics: Metrics,
        maximumWaiting: Int = SecretChecks.maximumWaiting
    ) {
        unsafe queue = SecretQueue(maximumWaiting: maximumWaiting)
        waiting = metrics.gauge(.secureWaitingHashes)
        self.threads = WorkThreads(count: threads, niceness: 10)
        self.threads.start { [weak self] in self?.takeNext() }
    }

    deinit { threads.stop() }

    /// One for every two processors, and one at least.
    static func threads(ofProcessors count: Int) -> Int { max(1, count / 2) }

    func run() async throws {
        await withTaskCancellationHandler {
            while !Task.isCancelled { try? await Task.sleep(for: .seconds(3600)) }
        } onCancel: {
            self.end()
        }
    }

    /// - Parameters:
    ///   - key: What is alike has the same; nothing else may.
    ///   - caller: Whose it is, of those who take turns.
    ///   - presence: Who waits; once he has gone, nobody does.
    ///   - work: Blocks.
    /// - Returns: What the work gives.
    /// - Throws: What it throws; `SecureRefusal.busy` where there is no room, or where it has waited too
    ///   long; `CancellationError` once the caller has gone.
    func result(
        _ key: [UInt8],
        of caller: Caller,
        for presence: CallerPresence,
        _ work: @escaping Work
    ) async throws -> PasswordHash? {
        try await presence.whileThere { try await self.wait(key, of: caller, work) }
    }

    /// A secret from a network was wrong: from now on it waits behind the others.
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
            if let known = unsafe alike[key] {
                unsafe jobs[known]?.waiters[waiter] = continuation
                return []
            }
            let (id, now) = (newID(), ContinuousClock.now)
            var refused = unsafe queue.removeOld(now: now).flatMap { take($0) }
            let admission = unsafe queue.add(work, id, of: caller, now: now)
            if admission == .refused { return refused + [continuation] }
            unsafe jobs[id] = Job(key: key, waiters: [waiter: continuation])
            unsafe alike[key] = id
            if case .waitsInsteadOf(let displaced) = admission { refused += take(displaced) }
            return refused
        }
        tellWaiting()
        for continuation in refused { continuation.resume(throwing: SecureRefusal.busy) }
        threads.wake()
    }

    /// Takes a job away, with those who wait for it.
    private func take(_ id: Int) -> [CheckedContinuation<PasswordHash?, any Error>] {
        guard let job = unsafe jobs.removeValue(forKey: id) else { return [] }
        if unsafe alike[job.key] == id { unsafe alike[job.key] = nil }
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
        tellWaiting()
        left?.resume(throwing: CancellationError())
    }

    private func end() {
        let left = lock.withLock {
            unsafe isOver = true
            return unsafe queue.removeAll().flatMap { take($0) }
        }
        tellWaiting()
        for continuation in left { continuation.resume(throwing: SecureRefusal.busy) }
    }

    private func tellWaiting() {
        waiting.set(lock.withLock { unsafe queue.count })
    }

    // MARK: On a thread of its own

    /// - Returns: What is to be done next; `nil`: nothing.
    private func takeNext() -> (@Sendable () -> Void)? {
        let (next, late) = lock.withLock {
            () -> ((id: Int, job: Work)?, [CheckedContinuation<PasswordHash?, any Error>]) in
            let now = ContinuousClock.now
            let late = unsafe queue.removeOld(now: now).flatMap { take($0) }
            let next = unsafe queue.next(now: now)
            if let next { unsafe jobs[next.id]?.isRunning = true }
            return (next, late)
        }
        if next != nil || !late.isEmpty { tellWaiting() }
        for continuation in late { continuation.resume(throwing: SecureRefusal.busy) }
        guard let next else { return nil }
        return {
            let result = Result { try next.job() }
            let waiters = self.lock.withLock { self.take(next.id) }
            for waiter in waiters { waiter.resume(with: result) }
        }
    }
}
