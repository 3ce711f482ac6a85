import EventLoop
import Observability
import Testing

@testable import Kafka

/// A loop for the time of a test.
func withLoop<Value>(_ body: (EventLoop) async throws -> Value) async throws -> Value {
    let loop = try EventLoop(name: "kafka-test")
    do {
        let value = try await body(loop)
        await loop.stop()
        return value
    } catch {
        await loop.stop()
        throw error
    }
}

/// A cluster in this process, for the time of a test.
func withMockCluster<Value>(
    topic: String = "t",
    partitions: Int = 1,
    _ body: (MockKafkaCluster, EventLoop) async throws -> Value
) async throws -> Value {
    let cluster = try MockKafkaCluster()
    defer { cluster.close() }
    try cluster.createTopic(topic, partitions: partitions)
    return try await withLoop { try await body(cluster, $0) }
}

/// A consumer whose `run` is a task of its own.
struct Running {
    let consumer: KafkaConsumer
    let task: Task<Void, any Error>

    init(
        _ servers: String,
        group: String,
        topics: [String] = ["t"],
        assignment: PartitionAssignment = .cooperative,
        maximumBatch: Int = 500,
        maximumOutstanding: Int = 10_000,
        maximumOutstandingBytes: Int = 64 << 20,
        properties: [String: String] = [:],
        on loop: EventLoop,
        log: Log = .disabled,
        metrics: Metrics? = nil
    ) throws {
        let consumer = try KafkaConsumer(
            KafkaConfiguration(bootstrapServers: servers, properties: properties),
            group: group,
            topics: topics,
            assignment: assignment,
            maximumBatch: maximumBatch,
            maximumOutstanding: maximumOutstanding,
            maximumOutstandingBytes: maximumOutstandingBytes,
            on: loop,
            log: log,
            metrics: metrics
        )
        self.consumer = consumer
        task = Task(executorPreference: loop) { try await consumer.run() }
    }

    /// Batches until `count` records came, none of them finished.
    func take(_ count: Int) async throws -> [KafkaBatch] {
        var batches: [KafkaBatch] = []
        var taken = 0
        while taken < count {
            let batch = try #require(try await consumer.next())
            taken += batch.records.count
            batches.append(batch)
        }
        return batches
    }

    /// Reads and finishes until `count` records came.
    func consume(_ count: Int) async throws -> [KafkaRecord] {
        var records: [KafkaRecord] = []
        while records.count < count {
            let batch = try #require(try await consumer.next())
            records += batch.records
            await consumer.finished(batch)
        }
        return records
    }

    /// How long the stop took.
    @discardableResult
    func stop() async throws -> Duration {
        let start = ContinuousClock.now
        task.cancel()
        try await task.value
        return .now - start
    }
}

extension KafkaConsumer {
    /// The end that a killed process has: nothing more is stored, and nobody leaves the group.
    func crash() async {
        await withCheckedContinuation { continuation in
            state = .destroying
            ticker?.cancel()
            client.destroy(leavingGroup: false) { continuation.resume() }
        }
        state = .ended
        ended?.resume()
        ended = nil
    }
}

/// Records with increasing numbers as values, and their number modulo `keys` as key.
func numbered(
    _ numbers: some Sequence<Int>,
    topic: String = "t",
    keys: Int = 7,
    partition: Int32? = nil
) -> [KafkaOutgoing] {
    numbers.map {
        KafkaOutgoing(
            topic: topic,
            key: Array("key-\($0 % keys)".utf8),
            value: Array(String($0).utf8),
            partition: partition
        )
    }
}

/// Writes records, all of which must be taken.
func produce(_ records: [KafkaOutgoing], to servers: String, on loop: EventLoop) async throws {
    let producer = try KafkaProducer(KafkaConfiguration(bootstrapServers: servers), on: loop)
    let errors = try await producer.send(records)
    #expect(errors.count == records.count)
    #expect(errors.allSatisfy { $0 == nil })
    await producer.close()
}

extension KafkaRecord {
    var number: Int { Int(String(decoding: value ?? [], as: UTF8.self)) ?? -1 }
    var keyText: String { String(decoding: key ?? [], as: UTF8.self) }
}

/// Waits for a condition that nothing announces, looking every 20 ms.
func eventually(
    within limit: Duration = .seconds(60),
    _ comment: Comment,
    _ condition: () async -> Bool
) async throws {
    let end = ContinuousClock.now + limit
    while await !condition() {
        guard ContinuousClock.now < end else {
            Issue.record(comment)
            return
        }
        try await Task.sleep(for: .milliseconds(20))
    }
}

/// What several consumers read, and how often.
actor Ledger {
    private var counts: [Int: Int] = [:]

    var distinct: Int { counts.count }
    var repeats: Int { counts.values.reduce(0) { $0 + $1 - 1 } }

    func add(_ numbers: [Int]) {
        for number in numbers { counts[number, default: 0] += 1 }
    }

    /// Reads until the consumer stops, finishing each batch a little later.
    nonisolated func follow(
        _ consumer: KafkaConsumer,
        on loop: EventLoop
    ) -> Task<Void, any Error> {
        Task(executorPreference: loop) {
            while let batch = try await consumer.next() {
                try await loop.sleep(for: .milliseconds(5))
                await self.add(batch.records.map(\.number))
                await consumer.finished(batch)
            }
        }
    }
}
