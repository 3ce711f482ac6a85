import EventLoop
import PushStorage
import ServiceKit

/// Hears what other processes say by NOTIFY. Whoever waits for it also looks now and then by itself.
///
/// Shutdown: at once.
struct Notifications: ServicePart {
    let name = "notifications"
    let database: PushDatabase
    let credentials: CredentialDirectory
    let sender: ShardSender
    let bells: Bells
    let loop: EventLoop

    func run() async throws {
        var pause = Pause()
        while !Task.isCancelled {
            do {
                try await listen()
                break
            } catch {
                await pause.wait(on: loop)
            }
        }
        await loop.untilCancelled()
    }

    private func listen() async throws {
        let (loop, bells, credentials, sender) = (loop, bells, credentials, sender)
        try await database.onNotification(.credentials) { app in
            loop.execute { credentials.forget(app) }
        }
        try await database.onNotification(.planning) { _ in bells.ringForPlanning() }
        try await database.onNotification(.scheduled) { _ in bells.ringForSchedules() }
        try await database.onNotification(.shards) { _ in bells.ringForShards() }
        try await database.onNotification(.cancelled) { pushID in
            Task(executorPreference: loop) { await sender.cancelled(pushID) }
        }
    }
}
