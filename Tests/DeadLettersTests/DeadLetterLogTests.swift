import EventLoop
import Kafka
import PushEvents
import Testing

@testable import DeadLetters

@Suite("The latest dead letters, read from Kafka", .timeLimit(.minutes(1)))
struct DeadLetterLogTests {
    private let topics = KafkaTopics(prefix: "p.")

    private func record(
        _ value: String,
        _ headers: [(String, String)] = [],
        source: String = "p.push.requests",
        partition: Int32 = 0
    ) -> KafkaOutgoing {
        let own = [
            ("error.reason", "invalid_request"), ("error.detail", "why"), ("source.topic", source),
            ("source.partition", "0"), ("source.offset", "0"),
        ]
        return KafkaOutgoing(
            topic: topics.deadLetters,
            key: nil,
            value: Array(value.utf8),
            headers: (headers + own).map { KafkaHeader(name: $0.0, value: $0.1) },
            partition: partition
        )
    }

    /// Runs the body with a log over these records.
    private func withLog(
        _ records: [KafkaOutgoing],
        _ body: (DeadLetterLog, MockKafkaCluster) async throws -> Void
    ) async throws {
        let cluster = try MockKafkaCluster()
        defer { cluster.close() }
        try cluster.createTopic(topics.deadLetters, partitions: 2)
        let loop = try EventLoop(name: "dead-letters-test")
        let kafka = KafkaConfiguration(bootstrapServers: cluster.bootstrapServers)
        do {
            let producer = try KafkaProducer(kafka, on: loop)
            let errors = try await producer.send(records)
            #expect(errors.allSatisfy { $0 == nil })
            await producer.close()
            try await body(DeadLetterLog(kafka, topics, on: loop), cluster)
        } catch {
            await loop.stop()
            throw error
        }
        await loop.stop()
    }

    @Test("Only the latest records of each partition are read, once for all who ask together")
    func bounded() async throws {
        let most = Int(DeadLetterLog.lastOffsets)
        let records =
            (0..<most + 50).map { record(#"{"app":"shop","n":\#($0)}"#) }
            + [record(#"{"app":"shop","n":"other"}"#, partition: 1)]
        try await withLog(records) { log, _ in
            async let first = log.snapshot()
            async let second = log.snapshot()
            let (one, two) = try await (first, second)
            #expect(one.hasOlder && one.leftOut == 0)
            let letters = one.letters(of: "shop")
            #expect(letters.count == most + 1)
            #expect(letters.filter { $0.id.partition == 0 }.map(\.id.offset).min() == 50)
            #expect(two.at == one.at)
            #expect(await log.reads == 1)
        }
    }

    @Test("Nothing older is reported if all records are read")
    func whole() async throws {
        try await withLog([record(#"{"app":"shop"}"#)]) { log, _ in
            let snapshot = try await log.snapshot()
            #expect(!snapshot.hasOlder && snapshot.letters(of: "shop").count == 1)
            #expect(snapshot.letters(of: "other").isEmpty)
        }
    }

    @Test("A failed read is not shared with those who ask later")
    func away() async throws {
        try await withLog([record(#"{"app":"shop"}"#)]) { log, cluster in
            try cluster.setBroker(isUp: false)
            await #expect(throws: (any Error).self) { try await log.snapshot() }
            try cluster.setBroker(isUp: true)
            #expect(try await log.snapshot().letters(of: "shop").count == 1)
        }
    }

    @Test("A missing topic is named, and not created")
    func missing() async throws {
        let cluster = try MockKafkaCluster()
        defer { cluster.close() }
        try cluster.createTopic("other", partitions: 1)
        let loop = try EventLoop(name: "dead-letters-test")
        let kafka = KafkaConfiguration(bootstrapServers: cluster.bootstrapServers)
        let log = DeadLetterLog(kafka, topics, on: loop)
        await #expect(throws: StoredDeadLetter.MissingTopic.self) { try await log.snapshot() }
        let cluster2 = try await KafkaAdmin.describe(kafka, on: loop)
        #expect(cluster2.topics.map(\.name) == ["other"])
        await loop.stop()
    }

    @Test(
        "A record belongs to an app only if it names that app and no other",
        arguments: [
            (#"{"app":"shop"}"#, [], "p.push.requests", "shop"),
            (#"{"app":"shop"}"#, [("app", "shop")], "p.push.requests", "shop"),
            (#"{"app":"shop"}"#, [("app", "other")], "p.push.requests", nil),
            (#"{"app":"shop"}"#, [("CE_App", "other")], "p.push.requests", nil),
            (
                #"{"specversion":"1.0","id":"1","source":"s","type":"t","data":{"app":"shop"}}"#,
                [],
                "p.push.requests", "shop"
            ),
            (
                #"{"specversion":"1.0","id":"1","source":"s","type":"t","app":"a","data":{"app":"b"}}"#,
                [], "p.push.requests", nil
            ),
            (
                #"{"specversion":"2","app":"shop","data":{"app":"shop"}}"#, [], "p.push.requests",
                "shop"
            ),
            (#"{"app":["shop"]}"#, [], "p.push.requests", nil),
            (#"{"app":"sho\u212A"}"#, [], "p.push.requests", nil),
            ("{}", [], "p.push.requests", nil),
            ("not JSON", [], "p.push.requests", nil),
            ("not JSON", [("app", "shop")], "p.push.requests", "shop"),
            (#"{"app":"a device says so"}"#, [("app", "shop")], "p.ingest.Weather", "shop"),
            (#"{"app":"shop"}"#, [], "p.ingest.Weather", nil),
            (#"{"app":"shop"}"#, [("app", "shop")], "http:/v1/batch", "shop"),
            (#"{"project":"shop"}"#, [], "p.config.published", "shop"),
            (#"{"app":"shop"}"#, [], "p.config.published", nil),
            (#"{"identityPoolId":"p"}"#, [], "p.dataset.changes", nil),
        ] as [(String, [(String, String)], String, String?)]
    )
    func owners(value: String, headers: [(String, String)], source: String, owner: String?) {
        let outgoing = record(value, headers, source: source)
        let letter = StoredDeadLetter(
            record: KafkaRecord(
                topic: outgoing.topic,
                partition: 0,
                offset: 0,
                key: nil,
                value: outgoing.value,
                headers: outgoing.headers
            )
        )
        #expect(letter.owner(topics) == owner)
    }
}
