import EventLoop
import JSON
import Kafka
import Observability
import Outbox
import PushCore
import PushEvents
import PushStorage
import ServiceKit
import Storage
import Support
import Testing

@Suite(
    "The relay, between a real Postgres and a real Kafka",
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set"),
    .enabled(
        if: TestEnvironment.kafkaBootstrapServers != nil,
        "KAFKA_BOOTSTRAP_SERVERS is not set"
    ),
    .timeLimit(.minutes(2))
)
struct OutboxRelayTests {
    /// Runs a relay for the duration of the body, on a loop and with a database of its own, as a
    /// service does.
    private func relaying(
        _ fixture: StorageFixture,
        to servers: String,
        _ body: () async throws -> Void
    ) async throws {
        let loop = try EventLoop(name: "relay")
        let database = PushDatabase(DatabaseConfiguration(uri: fixture.server.url), on: loop)
        let producer = try KafkaProducer(
            KafkaConfiguration(bootstrapServers: servers),
            deliveryTimeout: OutboxRelay.deliveryTimeout,
            on: loop
        )
        let relay = OutboxRelay(
            from: database,
            to: producer,
            on: loop,
            log: .disabled,
            metrics: Metrics()
        )
        let running = Task {
            try await withThrowingTaskGroup(of: Void.self) { group in
                group.addTask { try await database.run() }
                group.addTask { try await producer.run() }
                group.addTask { try await relay.run() }
                try await group.waitForAll()
            }
        }
        let result: Result<Void, any Error>
        do {
            try await body()
            result = .success(())
        } catch {
            result = .failure(error)
        }
        running.cancel()
        _ = await running.result
        await producer.close()
        await loop.stop()
        try result.get()
    }

    private func topics(on servers: String, _ loop: EventLoop) async throws -> KafkaTopics {
        let topics = KafkaTopics(prefix: TestEnvironment.unique("relay-") + ".")
        _ = try await KafkaAdmin.ensureTopics(
            [(topics.pushRequests, 1)],
            KafkaConfiguration(bootstrapServers: servers),
            timeout: .seconds(60),
            on: loop
        )
        return topics
    }

    @Test("Promise 1: an accepted record reaches Kafka once and unchanged, and its row is deleted")
    func brings() async throws {
        let servers = try #require(TestEnvironment.kafkaBootstrapServers)
        try await StorageFixture.run { fixture in
            let topics = try await topics(on: servers, fixture.loop)
            let acceptance = PushAcceptance(fixture.database, topics: topics)
            let validated = try (0..<20).map { number in
                try acceptance.validate(
                    ["channels": ["news"], "data": ["alert": .string("Ring \(number)")]],
                    PushAcceptance.Event(
                        app: StorageFixture.app,
                        source: "test",
                        id: "event-\(number)"
                    ),
                    includesPushID: false,
                    now: .now()
                )
            }
            // Some were waiting when the relay came, others are accepted while it sleeps.
            for push in validated[..<10] { _ = try await acceptance.accept(push) }
            try await relaying(fixture, to: servers) {
                for push in validated[10...] { _ = try await acceptance.accept(push) }
                try await eventually("the outbox is empty") {
                    try await fixture.database.outbox.count() == 0 ? () : nil
                }
            }
            let records = try await KafkaClient(bootstrapServers: servers)
                .records(on: topics.pushRequests)
            #expect(
                records.map(\.key).compactMap { $0 }.sorted()
                    == validated.map(\.push.eventID).sorted()
            )
            #expect(
                Set(records.map(\.value))
                    == Set(validated.map { String(decoding: $0.record.value ?? [], as: UTF8.self) })
            )
            #expect(records.allSatisfy { $0.headers.map(\.value) == ["application/json"] })
        }
    }

    @Test("Records of one order key stay in order, and do not wait for the relay's next poll")
    func ordered() async throws {
        let servers = try #require(TestEnvironment.kafkaBootstrapServers)
        try await StorageFixture.run { fixture in
            let topics = try await topics(on: servers, fixture.loop)
            let count = 60
            _ = try await fixture.server.query(
                """
                INSERT INTO outbox (kafka_topic, key, value, order_key)
                SELECT '\(topics.pushRequests)', 'k', n::text::bytea, 'config/shop'
                FROM generate_series(1, \(count)) n
                """
            )
            // With polls a second apart it would take a minute, which is longer than this waits.
            try await relaying(fixture, to: servers) {
                try await eventually("the outbox is empty") {
                    try await fixture.database.outbox.count() == 0 ? () : nil
                }
            }
            let records = try await KafkaClient(bootstrapServers: servers)
                .records(on: topics.pushRequests)
            #expect(records.map(\.value) == (1...count).map(String.init))
        }
    }

    @Test("Promise 1: rows wait while Kafka is unavailable, and are sent once it is back")
    func waits() async throws {
        let servers = try #require(TestEnvironment.kafkaBootstrapServers)
        try await StorageFixture.run { fixture in
            let topics = try await topics(on: servers, fixture.loop)
            let acceptance = PushAcceptance(fixture.database, topics: topics)
            let validated = try acceptance.validate(
                ["channels": ["news"], "data": ["alert": "Ring"]],
                .anonymous(app: StorageFixture.app, source: "test"),
                includesPushID: false,
                now: .now()
            )
            _ = try await acceptance.accept(validated)
            // The rows are claimed by a relay whose Kafka does not answer: it stops, and nothing is
            // lost.
            try await relaying(fixture, to: "127.0.0.1:1") {
                try await eventually("a relay has claimed the row") {
                    try await fixture.isClaimed() ? () : nil
                }
            }
            #expect(try await fixture.database.outbox.count() == 1)
            try await relaying(fixture, to: servers) {
                try await eventually("the outbox is empty") {
                    try await fixture.database.outbox.count() == 0 ? () : nil
                }
            }
            let records = try await KafkaClient(bootstrapServers: servers)
                .records(on: topics.pushRequests)
            #expect(records.count == 1)
        }
    }
}

extension StorageFixture {
    fileprivate func isClaimed() async throws -> Bool {
        try await server.query("SELECT count(*) FROM outbox WHERE due_at > now()") == ["1"]
    }
}
