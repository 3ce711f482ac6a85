import ConnectionStorage
import EventLoop
import JSON
import Observability
import PushCore
import PushProviders
import Storage

/// Our own provider: it stores messages for devices that hold a connection. All apps take turns.
///
/// Authority: messages that were handed over and are not stored yet. They are written in batches: what
/// arrives during a write is the next batch, and only full batches, or those behind a slow write, are
/// written at the same time. A message that was written before is not written again, so any failure may be
/// retried.
@DispatchLoop
final class ConnectionProvider {
    /// Stores messages, and returns the ids of those whose installation has been deleted.
    typealias Keep = @Sendable ([NewMessage]) async throws -> Set<String>

    /// A message that is not stored yet, and its completion.
    fileprivate struct Entry {
        let client: ConnectionClient
        let message: NewMessage
        let answer: @Sendable (ProviderAnswer) -> Void
    }

    private static let batch = 256
    /// The most messages of one app in its turn.
    private static let share = 64
    private static let maximumWrites = 4
    /// The time after which a write is slow.
    private static let patience = Duration.milliseconds(25)
    /// The most clients in memory; above it, unused clients are dropped.
    private static let maximumClients = 1000

    private let keep: Keep
    /// Wakes the nodes, as messages were stored.
    private let notify: @Sendable () async throws -> Void
    private let log: Log
    private var clients: [String: ConnectionClient] = [:]
    /// The clients with waiting messages, the next first.
    private var waiting: [ConnectionClient] = []
    private var writes = 0
    private var lastWrite = 0
    /// The writes under way that are not slow, by number.
    private var recent: Set<Int> = []
    private var mustNotify = false
    private var isNotifying = false
    private var isClosed = false

    init(
        log: Log,
        keep: @escaping Keep,
        notify: @escaping @Sendable () async throws -> Void
    ) {
        self.keep = keep
        self.notify = notify
        self.log = log
    }

    /// Returns the client of an app. There is no credential that could be wrong.
    func client(of app: String) -> ConnectionClient {
        if let known = clients[app] { return known }
        if clients.count >= Self.maximumClients {
            clients = clients.filter { $0.value.deliveriesInside > 0 }
        }
        let client = ConnectionClient(app: app, of: self)
        clients[app] = client
        return client
    }

    fileprivate func added(to client: ConnectionClient) {
        guard !isClosed else { return drop(of: client, because: "closed") }
        if !waiting.contains(where: { $0 === client }) { waiting.append(client) }
        write()
    }

    /// Begins to write the waiting messages.
    private func write() {
        while !isClosed, writes < Self.maximumWrites, recent.isEmpty || hasFullBatch {
            var batch: [Entry] = []
            while batch.count < Self.batch, !waiting.isEmpty {
                let client = waiting.removeFirst()
                batch += client.take(atMost: min(Self.share, Self.batch - batch.count))
                if client.hasWaiting { waiting.append(client) }
            }
            guard !batch.isEmpty else { return }
            begin(batch)
        }
    }

    private var hasFullBatch: Bool {
        var count = 0
        for client in waiting {
            count += client.waitingCount
            if count >= Self.batch { return true }
        }
        return false
    }

    private func begin(_ batch: [Entry]) {
        writes += 1
        lastWrite += 1
        let number = lastWrite
        recent.insert(number)
        let timer = DispatchLoop.loop.schedule(after: Self.patience) { [self] in
            if recent.remove(number) != nil { write() }
        }
        DispatchLoop.task { [self] in
            await write(batch)
            timer.cancel()
            recent.remove(number)
            writes -= 1
            write()
        }
    }

    private func write(_ batch: [Entry]) async {
        do {
            let deleted = try await keep(batch.map(\.message))
            notifyNodes()
            finish(batch.filter { !deleted.contains($0.message.id) }, ProviderAnswer(.accepted))
            finish(
                batch.filter { deleted.contains($0.message.id) },
                ProviderAnswer(.unregistered(since: nil), reason: "the installation was deleted")
            )
        } catch let error as StorageError where error.mayBeOfThePush && batch.count > 1 {
            // One of the messages is at fault: it must not fail the others.
            let middle = batch.count / 2
            await write(Array(batch[..<middle]))
            await write(Array(batch[middle...]))
        } catch let error as StorageError where error.isOfTheValues {
            finish(batch, ProviderAnswer(.rejected, reason: error.description))
        } catch {
            log.warning("messages of connections are not stored", [.error: .string("\(error)")])
            finish(batch, ProviderAnswer(.notSent, reason: "the database did not store it"))
        }
    }

    /// Wakes the nodes, once for all writes that end meanwhile.
    private func notifyNodes() {
        mustNotify = true
        guard !isNotifying else { return }
        isNotifying = true
        DispatchLoop.task { [self] in
            while mustNotify {
                mustNotify = false
                // Nodes that are not woken find the messages within seconds.
                try? await notify()
            }
            isNotifying = false
        }
    }

    private func finish(_ entries: [Entry], _ answer: ProviderAnswer) {
        for entry in entries {
            entry.client.deliveriesInside -= 1
            entry.answer(answer)
        }
    }

    /// Withdraws the waiting messages, see `ProviderClient.withdrawAll`.
    func withdrawAll() { drop(because: "withdrawn") }

    /// Drops the waiting messages; writes in flight complete.
    func close() {
        isClosed = true
        drop(because: "closed")
    }

    private func drop(because reason: String) {
        let dropped = waiting
        waiting = []
        for client in dropped { drop(of: client, because: reason) }
    }

    private func drop(of client: ConnectionClient, because reason: String) {
        finish(client.take(atMost: .max), ProviderAnswer(.notSent, reason: reason))
    }
}

/// One app's share of `ConnectionProvider`. `ProviderClient` requires that callers are on the loop,
/// which each call checks.
@DispatchLoop
final class ConnectionClient: @preconcurrency ProviderClient {
    let app: String
    private let provider: ConnectionProvider
    fileprivate(set) var deliveriesInside = 0
    private var urgent: [ConnectionProvider.Entry] = []
    private var others: [ConnectionProvider.Entry] = []

    fileprivate init(app: String, of provider: ConnectionProvider) {
        self.app = app
        self.provider = provider
    }

    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        deliveriesInside += deliveries.count
        // Notifications of one push come one after the other and share their content.
        var content: NewMessage.Content?
        for (index, notification) in deliveries.enumerated() {
            guard let delivery = notification.delivery else {
                deliveriesInside -= 1
                completion(index, ProviderAnswer(.rejected, reason: "names no delivery"))
                continue
            }
            let payload = notification.payload
            if content?.pushID != delivery.pushID || content?.body != payload.body {
                content = NewMessage.Content(
                    app: delivery.app,
                    pushID: delivery.pushID,
                    eventID: delivery.eventID,
                    body: payload.body,
                    channels: payload.channels
                )
            }
            guard let content else { continue }
            let message = NewMessage(
                content,
                for: DeviceKey(app: delivery.app, installationID: notification.target.token),
                id: notification.notificationID,
                target: delivery.target,
                collapseID: payload.value(of: ConnectionRequest.collapseHeader),
                expiresAt: notification.expiration.map { Instant(seconds: $0) }
            )
            let entry = ConnectionProvider.Entry(client: self, message: message) {
                completion(index, $0)
            }
            if notification.isUrgent { urgent.append(entry) } else { others.append(entry) }
        }
        provider.added(to: self)
    }

    fileprivate var hasWaiting: Bool { waitingCount > 0 }
    fileprivate var waitingCount: Int { urgent.count + others.count }

    /// Takes waiting messages, urgent ones first.
    fileprivate func take(atMost limit: Int) -> [ConnectionProvider.Entry] {
        let first = Array(urgent.prefix(limit))
        urgent.removeFirst(first.count)
        let rest = Array(others.prefix(limit - first.count))
        others.removeFirst(rest.count)
        return first + rest
    }

    func withdrawAll() { provider.withdrawAll() }

    func close() {}

    func closeAfterLastDelivery() {}
}

extension RenderedPayload {
    fileprivate func value(of header: String) -> String? {
        headers.first { $0.name == header }?.value
    }

    fileprivate var channels: [String] {
        guard let text = value(of: ConnectionRequest.channelsHeader),
            let list = (try? JSONValue.parse(Array(text.utf8)))?.array
        else { return [] }
        return list.compactMap(\.string)
    }
}
