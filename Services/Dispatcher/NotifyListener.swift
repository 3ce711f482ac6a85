import EventLoop
import ServiceKit
import Storage

/// Listens to the NOTIFY channels. A notification is a hint: the parts that it wakes also poll.
///
/// Shutdown: at once.
struct NotifyListener: ServicePart {
    let name = "notifications"
    let database: PushDatabase
    let credentials: CredentialCache
    let senders: [ShardSender]
    let wakeUps: WakeUps

    func run() async throws {
        let (wakeUps, credentials, senders) = (wakeUps, credentials, senders)
        await database.listen(to: .credentials) { app in
            DispatchLoop.task { credentials.forget(app) }
        }
        await database.listen(to: .planning) { _ in wakeUps.wakeForPlanning() }
        await database.listen(to: .scheduled) { _ in wakeUps.wakeForSchedules() }
        await database.listen(to: .shards) { _ in wakeUps.wakeForShards() }
        await database.listen(to: .cancelled) { pushID in
            DispatchLoop.task { for sender in senders { sender.cancelled(pushID) } }
        }
        await DispatchLoop.loop.untilCancelled()
    }
}
