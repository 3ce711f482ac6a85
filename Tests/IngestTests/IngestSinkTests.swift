import Cryptography
import EventLoop
import IngestStorage
import JSON
import Kafka
import Observability
import PushCore
import PushEvents
import ServiceKit
import ServiceShell
import Storage
import StorageAdmin
import Support
import Testing

@testable import Ingest

@Suite(
    "The sink, between librdkafka's mock broker and Postgres",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct IngestSinkTests {
    private struct Fixture {
        let server: TestDatabase
        let database: PushDatabase
        let cluster: MockKafkaCluster
        let producer: KafkaProducer
        let loop: EventLoop
        let topics = KafkaTopics()

        func send(
            _ type: String,
            _ value: String,
            app: String? = "shop",
            partition: Int32? = nil
        ) async throws {
            let headers = app.map { [KafkaHeader(name: "app", value: $0)] } ?? []
            let errors = try await producer.send([
                KafkaOutgoing(
                    topic: topics.ingest(type),
                    key: Array("k".utf8),
                    value: Array(value.utf8),
                    headers: headers,
                    partition: partition
                )
            ])
            #expect(errors.allSatisfy { $0 == nil })
        }

        func count(_ table: String) async throws -> Int {
            Int(try await server.query("select count(*) from \(table)").first ?? "") ?? -1
        }

        func declare(_ name: String) async throws {
            _ = try await database.ingestTypes.put(
                NewIngestType(app: "shop", name: name, schema: [:], columns: [("n", .bigint)]),
                expecting: 0
            )
        }

        func letters(_ number: Int) async throws -> [String] {
            let consumer = try KafkaConsumer(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                group: TestEnvironment.unique("letters"),
                topics: [topics.deadLetters],
                on: loop
            )
            let running = Task { try await consumer.run() }
            var reasons: [String] = []
            while reasons.count < number, let batch = try await consumer.next() {
                for record in batch.records {
                    let reason = record.headers.first { $0.name == "error.reason" }
                    reasons.append(String(decoding: reason?.value ?? [], as: UTF8.self))
                }
                await consumer.finished(batch)
            }
            running.cancel()
            try await running.value
            return reasons.sorted()
        }
    }

    private static func run(
        _ topicNames: [String],
        _ body: (Fixture) async throws -> Void
    ) async throws {
        let server = try await TestDatabase.makeMigrated()
        let loop = try EventLoop(name: "sink-test")
        let cluster = try MockKafkaCluster()
        let topics = KafkaTopics()
        try cluster.createTopic(topics.deadLetters, partitions: 1)
        for name in topicNames { try cluster.createTopic(topics.ingest(name), partitions: 2) }
        let kafka = KafkaConfiguration(
            bootstrapServers: cluster.bootstrapServers,
            properties: ["topic.metadata.refresh.interval.ms": "500"]
        )
        let producer = try KafkaProducer(kafka, on: loop)
        let database = PushDatabase(
            DatabaseConfiguration(uri: server.url, connections: 4),
            on: loop
        )
        try await database.apps.create(
            StoredApp(
                id: "shop",
                appKeySealed: [1],
                appKeyDigest: sha256([1]),
                masterKeySealed: [2],
                masterKeyDigest: sha256([2])
            )
        )
        let consumer = try KafkaConsumer(
            kafka,
            group: "sink",
            topics: ConsumerRole.ingest.kafkaTopics(of: topics),
            assignment: .even,
            on: loop
        )
        let sink = sink(
            consumer,
            producer,
            database,
            topics,
            in: ServiceRuntime("ingest", on: loop)
        )
        let parts = [
            Task { try await producer.run() }, Task { try await database.run() },
            Task { try await consumer.run() }, Task { try await sink.run() },
        ]
        let fixture = Fixture(
            server: server,
            database: database,
            cluster: cluster,
            producer: producer,
            loop: loop
        )
        let result: Result<Void, any Error>
        do {
            try await body(fixture)
            result = .success(())
        } catch {
            result = .failure(error)
        }
        for part in parts.reversed() {
            part.cancel()
            _ = await part.result
        }
        await loop.stop()
        cluster.close()
        try await server.drop()
        try result.get()
    }

    private static func id(_ number: Int) -> String {
        let digits = String(number)
        return String(repeating: "0", count: 24 - digits.count) + digits
    }

    @Test("A record that cannot be stored is a dead letter, and the others of its batch are stored")
    func poison() async throws {
        try await Self.run(["Ride", "Gone"]) { fixture in
            try await fixture.declare("Ride")
            for number in 0..<40 {
                try await fixture.send("Ride", #"{"_id":"\#(Self.id(number))","n":\#(number)}"#)
            }
            try await fixture.send("Ride", #"{"_id":"\#(Self.id(90))","n":"\u0000"}"#)
            try await fixture.send("Ride", #"{"_id":"\#(Self.id(91))","n":1e200000}"#)
            try await fixture.send("Ride", #"{"_id":"\#(Self.id(1))","n":7}"#)
            try await fixture.send("Ride", #"{"_id":"short"}"#)
            try await fixture.send("Ride", "[]")
            try await fixture.send("Ride", "{}", app: nil)
            try await fixture.send("Ride", "{}", app: "nobody")
            try await fixture.send("Gone", #"{"_id":"\#(Self.id(1))"}"#)
            try await fixture.send("Ride", #"{"_id":"\#(Self.id(99))"}"#)
            #expect(
                try await fixture.letters(7) == [
                    "invalid_id", "missing_app", "not_an_object", "not_storable", "not_storable",
                    "unknown_type", "unknown_type",
                ]
            )
            _ = try await eventually("all is stored") {
                try await fixture.count("ingest_shop_ride") == 41 ? true : nil
            }
            #expect(
                try await fixture.server.query(
                    "select n from ingest_shop_ride where _id = '\(Self.id(1))'"
                ) == ["1"]
            )
        }
    }

    @Test("Topics of new types are read within seconds, from their first record")
    func newTopic() async throws {
        try await Self.run(["Ride"]) { fixture in
            try await fixture.declare("Ride")
            try await fixture.send("Ride", #"{"_id":"\#(Self.id(1))"}"#)
            _ = try await eventually("the first") {
                try await fixture.count("ingest_shop_ride") == 1 ? true : nil
            }
            try fixture.cluster.createTopic(fixture.topics.ingest("Later"), partitions: 2)
            try await fixture.send("Later", #"{"_id":"\#(Self.id(1))"}"#)
            try await fixture.declare("Later")
            try await fixture.send("Later", #"{"_id":"\#(Self.id(2))"}"#)
            _ = try await eventually("the new topic's") {
                try await fixture.count("ingest_shop_later") >= 1 ? true : nil
            }
        }
    }
}
