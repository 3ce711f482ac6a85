import ConnectionStorage
import EventLoop
import HTTPServer
import JSON
import Observability
import PushCore
import PushEvents
import Storage
import Support
import Testing

@testable import Connection

/// Nodes look up messages by themselves every two seconds, which hides a lost notification. Here they do
/// so once an hour.
@Suite(
    "Nodes are woken when messages were stored",
    .timeLimit(.minutes(1)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct NodeWakeTests {
    private static let installation = "an-installation-1"

    private final class Client: DeviceTransport, Sendable {
        let remoteAddress = "127.0.0.1"
        let hasRoom = true
        let frames: AsyncStream<[UInt8]>.Continuation

        init(_ frames: AsyncStream<[UInt8]>.Continuation) { self.frames = frames }

        func send(_ frame: [UInt8]) { frames.yield(frame) }
        func close(_ code: UInt16, _ reason: String) { frames.finish() }
        func fail() { frames.finish() }
        func abort() { frames.finish() }
    }

    /// The store, which reports the look-ups that have ended.
    private struct WatchedStore: MessageStore {
        enum LookUp: Hashable { case arrivals, messages }

        let store: ConnectionStore
        let ended: AsyncStream<LookUp>.Continuation

        func logIn(_ logins: [DeviceLogin]) async throws -> [KnownDevice?] {
            try await store.logIn(logins)
        }

        func arrivalStart() async throws -> ArrivalCursor { try await store.arrivalStart() }

        func arrived(_ cursor: inout ArrivalCursor) async throws -> (
            devices: [DeviceKey], isComplete: Bool
        ) {
            let found = try await store.arrived(&cursor)
            if found.isComplete { ended.yield(.arrivals) }
            return found
        }

        func missed(_ cursor: inout ArrivalCursor) async throws -> [DeviceKey] {
            try await store.missed(&cursor)
        }

        func waiting(of devices: [DeviceKey], limit: Int) async throws -> [WaitingMessage] {
            let found = try await store.waiting(of: devices, limit: limit)
            ended.yield(.messages)
            return found
        }

        func acknowledge(
            _ acks: [MessageAck],
            topics: KafkaTopics,
            at now: Instant
        ) async throws -> Int {
            try await store.acknowledge(acks, topics: topics, at: now)
        }

        func displace(_ messages: [MessageAck]) async throws { try await store.displace(messages) }

        func opened(_ messages: [MessageAck]) async throws { try await store.opened(messages) }
    }

    /// Stores a message for the installation, without a notification.
    private func keep(_ id: String, for object: String, _ store: ConnectionStore) async throws {
        let message = NewMessage(
            .init(
                app: StorageFixture.app,
                pushID: "00000000-0000-8000-8000-0000000000aa",
                eventID: "e",
                body: Array("{\"n\":1}".utf8)
            ),
            for: DeviceKey(app: StorageFixture.app, installationID: Self.installation),
            id: id,
            target: object
        )
        #expect(try await store.keep([message], for: .seconds(3600)).isEmpty)
    }

    @Test("A node that would look for messages in an hour sends one when it is notified")
    func woken() async throws {
        try await StorageFixture.run { fixture in
            let device = try await fixture.install([
                "deviceType": "web", "installationId": .string(Self.installation),
            ])
            let store = fixture.database.connections
            let (lookUps, ended) = AsyncStream.makeStream(of: WatchedStore.LookUp.self)
            let (frames, sent) = AsyncStream.makeStream(of: [UInt8].self)
            let loop = fixture.loop
            let hub = DeviceHub(
                WatchedStore(store: store, ended: ended),
                topics: KafkaTopics(),
                limits: DeviceHub.Limits(sweepEvery: .seconds(3600)),
                meters: ConnectionMetrics(Metrics()),
                on: loop,
                log: .disabled,
                onReceived: {}
            )
            let node = PushDatabase(DatabaseConfiguration(uri: fixture.server.url), on: loop)
            let running = Task(executorPreference: loop) {
                await withTaskGroup { group in
                    group.addTask { try? await node.run() }
                    group.addTask { await hub.run() }
                }
            }
            await hub.listen(to: node)
            // The socket does not keep it.
            let client = Client(sent)
            loop.execute {
                let socket = DeviceSocket(client, NativeDialect())
                hub.opened(socket)
                hub.logIn(
                    socket,
                    LoginRequest(
                        app: StorageFixture.app,
                        installationID: Self.installation,
                        appKey: "k"
                    )
                )
            }
            // After these, no look-up is due for an hour.
            var awaited: Set<WatchedStore.LookUp> = [.arrivals, .messages]
            for await lookUp in lookUps {
                awaited.remove(lookUp)
                if awaited.isEmpty { break }
            }
            let id = "00000000-0000-8000-8000-000000000001"
            try await keep(id, for: device.objectID, store)
            try await store.notifyNodes()
            var texts = frames.map { String(decoding: $0, as: UTF8.self) }.makeAsyncIterator()
            var isSent = false
            while !isSent, let text = await texts.next() { isSent = text.contains(id) }
            #expect(isSent)
            running.cancel()
            await running.value
            withExtendedLifetime(client) {}
        }
    }
}
