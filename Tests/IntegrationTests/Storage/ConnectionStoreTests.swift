import ConnectionStorage
import Foundation
import JSON
import PushCore
import PushEvents
import Support
import Testing

@testable import Storage

/// The messages for devices that hold a connection of their own.
@Suite("Messages for connections", .timeLimit(.minutes(2)))
struct ConnectionStoreTests {
    private static let push = "00000000-0000-8000-8000-0000000000aa"

    private func message(
        _ number: Int,
        for installation: String,
        collapse: String? = nil,
        expiresAt: Instant? = nil,
        app: String
    ) -> NewMessage {
        NewMessage(
            .init(app: app, pushID: Self.push, eventID: "e", body: Array("{\"n\":1}".utf8)),
            for: DeviceKey(app: app, installationID: installation),
            id: "00000000-0000-8000-8000-" + String(format: "%012d", number),
            target: "object-" + installation,
            collapseID: collapse,
            expiresAt: expiresAt
        )
    }

    /// Stores the installations that `message` names.
    private func install(_ names: String..., in fixture: StorageFixture) async throws {
        for name in names {
            _ = try await fixture.install([
                "deviceType": "web", "installationId": .string(name),
            ])
        }
        _ = try await fixture.server.query(
            "UPDATE installations SET object_id = 'object-' || installation_id RETURNING 1"
        )
    }

    private func requireBalance(_ store: ConnectionStore, _ app: String) async throws {
        let counts = try await store.counts(of: app)
        #expect(
            counts.kept == counts.received + counts.displaced + counts.expired + counts.waiting,
            "\(counts)"
        )
    }

    @Test("A repeat stores nothing again, an acknowledgement counts once, and the counts balance")
    func life() async throws {
        try await StorageFixture.run { fixture in
            let app = StorageFixture.app
            let store = fixture.database.connections
            try await install("phone", in: fixture)
            let messages = (1...3).map { message($0, for: "phone", app: app) }
            try await store.keep(messages, for: .seconds(3600))
            try await store.keep(messages, for: .seconds(3600))
            let key = DeviceKey(app: app, installationID: "phone")
            let waiting = try await store.waiting(of: [key], limit: 10)
            #expect(waiting.map(\.id) == messages.map(\.id))
            #expect(waiting.map(\.pushID) == Array(repeating: Self.push, count: 3))
            let acks = [MessageAck(waiting[0]), MessageAck(waiting[1])]
            let topics = KafkaTopics()
            // Two connections of the device, at once.
            let twice = acks + acks
            #expect(try await store.acknowledge(twice, topics: topics, at: .now()) == 2)
            #expect(try await store.acknowledge(acks, topics: topics, at: .now()) == 0)
            let records = try await fixture.server.query(
                "SELECT (convert_from(value, 'UTF8')::json->>'outcome') || ' ' || queue FROM outbox"
            )
            // Once a push and installation, however many messages it had. The app's pushes wait in another
            // queue.
            #expect(records == ["received \(OutboxQueue.reports(of: app))"])
            #expect(OutboxQueue.reports(of: app) != OutboxQueue.requests(of: app))
            let counts = try await store.counts(of: app)
            #expect(counts.kept == 3 && counts.received == 2 && counts.waiting == 1)
            try await requireBalance(store, app)
        }
    }

    @Test("The newest messages of a device wait, and a collapse id replaces its predecessor")
    func displaced() async throws {
        try await StorageFixture.run { fixture in
            let app = StorageFixture.app
            let store = fixture.database.connections
            try await install("phone", in: fixture)
            for number in 1...5 {
                try await store.keep(
                    [message(number, for: "phone", app: app)],
                    for: .seconds(3600),
                    maximumWaiting: 3
                )
            }
            let key = DeviceKey(app: app, installationID: "phone")
            var waiting = try await store.waiting(of: [key], limit: 10)
            #expect(waiting.map { String($0.id.suffix(1)) } == ["3", "4", "5"])
            #expect(try await store.counts(of: app).waiting == 3)
            #expect(try await store.counts(of: app, maximumWaiting: 2).waiting == 2)
            for number in 6...7 {
                try await store.keep(
                    [message(number, for: "phone", collapse: "score", app: app)],
                    for: .seconds(3600)
                )
            }
            waiting = try await store.waiting(of: [key], limit: 10)
            #expect(waiting.map { String($0.id.suffix(1)) } == ["3", "4", "5", "7"])
            let first = MessageAck(waiting[0])
            try await store.displace([first, first])
            #expect(try await store.counts(of: app).displaced == 4)
            try await requireBalance(store, app)
        }
    }

    @Test("An expired message is never read, and is deleted and counted")
    func expired() async throws {
        try await StorageFixture.run { fixture in
            let app = StorageFixture.app
            let store = fixture.database.connections
            try await install("phone", in: fixture)
            let past = Instant.now().adding(milliseconds: -1000)
            try await store.keep(
                [
                    message(1, for: "phone", expiresAt: past, app: app),
                    message(2, for: "phone", app: app),
                ],
                for: .seconds(3600)
            )
            let key = DeviceKey(app: app, installationID: "phone")
            #expect(try await store.waiting(of: [key], limit: 10).count == 1)
            #expect(try await store.expire() == 1)
            let counts = try await store.counts(of: app)
            #expect(counts.expired == 1 && counts.waiting == 1)
            try await requireBalance(store, app)
        }
    }

    @Test(
        "A message is kept as long as configured, or until its push expires, and its content no longer"
    )
    func lifetimes() async throws {
        try await StorageFixture.run { fixture in
            let app = StorageFixture.app
            let store = fixture.database.connections
            try await install("phone", in: fixture)
            let soon = Instant.now().adding(milliseconds: 60_000)
            let never = Instant.now().adding(milliseconds: 100 * 86_400_000)
            try await store.keep(
                [
                    message(1, for: "phone", app: app),
                    message(2, for: "phone", expiresAt: soon, app: app),
                    message(3, for: "phone", expiresAt: never, app: app),
                ],
                for: .seconds(7200)
            )
            let lifetimes = try await fixture.server.query(
                """
                SELECT round(extract(epoch FROM expires_at - stored_at) / 60)::bigint
                FROM connection_messages ORDER BY seq
                """
            )
            #expect(lifetimes == ["120", "1", "\(28 * 24 * 60)"])
            func contents() async throws -> [String] {
                _ = try await fixture.server.query(
                    """
                    UPDATE connection_contents SET keep_until = now() - interval '1 s' RETURNING 1
                    """
                )
                #expect(try await store.expireContents(limit: 1) == 1)
                return try await fixture.server.query("SELECT count(*) FROM connection_contents")
            }
            #expect(try await contents() == ["1"])
            let key = DeviceKey(app: app, installationID: "phone")
            let waiting = try await store.waiting(of: [key], limit: 10)
            _ = try await store.acknowledge(
                waiting.map { MessageAck($0) },
                topics: KafkaTopics(),
                at: .now()
            )
            #expect(try await contents() == ["0"])
        }
    }

    @Test("A look-up reads at most 64 KiB of each device, and says whether more wait")
    func pages() async throws {
        try await StorageFixture.run { fixture in
            let app = StorageFixture.app
            let store = fixture.database.connections
            try await install("phone", "tablet", in: fixture)
            let large = (1...20).map { number in
                NewMessage(
                    .init(
                        app: app,
                        pushID: Self.push,
                        eventID: "e",
                        body: Array(#"{"n":\#(number),"a":""#.utf8)
                            + Array(repeating: 120, count: 10_000) + Array(#""}"#.utf8)
                    ),
                    for: DeviceKey(app: app, installationID: "phone"),
                    id: "00000000-0000-8000-8000-" + String(format: "%012d", number),
                    target: "object-phone"
                )
            }
            try await store.keep(
                large + [message(99, for: "tablet", app: app)],
                for: .seconds(3600)
            )
            let keys = ["phone", "tablet"].map { DeviceKey(app: app, installationID: $0) }
            let waiting = try await store.waiting(of: keys, limit: 51)
            let phone = waiting.filter { $0.device == keys[0] }
            #expect(
                phone.count == 7
                    && phone.map(\.isCut) == [true, true, true, true, true, true, true]
            )
            #expect(waiting.filter { $0.device == keys[1] }.map(\.isCut) == [false])
        }
    }

    @Test("Connections of deleted apps, and of those that want none, are found")
    func unserved() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.connections
            let app = StorageFixture.app
            #expect(try await store.unserved(of: [app, "gone"]) == ["gone"])
            _ = try await fixture.server.query(
                """
                UPDATE apps SET settings = settings || '{"connections": false}' WHERE id = 'shop'
                RETURNING 1
                """
            )
            #expect(try await store.unserved(of: [app]) == [app])
        }
    }

    @Test("A message for an installation that was deleted is not stored, and its id is returned")
    func deleted() async throws {
        try await StorageFixture.run { fixture in
            let app = StorageFixture.app
            let store = fixture.database.connections
            try await install("phone", in: fixture)
            let messages = [message(1, for: "phone", app: app), message(2, for: "gone", app: app)]
            for _ in 0..<2 {
                #expect(try await store.keep(messages, for: .seconds(3600)) == [messages[1].id])
            }
            let counts = try await store.counts(of: app)
            #expect(counts.kept == 1 && counts.waiting == 1)
        }
    }

    @Test("A node finds the devices of new messages, also of those that are committed late")
    func arrivals() async throws {
        try await StorageFixture.run { fixture in
            let app = StorageFixture.app
            let store = fixture.database.connections
            try await install("a", "b", in: fixture)
            var cursor = try await store.arrivalStart()
            #expect(try await store.arrived(&cursor).devices.isEmpty)
            try await store.keep(
                ["a", "b"].enumerated().map { message($0 + 1, for: $1, app: app) },
                for: .seconds(3600)
            )
            let found = try await store.arrived(&cursor)
            #expect(
                Set(found.devices)
                    == Set(["a", "b"].map { DeviceKey(app: app, installationID: $0) })
            )
            #expect(try await store.arrived(&cursor).devices.isEmpty)
            // A transaction takes a number, and commits it after a higher one was read.
            _ = try await fixture.server.query(
                "SELECT nextval(pg_get_serial_sequence('connection_messages', 'seq'))"
            )
            try await store.keep([message(3, for: "a", app: app)], for: .seconds(3600))
            let (first, second) = (
                DeviceKey(app: app, installationID: "a"), DeviceKey(app: app, installationID: "b")
            )
            #expect(try await store.arrived(&cursor).devices == [first])
            #expect(try await store.arrived(&cursor).devices.isEmpty)
            _ = try await fixture.server.query(
                """
                INSERT INTO connection_messages
                    (seq, app, device, id, content, target, expires_at, has_own_expiry)
                OVERRIDING SYSTEM VALUE
                SELECT (SELECT max(seq) - 1 FROM connection_messages), app, device,
                    gen_random_uuid(), content, target, expires_at, has_own_expiry
                FROM connection_messages WHERE seq = 2 RETURNING 1
                """
            )
            #expect(try await store.arrived(&cursor).devices == [second])
            #expect(try await store.arrived(&cursor).devices.isEmpty)
            // Long after it got its number, it is found by its transaction.
            _ = try await fixture.server.query(
                """
                UPDATE connection_messages SET tx = pg_current_xact_id()
                WHERE seq = (SELECT min(seq) FROM connection_messages) RETURNING 1
                """
            )
            var late = cursor
            #expect(try await !store.missed(&late).isEmpty)
        }
    }
}
