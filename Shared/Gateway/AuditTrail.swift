package import EventLoop
package import Observability
import ServiceKit
package import Storage

/// Records the calls made with master keys, in batches of hundreds, after the responses.
///
/// Authority: entries are stored in the order in which they came. If the process is killed, the
/// entries that are not written yet are lost: those of the last tenth of a second. A graceful stop
/// writes them first, so this part comes after the database and before the listener.
package actor AuditTrail: ServicePart {
    package nonisolated let name: String
    nonisolated private let loop: EventLoop
    package nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// The actor in entries for calls with an app's master key.
    package static let masterKeyActor = "master-key"
    /// The actor in entries for calls by readers of an app, authenticated or not.
    package static let readerActor = "reader"

    private static let wait = Duration.milliseconds(100)
    private static let batch = 500
    /// The limit while the database is unavailable; beyond it the oldest entries are dropped and
    /// logged.
    private static let maximumWaiting = 50_000
    /// The tries of a stop while the database is unavailable; late in the grace period only one.
    private static let lastTries = 20

    private let database: PushDatabase
    private let log: Log
    private let written: Counter
    private var waiting: [AuditEntry] = []

    package init(
        _ name: String,
        _ database: PushDatabase,
        on loop: EventLoop,
        log: Log,
        metrics: Metrics
    ) {
        self.name = name
        self.database = database
        self.loop = loop
        self.log = log
        written = metrics.counter(.auditEntriesWritten)
    }

    package func record(_ entry: AuditEntry) {
        if waiting.count >= Self.maximumWaiting {
            waiting.removeFirst(Self.batch)
            log.error("audit entries were dropped", [.count: .integer(Self.batch)])
        }
        waiting.append(entry)
    }

    package func run() async throws {
        while (try? await loop.sleep(for: Self.wait)) != nil { await writeAll(tries: 1) }
        // In a new task, as this one is cancelled.
        await Task(executorPreference: loop) { await self.writeAll(tries: Self.lastTries) }.value
    }

    private func writeAll(tries: Int) async {
        var left = tries
        while !waiting.isEmpty, left > 0 {
            let batch = Array(waiting.prefix(Self.batch))
            do {
                try await database.audit.append(batch)
                waiting.removeFirst(min(batch.count, waiting.count))
                written.add(batch.count)
            } catch {
                left -= 1
                log.warning("audit entries cannot be written", [.error: .string("\(error)")])
                // The trails of all loops stop one after another.
                if loop.stopClock.hasPassed(share: 0.75) { return }
                if left > 0 { try? await loop.sleep(for: Self.wait) }
            }
        }
    }
}
