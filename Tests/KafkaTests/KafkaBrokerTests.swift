import EventLoop
import Foundation
import Observability
import Testing

@testable import Kafka

private let brokers = ProcessInfo.processInfo.environment["KAFKA_BOOTSTRAP_SERVERS"] ?? ""

/// Behaviour that only a real broker shows: how soon groups rebalance, and what is committed when.
@Suite(
    "Real broker",
    .enabled(if: !brokers.isEmpty, "KAFKA_BOOTSTRAP_SERVERS names no broker"),
    .timeLimit(.minutes(2))
)
struct KafkaBrokerTests {
    private let configuration = KafkaConfiguration(bootstrapServers: brokers)

    /// Creates a topic of the test's own, whose name is also that of its group.
    private func makeTopic(_ partitions: Int, on loop: EventLoop) async throws -> String {
        let name = "kafka-test-\(UUID().uuidString.lowercased())"
        let created = try await KafkaAdmin.ensureTopics(
            [(name, partitions)],
            configuration,
            on: loop
        )
        try #require(created == [name])
        return name
    }

    private func run(
        _ topic: String,
        maximumBatch: Int = 500,
        on loop: EventLoop
    ) throws -> Running {
        try Running(brokers, group: topic, topics: [topic], maximumBatch: maximumBatch, on: loop)
    }

    @Test("Missing topics are created once, by the first process that comes")
    func ensureTopics() async throws {
        try await withLoop { loop in
            let names = (0..<3).map { _ in "kafka-test-\(UUID().uuidString.lowercased())" }
            let configuration = configuration
            let wanted = names.map { (name: $0, partitions: 5) }
            async let first = KafkaAdmin.ensureTopics(wanted, configuration, on: loop)
            async let second = KafkaAdmin.ensureTopics(wanted, configuration, on: loop)
            let created = try await first + second
            #expect(created.sorted() == names.sorted())
            #expect(try await KafkaAdmin.ensureTopics(wanted, configuration, on: loop) == [])
            let cluster = try await KafkaAdmin.describe(configuration, on: loop)
            #expect(!cluster.brokers.isEmpty)
            for name in names {
                #expect(cluster.topics.contains(KafkaCluster.Topic(name: name, partitions: 5)))
            }
        }
    }

    @Test(
        "A topic that cannot be created is an error with its name, and a missing broker is retryable"
    )
    func adminErrors() async throws {
        try await withLoop { loop in
            let configuration = configuration
            let invalid = await #expect(throws: KafkaError.self) {
                try await KafkaAdmin.ensureTopics([("a b", 1)], configuration, on: loop)
            }
            #expect(invalid?.isRetryable == false)
            #expect(invalid?.detail.contains("a b") == true)
            let absent = await #expect(throws: KafkaError.self) {
                try await KafkaAdmin.describe(
                    KafkaConfiguration(bootstrapServers: "127.0.0.1:1"),
                    timeout: .seconds(1),
                    on: loop
                )
            }
            #expect(absent?.isRetryable == true)
        }
    }

    @Test("Records arrive with their headers, in order for each key")
    func roundTrip() async throws {
        try await withLoop { loop in
            let topic = try await makeTopic(4, on: loop)
            var sent = numbered(0..<3000, topic: topic)
            for index in sent.indices {
                sent[index].headers = [KafkaHeader(name: "number", value: String(index))]
            }
            try await produce(sent, to: brokers, on: loop)
            let running = try run(topic, on: loop)
            let records = try await running.consume(3000)
            #expect(Set(records.map(\.number)) == Set(0..<3000))
            for record in records {
                #expect(record.headers == [KafkaHeader(name: "number", value: "\(record.number)")])
            }
            for key in 0..<7 {
                let own = records.filter { $0.keyText == "key-\(key)" }.map(\.number)
                #expect(own == own.sorted())
            }
            try await running.stop()
        }
    }

    @Test("librdkafka prefetches little, and reading does not wait for its next look")
    func smallReadAhead() async throws {
        try await withLoop { loop in
            let topic = try await makeTopic(1, on: loop)
            let padding = [UInt8](repeating: 32, count: 1000)
            var records = numbered(0..<20_000, topic: topic)
            for index in records.indices { records[index].value? += padding }
            try await produce(records, to: brokers, on: loop)
            // A fetch returns fewer than a thousand records, which is enough for librdkafka. Left
            // alone, it looks again a second later, twenty times.
            let running = try Running(
                brokers,
                group: topic,
                topics: [topic],
                properties: ["queued.min.messages": "200", "fetch.max.bytes": "1000000"],
                on: loop
            )
            _ = try await running.consume(1)
            let start = ContinuousClock.now
            _ = try await running.consume(19_000)
            #expect(.now - start < .seconds(9))
            try await running.stop()
        }
    }

    @Test("Offsets are committed only up to the first gap of unfinished records")
    func contiguous() async throws {
        try await withLoop { loop in
            let topic = try await makeTopic(1, on: loop)
            try await produce(numbered(0..<100, topic: topic), to: brokers, on: loop)
            let first = try run(topic, maximumBatch: 10, on: loop)
            for batch in try await first.take(100) where batch.records[0].number != 40 {
                await first.consumer.finished(batch)
            }
            await first.consumer.shortenDrain()
            try await first.stop()
            let second = try run(topic, on: loop)
            #expect(try await second.consume(60).map(\.number) == Array(40..<100))
            try await second.stop()
        }
    }

    @Test("The lag is the number of unfinished records")
    func lag() async throws {
        try await withLoop { loop in
            let topic = try await makeTopic(1, on: loop)
            try await produce(numbered(0..<100, topic: topic), to: brokers, on: loop)
            let metrics = Metrics()
            let running = try Running(
                brokers,
                group: topic,
                topics: [topic],
                maximumBatch: 10,
                on: loop,
                metrics: metrics
            )
            let batches = try await running.take(100)
            let gauge = metrics.gauge(.kafkaLag, ["group": topic, "topic": topic])
            // The group has no commit yet, which does not mean that nothing is left.
            try await eventually("a hundred are left") { gauge.value == 100 }
            for batch in batches.prefix(7) { await running.consumer.finished(batch) }
            try await eventually("thirty are left") { gauge.value == 30 }
            for batch in batches.dropFirst(7) { await running.consumer.finished(batch) }
            try await eventually("none is left") { gauge.value == 0 }
            try await running.stop()
        }
    }

    @Test("A group's position is its commit and the offset where the younger records begin")
    func position() async throws {
        try await withLoop { loop in
            let topic = try await makeTopic(2, on: loop)
            let configuration = configuration
            func positions(since moment: Int64) async throws -> [KafkaGroupPosition] {
                try await KafkaAdmin.positions(
                    of: topic,
                    in: [KafkaCluster.Topic(name: topic, partitions: 2)],
                    since: moment,
                    configuration,
                    timeout: .seconds(10),
                    on: loop
                )
            }
            func expected(_ committed: Int64?, recent: Int64) -> [KafkaGroupPosition] {
                let empty = KafkaGroupPosition(
                    kafkaTopic: topic,
                    partition: 0,
                    committed: nil,
                    start: 0,
                    recent: 0,
                    end: 0
                )
                var full = empty
                full.partition = 1
                full.committed = committed
                full.recent = recent
                full.end = 15
                return [empty, full]
            }
            let early = numbered(0..<10, topic: topic, partition: 1)
            try await produce(early, to: brokers, on: loop)
            // The two batches differ by a millisecond at least.
            try await loop.sleep(for: .milliseconds(2))
            let late = numbered(10..<15, topic: topic, partition: 1)
            try await produce(late, to: brokers, on: loop)
            #expect(try await positions(since: 0) == expected(nil, recent: 0))
            #expect(try await positions(since: .max) == expected(nil, recent: 15))

            let running = try run(topic, maximumBatch: 1, on: loop)
            let batches = try await running.take(15)
            let moment = batches[10].records[0].timestampMilliseconds
            #expect(try await positions(since: moment) == expected(nil, recent: 10))
            for batch in batches.prefix(10) { await running.consumer.finished(batch) }
            await running.consumer.shortenDrain()
            try await running.stop()
            #expect(try await positions(since: moment) == expected(10, recent: 10))
        }
    }

    @Test("The next member reads the records of a killed one without a loss")
    func crash() async throws {
        try await withLoop { loop in
            let topic = try await makeTopic(3, on: loop)
            try await produce(numbered(0..<3000, topic: topic), to: brokers, on: loop)
            var seen: Set<Int> = []
            for _ in 0..<2 {
                let running = try run(topic, maximumBatch: 50, on: loop)
                let batches = try await running.take(600)
                for batch in batches.dropLast(4) {
                    for record in batch.records { seen.insert(record.number) }
                    await running.consumer.finished(batch)
                }
                await running.consumer.crash()
                try await running.task.value
            }
            let last = try run(topic, on: loop)
            while seen.count < 3000 {
                let batch = try #require(try await last.consumer.next())
                for record in batch.records { seen.insert(record.number) }
                await last.consumer.finished(batch)
            }
            #expect(seen == Set(0..<3000))
            try await last.stop()
        }
    }

    @Test(
        "When a second member joins or leaves, the first finishes its batches before partitions move"
    )
    func joinAndLeave() async throws {
        try await withLoop { loop in
            let topic = try await makeTopic(4, on: loop)
            let ledger = Ledger()
            let first = try run(topic, maximumBatch: 20, on: loop)
            let reading = ledger.follow(first.consumer, on: loop)
            for round in 0..<3 {
                let start = round * 2000
                try await produce(
                    numbered(start..<start + 1000, topic: topic),
                    to: brokers,
                    on: loop
                )
                let second = try run(topic, maximumBatch: 20, on: loop)
                let alsoReading = ledger.follow(second.consumer, on: loop)
                try await eventually("the second member has partitions") {
                    await !second.consumer.tracker.partitions.isEmpty
                }
                try await produce(
                    numbered(start + 1000..<start + 2000, topic: topic),
                    to: brokers,
                    on: loop
                )
                try await eventually("everything so far is read") {
                    await ledger.distinct == start + 2000
                }
                #expect(try await second.stop() < .seconds(12))
                try await alsoReading.value
            }
            try await first.stop()
            try await reading.value
            #expect(await ledger.distinct == 6000)
            // Each batch was finished before its partition moved, so no member read it again.
            #expect(await ledger.repeats == 0)
        }
    }

    @Test("A revocation waits only a bounded time for a batch that is never finished")
    func revocationBound() async throws {
        try await withLoop { loop in
            let topic = try await makeTopic(2, on: loop)
            try await produce(numbered(0..<20, topic: topic), to: brokers, on: loop)
            let first = try run(topic, on: loop)
            let kept = try await first.take(20)
            let second = try run(topic, on: loop)
            // The second member has half of the records after the bound.
            let moved = try await second.consume(1)
            #expect(!moved.isEmpty)
            for batch in kept { await first.consumer.finished(batch) }
            try await second.stop()
            try await first.stop()
        }
    }
}
