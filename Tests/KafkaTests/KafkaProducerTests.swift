import EventLoop
import Observability
import Testing

@testable import Kafka

@Suite("Producer", .timeLimit(.minutes(2)))
struct KafkaProducerTests {
    @Test("Keys, values, tombstones and headers arrive unchanged")
    func roundTrip() async throws {
        try await withMockCluster { cluster, loop in
            let sent = [
                KafkaOutgoing(
                    topic: "t",
                    key: Array("k".utf8),
                    value: Array("v".utf8),
                    headers: [
                        KafkaHeader(name: "ce_id", value: "1"),
                        KafkaHeader(name: "twice", value: "a"),
                        KafkaHeader(name: "twice", value: "b"),
                        KafkaHeader(name: "binary", value: [0, 255, 10]),
                    ]
                ),
                KafkaOutgoing(topic: "t", key: nil, value: Array("no key".utf8)),
                KafkaOutgoing(topic: "t", key: [], value: []),
                KafkaOutgoing(topic: "t", key: Array("tombstone".utf8), value: nil),
            ]
            try await produce(sent, to: cluster.bootstrapServers, on: loop)
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let got = try await running.consume(sent.count)
            #expect(got.map(\.value) == sent.map(\.value))
            #expect(got.map(\.headers) == sent.map(\.headers))
            #expect(got.map(\.offset) == [0, 1, 2, 3])
            #expect(got[0].key == sent[0].key)
            #expect(got[3].key == sent[3].key)
            #expect(got.allSatisfy { $0.timestampMilliseconds > 1_500_000_000_000 })
            try await running.stop()
        }
    }

    @Test("Records beyond the bound wait in order, and all are acknowledged")
    func backPressure() async throws {
        try await withMockCluster { cluster, loop in
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                maximumOutstanding: 16,
                on: loop
            )
            let sends = (0..<5).map { part in
                Task(executorPreference: loop) {
                    try await producer.send(numbered(part * 100..<part * 100 + 100))
                }
            }
            for send in sends {
                let errors = try await send.value
                #expect(errors.count == 100)
                #expect(errors.allSatisfy { $0 == nil })
            }
            await producer.close()
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let numbers = try await running.consume(500).map(\.number)
            for part in 0..<5 {
                let own = numbers.filter { $0 / 100 == part }
                #expect(own == Array(part * 100..<part * 100 + 100))
            }
            try await running.stop()
        }
    }

    @Test("Records of a block keep their order beyond the bound, and rejected ones fail by index")
    func block() async throws {
        try await withMockCluster { cluster, loop in
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                maximumOutstanding: 16,
                on: loop
            )
            var block = KafkaRecordBlock(topic: "t")
            for number in 0..<100 {
                block.append(key: "key \(number)") { bytes in
                    bytes.append(
                        contentsOf: [70, 71].contains(number)
                            ? [UInt8](repeating: 1, count: 5_000_000) : Array("\(number)".utf8)
                    )
                }
            }
            let errors = try await producer.send(block)
            #expect(errors.keys.sorted() == [70, 71])
            #expect(errors.values.allSatisfy { $0.name == "MSG_SIZE_TOO_LARGE" })
            #expect(try await producer.send(block.only([3, 1])) == [:])
            #expect(try await producer.send(block.only([])) == [:])
            await producer.close()
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let got = try await running.consume(100)
            let sent = (0..<100).filter { ![70, 71].contains($0) } + [3, 1]
            #expect(got.map(\.key) == sent.map { Array("key \($0)".utf8) })
            #expect(got.map(\.value) == sent.map { Array("\($0)".utf8) })
            try await running.stop()
        }
    }

    @Test("A record that cannot be sent fails alone, by its index")
    func perRecord() async throws {
        try await withMockCluster { cluster, loop in
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                on: loop
            )
            var records = numbered(0..<3)
            records[1].value = [UInt8](repeating: 1, count: 5_000_000)
            let errors = try await producer.send(records)
            #expect(errors[0] == nil)
            #expect(errors[1]?.name == "MSG_SIZE_TOO_LARGE")
            #expect(errors[1]?.isRetryable == false)
            #expect(errors[2] == nil)
            await producer.close()
        }
    }

    @Test(
        "Without a broker, records fail in time with a retryable error, and the close does not wait"
    )
    func absentBroker() async throws {
        try await withLoop { loop in
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: "127.0.0.1:1"),
                deliveryTimeout: .seconds(1),
                on: loop
            )
            let errors = try await producer.send(numbered(0..<10))
            #expect(errors.count == 10)
            #expect(errors.allSatisfy { $0?.name == "_MSG_TIMED_OUT" && $0?.isRetryable == true })
            #expect(producer.notReadyReason()?.contains("_TRANSPORT") == true)
            let start = ContinuousClock.now
            await producer.close()
            // The ten seconds that a close grants to records in flight are far more.
            #expect(.now - start < .seconds(8))
        }
    }

    @Test(
        "Without a broker, a close within a bound fails every waiting send with a retryable error"
    )
    func closeWithUnsent() async throws {
        try await withLoop { loop in
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: "127.0.0.1:1"),
                maximumOutstanding: 4,
                on: loop
            )
            let sending = Task(executorPreference: loop) {
                try await producer.send(numbered(0..<10))
            }
            try await eventually("the records are with librdkafka") {
                await producer.outstandingRecords == 4
            }
            let start = ContinuousClock.now
            await producer.close(within: .milliseconds(200))
            #expect(.now - start < .seconds(3))
            let errors = try await sending.value
            #expect(errors.allSatisfy { $0?.isRetryable == true })
            await #expect(throws: KafkaError.closed) { try await producer.send(numbered(0..<1)) }
        }
    }

    @Test("An acknowledged record stays acknowledged when the rest of its send is abandoned")
    func partlyAnswered() async throws {
        try await withLoop { loop in
            let metrics = Metrics()
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: "127.0.0.1:1"),
                on: loop,
                metrics: metrics
            )
            let sending = Task(executorPreference: loop) {
                try await producer.send(numbered(0..<3))
            }
            try await eventually("the records are with librdkafka") {
                await producer.outstandingRecords == 3
            }
            let closing = Task(executorPreference: loop) { await producer.close() }
            try await eventually("closing") { producer.notReadyReason() == "producer is closing" }
            // This is as if the broker had acknowledged the second, and librdkafka never reported
            // the others.
            await producer.acknowledge(1)
            await producer.answerAllUnanswered()
            #expect(try await sending.value == [.timedOut, nil, .timedOut])
            #expect(metrics.counter(.kafkaProduced, ["outcome": "failed"]).value == 2)
            await closing.value
        }
    }

    @Test("Cancelling run closes the producer after the records in flight are acknowledged")
    func runAndCancel() async throws {
        try await withMockCluster { cluster, loop in
            try cluster.setBroker(isUp: false)
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                on: loop
            )
            let running = Task(executorPreference: loop) { try await producer.run() }
            let sending = Task(executorPreference: loop) {
                try await producer.send(numbered(0..<2000))
            }
            try await eventually("the records are with librdkafka") {
                await producer.outstandingRecords == 2000
            }
            running.cancel()
            try cluster.setBroker(isUp: true)
            try await running.value
            #expect(try await sending.value.allSatisfy { $0 == nil })
        }
    }

    @Test("A cluster that denies writing ends the run and the sends with its reason")
    func fatalError() async throws {
        try await withMockCluster { cluster, loop in
            cluster.refuse(.initProducerID, with: .clusterAuthorizationFailed)
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                on: loop
            )
            let running = Task(executorPreference: loop) { try await producer.run() }
            let error = await #expect(throws: KafkaError.self) { try await running.value }
            #expect(error?.isFatal == true)
            #expect(error?.name == "CLUSTER_AUTHORIZATION_FAILED")
            await #expect(throws: KafkaError.self) { try await producer.send(numbered(0..<1)) }
        }
    }

    @Test("An unused producer closes at once")
    func unused() async throws {
        try await withLoop { loop in
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: "127.0.0.1:1"),
                on: loop
            )
            let start = ContinuousClock.now
            await producer.close()
            // The ten seconds that a close grants to records in flight are far more.
            #expect(.now - start < .seconds(8))
        }
    }
}
