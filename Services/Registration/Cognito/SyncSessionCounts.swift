import EventLoop
import Observability
import ServiceKit
import Storage
import SyncStorage

/// Counts the issued session tokens by pool, and stores the counts every few seconds. A crash loses
/// the counts of some seconds.
final class SyncSessionCounts: ServicePart {
    let name = "sync-sessions"
    private let database: PushDatabase
    private let loop: EventLoop
    private let log: Log
    private let lock = Lock()
    nonisolated(unsafe) private var counts: [String: Int] = [:]

    private static let wait = Duration.seconds(5)
    /// The limit of pools while the database is not reachable.
    private static let maximumPools = 10_000

    init(_ database: PushDatabase, on loop: EventLoop, log: Log) {
        self.database = database
        self.loop = loop
        self.log = log
    }

    func add(_ pool: String) {
        lock.withLock {
            guard unsafe counts.count < Self.maximumPools || counts[pool] != nil else { return }
            unsafe counts[pool, default: 0] += 1
        }
    }

    func run() async throws {
        while (try? await loop.sleep(for: Self.wait)) != nil { await write() }
        // This task is cancelled, so the last counts are written in a task of their own.
        await Task(executorPreference: loop) { await self.write() }.value
    }

    private func write() async {
        let taken = lock.withLock {
            let taken = unsafe counts
            unsafe counts = [:]
            return taken
        }
        guard !taken.isEmpty else { return }
        do {
            try await database.syncPools.countSessions(taken)
        } catch {
            log.debug("session tokens are not counted", [.error: .string("\(error)")])
            lock.withLock { unsafe counts.merge(taken) { $0 + $1 } }
        }
    }
}
