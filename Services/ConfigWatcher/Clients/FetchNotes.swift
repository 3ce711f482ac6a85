import EventLoop
import JSON
import Observability
import PushStorage
import ServiceKit

/// Notes which version an installation was given, in batches, behind the answers. Confined to its
/// loop.
///
/// What is not written yet is lost in a crash, and what comes while too much waits is left out, each
/// at the price of a push that nobody needed. A graceful stop writes it first.
final class FetchNotes: @unchecked Sendable {
    private static let wait = Duration.seconds(2)
    private static let batch = 1000
    private static let maximumWaiting = 50_000
    /// Of those that were written, so that a client that fetches again costs nothing.
    private static let maximumRemembered = 100_000
    /// Longer ones are no installation's.
    private static let maximumIDBytes = 128

    private struct Name: Hashable {
        let app: ExactText
        let instance: ExactText
    }

    private let database: PushDatabase
    private let loop: EventLoop
    private let log: Log
    private var waiting: [Name: Int] = [:]
    /// In two generations: the older are forgotten when the younger are many.
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
        let name = Name(app: ExactText(app), instance: ExactText(instance))
        guard young[name] ?? old[name] != version else { return }
        guard waiting[name] != nil || waiting.count < Self.maximumWaiting else { return }
        waiting[name] = version
    }

    func run() async {
        while (try? await loop.sleep(for: Self.wait)) != nil { await writeAll() }
        // In a task of its own: this one is cancelled.
        await Task(executorPreference: loop) { await self.writeAll() }.value
    }

    private func writeAll() async {
        while !waiting.isEmpty {
            let batch = Array(waiting.prefix(Self.batch))
            do {
                try await database.configFetches.note(
                    batch.map { name, version in
                        ConfigFetchNote(
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
