import ConfigStorage
import EventLoop
import JSON
import Observability
import ServiceKit
import Storage

/// Records which version each installation fetched: asynchronously, in batches. Confined to its loop.
///
/// A crash loses the records that are not written yet, and records beyond the limit are dropped; each costs
/// one unnecessary push. A graceful stop writes all of them.
final class FetchRecorder: @unchecked Sendable {
    private static let wait = Duration.seconds(2)
    private static let batch = 1000
    private static let maximumWaiting = 50_000
    /// The limit of cached records that were written, so that a repeated fetch costs nothing.
    private static let maximumRemembered = 100_000
    /// A longer id is not an installation's.
    private static let maximumIDBytes = 128

    private struct Name: Hashable {
        let app: ExactString
        let instance: ExactString
    }

    private let database: PushDatabase
    private let loop: EventLoop
    private let log: Log
    private var waiting: [Name: Int] = [:]
    /// Two generations: the older is dropped when the younger is full.
    private var young: [Name: Int] = [:]
    private var old: [Name: Int] = [:]

    init(_ database: PushDatabase, on loop: EventLoop, log: Log) {
        self.database = database
        self.loop = loop
        self.log = log
    }

    var waitingCount: Int { waiting.count }

    func note(_ app: String, _ instance: String, version: Int) {
        guard version > 0, (1...Self.maximumIDBytes).contains(instance.utf8.count),
            !instance.utf8.contains(0)
        else { return }
        let name = Name(app: ExactString(app), instance: ExactString(instance))
        guard young[name] ?? old[name] != version else { return }
        guard waiting[name] != nil || waiting.count < Self.maximumWaiting else { return }
        waiting[name] = version
    }

    func run() async {
        while (try? await loop.sleep(for: Self.wait)) != nil { await writeAll() }
        // This task is cancelled, so the last records are written in a task of their own.
        await Task(executorPreference: loop) { await self.writeAll() }.value
    }

    private func writeAll() async {
        while !waiting.isEmpty {
            let batch = Array(waiting.prefix(Self.batch))
            do {
                try await database.configFetches.note(
                    batch.map { name, version in
                        ConfigFetchRecord(
                            app: name.app.text,
                            appInstanceID: name.instance.text,
                            version: version
                        )
                    }
                )
            } catch {
                return log.warning("fetches cannot be noted", [.error: .string("\(error)")])
            }
            for (name, version) in batch {
                if waiting[name] == version { waiting[name] = nil }
                remember(name, version)
            }
        }
    }

    private func remember(_ name: Name, _ version: Int) {
        if young.count >= Self.maximumRemembered / 2 {
            old = young
            young = [:]
        }
        young[name] = version
    }
}
