import EventLoop
import Observability
import Testing

@testable import Kafka

/// Runs `body` with a loop of its own.
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

/// Runs `body` with a mock cluster in this process.
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

/// A consumer with the task of its `run`.
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

    /// Takes batches until `count` records have come, and finishes none.
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

    /// Reads and finishes batches until `count` records have come.
    func consume(_ count: Int) async throws -> [KafkaRecord] {
        var records: [KafkaRecord] = []
        while records.count < count {
            let batch = try #require(try await consumer.next())
            records += batch.records
            await consumer.finished(batch)
        }
        return records
    }

    /// Stops the consumer and returns how long that took.
    @discardableResult
    func stop() async throws -> Duration {
        let start = ContinuousClock.now
        task.cancel()
        try await task.value
        return .now - start
    }
}

extension KafkaConsumer {
    /// Ends like a killed process: stores nothing more and does not leave the group.
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

/// Makes records with increasing numbers as values, and the number modulo `keys` as key.
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

/// Writes records and expects all of them to be acknowledged.
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

/// Waits for a condition that no event announces, by polling every 20 ms.
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

/// Counts which records several consumers have read, and how often.
actor Ledger {
    private var counts: [Int: Int] = [:]

    var distinct: Int { counts.count }
    var repeats: Int { counts.values.reduce(0) { $0 + $1 - 1 } }

    func add(_ numbers: [Int]) {
        for number in numbers { counts[number, default: 0] += 1 }
    }

    /// Reads until the consumer stops, and finishes each batch a little later.
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
