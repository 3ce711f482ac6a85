import EventLoop
import Observability
import Testing

@testable import Kafka

@Suite("Consumer", .timeLimit(.minutes(2)))
struct KafkaConsumerTests {
    @Test("Records of one key arrive in the order in which they were written")
    func orderPerKey() async throws {
        try await withMockCluster(partitions: 4) { cluster, loop in
            try await produce(numbered(0..<2000), to: cluster.bootstrapServers, on: loop)
            let metrics = Metrics()
            let running = try Running(
                cluster.bootstrapServers,
                group: "g",
                maximumBatch: 100,
                on: loop,
                metrics: metrics
            )
            let records = try await running.consume(2000)
            #expect(Set(records.map(\.number)) == Set(0..<2000))
            #expect(records.count == 2000)
            for key in 0..<7 {
                let own = records.filter { $0.keyText == "key-\(key)" }.map(\.number)
                #expect(own == own.sorted())
                #expect(!own.isEmpty)
            }
            #expect(running.consumer.notReadyReason() == nil)
            #expect(metrics.counter(.kafkaConsumed, ["topic": "t"]).value == 2000)
            try await running.stop()
            #expect(running.consumer.notReadyReason() != nil)
        }
    }

    @Test("Offsets are committed only up to the first gap of unfinished records")
    func contiguous() async throws {
        try await withMockCluster { cluster, loop in
            try await produce(numbered(0..<100), to: cluster.bootstrapServers, on: loop)
            let first = try Running(
                cluster.bootstrapServers,
                group: "g",
                maximumBatch: 10,
                on: loop
            )
            let batches = try await first.take(100)
            // 20...29 stays unfinished, whatever is finished above it.
            for batch in batches where batch.records[0].number != 20 {
                await first.consumer.finished(batch)
            }
            await first.consumer.shortenDrain()
            try await first.stop()
            let second = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let again = try await second.consume(80)
            #expect(again.map(\.number) == Array(20..<100))
            try await second.stop()
        }
    }

    @Test("Too many outstanding records pause the reading, without a gap or a repeat")
    func holdBack() async throws {
        try await withMockCluster(partitions: 3) { cluster, loop in
            try await produce(numbered(0..<6000), to: cluster.bootstrapServers, on: loop)
            let running = try Running(
                cluster.bootstrapServers,
                group: "g",
                maximumBatch: 50,
                maximumOutstanding: 300,
                on: loop
            )
            var seen: [Int: [Int64]] = [:]
            var count = 0
            var pauses = 0
            while count < 6000 {
                var held = [try #require(try await running.consumer.next())]
                // Twice the reader is so slow that the partitions are paused.
                if pauses < 2, count >= pauses * 2000 {
                    while await !running.consumer.holdBack.isHeldBack {
                        let more = Task(executorPreference: loop) {
                            try await running.consumer.next()
                        }
                        try await eventually("more came, or reading is held back") {
                            let isHeldBack = await running.consumer.holdBack.isHeldBack
                            let isWaiting = await running.consumer.hasWaiters
                            return isHeldBack || !isWaiting
                        }
                        more.cancel()
                        if let batch = try await more.value { held.append(batch) }
                    }
                    pauses += 1
                }
                for batch in held {
                    for record in batch.records {
                        seen[Int(record.partition), default: []].append(record.offset)
                    }
                    count += batch.records.count
                    await running.consumer.finished(batch)
                }
            }
            #expect(pauses == 2)
            for offsets in seen.values {
                #expect(offsets == Array(0..<Int64(offsets.count)))
            }
            #expect(seen.values.map(\.count).reduce(0, +) == 6000)
            try await running.stop()
        }
    }

    @Test("When a paused partition is revoked, the others resume")
    func revokedWhileHeldBack() async throws {
        try await withMockCluster(partitions: 2) { cluster, loop in
            let servers = cluster.bootstrapServers
            for partition in 0..<2 as Range<Int32> {
                try await produce(numbered(0..<1, partition: partition), to: servers, on: loop)
            }
            let running = try Running(
                servers,
                group: "g",
                maximumBatch: 10,
                maximumOutstanding: 50,
                on: loop
            )
            let consumer = running.consumer
            // From here both partitions are read, so that both are paused.
            #expect(try await running.consume(2).count == 2)
            try await produce(numbered(0..<100, partition: 0), to: servers, on: loop)
            try await eventually("held back, and nobody has a batch in hand") {
                await consumer.holdBack.isHeldBack
            }
            await consumer.answer(.revoke([TopicPartition(topic: "t", partition: 0)]))
            try await produce(numbered(7..<8, partition: 1), to: servers, on: loop)
            let records = try await running.consume(1)
            #expect(records.map(\.partition) == [1])
            #expect(records.map(\.number) == [7])
            #expect(await !consumer.holdBack.isHeldBack)
            try await running.stop()
        }
    }

    @Test("A few large records pause the reading as many small ones do")
    func boundedBytes() async throws {
        try await withMockCluster { cluster, loop in
            var sent = numbered(0..<40)
            let padding = [UInt8](repeating: 32, count: 100_000)
            for index in sent.indices { sent[index].value? += padding }
            try await produce(sent, to: cluster.bootstrapServers, on: loop)
            let running = try Running(
                cluster.bootstrapServers,
                group: "g",
                maximumBatch: 4,
                maximumOutstandingBytes: 1_000_000,
                on: loop
            )
            let consumer = running.consumer
            try await eventually("held back") { await consumer.holdBack.isHeldBack }
            #expect(await consumer.ready.bytes < 1_100_100)
            let got = try await running.consume(40)
            #expect(got.map(\.value) == sent.map(\.value))
            #expect(await consumer.tracker.outstandingBytes == 0)
            try await running.stop()
        }
    }

    @Test("librdkafka is asked to look again when a few large records fill its prefetch queue")
    func promptsByBytes() async throws {
        try await withMockCluster { cluster, loop in
            var sent = numbered(0..<24)
            let padding = [UInt8](repeating: 32, count: 16_000)
            for index in sent.indices { sent[index].value? += padding }
            try await produce(sent, to: cluster.bootstrapServers, on: loop)
            let running = try Running(
                cluster.bootstrapServers,
                group: "g",
                properties: ["queued.max.messages.kbytes": "64"],
                on: loop
            )
            #expect(try await running.consume(24).count == 24)
            #expect(await running.consumer.fetchPrompts > 0)
            try await running.stop()
        }
    }

    /// `KafkaStopTests` does this twenty times against a real broker. A group of the mock cluster
    /// takes 4 s to form.
    @Test("Each stop while consuming returns soon and loses nothing")
    func stopsInMidConsumption() async throws {
        try await withMockCluster(partitions: 4) { cluster, loop in
            try await produce(numbered(0..<20_000), to: cluster.bootstrapServers, on: loop)
            var seen: Set<Int> = []
            for round in 0..<4 {
                let running = try Running(
                    cluster.bootstrapServers,
                    group: "g",
                    maximumBatch: 100,
                    on: loop
                )
                for record in try await running.consume(200 + round) { seen.insert(record.number) }
                let duration = try await running.stop()
                #expect(duration < .seconds(3), "round \(round) took \(duration)")
                #expect(try await running.consumer.next() == nil)
            }
            let last = try Running(cluster.bootstrapServers, group: "g", on: loop)
            while seen.count < 20_000 {
                let batch = try #require(try await last.consumer.next())
                for record in batch.records { seen.insert(record.number) }
                await last.consumer.finished(batch)
            }
            try await last.stop()
        }
    }

    @Test("A stop waits for outstanding batches and commits them")
    func stopDrains() async throws {
        try await withMockCluster { cluster, loop in
            try await produce(numbered(0..<50), to: cluster.bootstrapServers, on: loop)
            let first = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let batches = try await first.take(50)
            first.task.cancel()
            #expect(try await first.consumer.next() == nil)
            for batch in batches { await first.consumer.finished(batch) }
            try await first.task.value
            try await produce(numbered(50..<51), to: cluster.bootstrapServers, on: loop)
            let second = try Running(cluster.bootstrapServers, group: "g", on: loop)
            #expect(try await second.consume(1).map(\.number) == [50])
            try await second.stop()
        }
    }

    @Test("A stop does not wait for batches that are given up, and the next member reads them")
    func stopLeaves() async throws {
        try await withMockCluster(partitions: 2) { cluster, loop in
            try await produce(numbered(0..<50), to: cluster.bootstrapServers, on: loop)
            let first = try Running(
                cluster.bootstrapServers,
                group: "g",
                maximumBatch: 10,
                on: loop
            )
            let batches = try await first.take(50)
            for batch in batches.dropLast() { await first.consumer.leave(batch) }
            first.task.cancel()
            #expect(try await first.consumer.next() == nil)
            let start = ContinuousClock.now
            for batch in batches.suffix(1) { await first.consumer.leave(batch) }
            try await first.task.value
            #expect(.now - start < .seconds(5))
            let second = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let read = try await second.consume(50).map(\.number)
            #expect(read.sorted() == Array(0..<50))
            try await second.stop()
        }
    }

    @Test("A batch that is finished after the stop changes nothing")
    func lateFinish() async throws {
        try await withMockCluster { cluster, loop in
            try await produce(numbered(0..<10), to: cluster.bootstrapServers, on: loop)
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let batches = try await running.take(10)
            await running.consumer.shortenDrain()
            try await running.stop()
            for batch in batches { await running.consumer.finished(batch) }
            let next = try Running(cluster.bootstrapServers, group: "g", on: loop)
            #expect(try await next.consume(10).map(\.number) == Array(0..<10))
            try await next.stop()
        }
    }

    @Test("Reader and writer survive the restart of a broker")
    func brokerReturns() async throws {
        try await withMockCluster { cluster, loop in
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                on: loop
            )
            _ = try await producer.send(numbered(0..<10))
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            #expect(try await running.consume(10).count == 10)
            try cluster.setBroker(isUp: false)
            try await eventually("both say so") {
                running.consumer.notReadyReason() != nil && producer.notReadyReason() != nil
            }
            let sending = Task(executorPreference: loop) {
                try await producer.send(numbered(10..<20))
            }
            try cluster.setBroker(isUp: true)
            #expect(try await sending.value.allSatisfy { $0 == nil })
            // The broker may have stopped before it received the first ten: those are sent once
            // more then.
            var fresh: [Int] = []
            while fresh.count < 10 {
                for number in try await running.consume(1).map(\.number)
                where number >= 10 && !fresh.contains(number) { fresh.append(number) }
            }
            #expect(fresh == Array(10..<20))
            try await eventually("both are ready again") {
                running.consumer.notReadyReason() == nil && producer.notReadyReason() == nil
            }
            await producer.close()
            try await running.stop()
        }
    }

    @Test("A stop ends in bounded time after the broker has vanished for good")
    func stopAfterBrokerLeft() async throws {
        try await withMockCluster { cluster, loop in
            try await produce(numbered(0..<10), to: cluster.bootstrapServers, on: loop)
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            _ = try await running.consume(10)
            try cluster.setBroker(isUp: false)
            try await eventually("the consumer has noticed") {
                running.consumer.notReadyReason() != nil
            }
            let duration = try await running.stop()
            #expect(duration < .seconds(16))
        }
    }

    @Test("A stop right after the start, before the group is joined, does not hang or abort")
    func stopAtOnce() async throws {
        try await withMockCluster { cluster, loop in
            for _ in 0..<2 {
                let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
                #expect(try await running.stop() < .seconds(12))
            }
        }
    }

    @Test("A broker missing at the start is reported, and records are read once it appears")
    func brokerAppears() async throws {
        try await withMockCluster { cluster, loop in
            try await produce(numbered(0..<10), to: cluster.bootstrapServers, on: loop)
            try cluster.setBroker(isUp: false)
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            try await eventually("the reason names the broker") {
                running.consumer.notReadyReason()?.contains("broker") == true
            }
            try cluster.setBroker(isUp: true)
            #expect(try await running.consume(10).map(\.number) == Array(0..<10))
            try await eventually("ready") { running.consumer.notReadyReason() == nil }
            try await running.stop()
        }
    }

    @Test("A stop without any broker ends soon")
    func stopWithoutBroker() async throws {
        try await withLoop { loop in
            let running = try Running("127.0.0.1:1", group: "g", on: loop)
            try await eventually("the reason names the broker") {
                running.consumer.notReadyReason()?.contains("broker") == true
            }
            #expect(try await running.stop() < .seconds(4))
        }
    }

    @Test("A cancelled next returns nothing and takes no record")
    func cancelledNext() async throws {
        try await withMockCluster { cluster, loop in
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let consumer = running.consumer
            let waiting = Task(executorPreference: loop) { try await consumer.next() }
            try await eventually("somebody waits") { await consumer.hasWaiters }
            waiting.cancel()
            #expect(try await waiting.value == nil)
            try await produce(numbered(0..<1), to: cluster.bootstrapServers, on: loop)
            #expect(try await running.consume(1).map(\.number) == [0])
            try await running.stop()
        }
    }

    @Test("An error from which the client cannot recover ends the run and every waiting call")
    func fatalError() async throws {
        try await withMockCluster { cluster, loop in
            let running = try Running(cluster.bootstrapServers, group: "g", on: loop)
            let consumer = running.consumer
            let waiting = Task(executorPreference: loop) { try await consumer.next() }
            try await eventually("joined") { consumer.notReadyReason() == nil }
            cluster.refuse(.heartbeat, with: .fencedInstanceID)
            let error = await #expect(throws: KafkaError.self) { try await running.task.value }
            #expect(error?.isFatal == true)
            #expect(error?.name == "FENCED_INSTANCE_ID")
            await #expect(throws: KafkaError.self) { try await waiting.value }
            await #expect(throws: KafkaError.self) { try await consumer.next() }
        }
    }

    @Test("Lag, queues and errors are among the metrics")
    func exposition() async throws {
        try await withMockCluster { cluster, loop in
            let metrics = Metrics()
            let producer = try KafkaProducer(
                KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                on: loop,
                metrics: metrics
            )
            _ = try await producer.send(numbered(0..<50))
            let running = try Running(
                cluster.bootstrapServers,
                group: "g",
                maximumBatch: 10,
                on: loop,
                metrics: metrics
            )
            let batch = try #require(try await running.consumer.next())
            await running.consumer.finished(batch)
            let lines = [
                #"kafka_consumer_lag_records{group="g",topic="t"} \#(50 - batch.records.count)"#,
                #"kafka_consumer_queue_records{group="g"} \#(50 - batch.records.count)"#,
                #"kafka_consumed_records_total{topic="t"} \#(batch.records.count)"#,
                #"kafka_produced_records_total{outcome="acknowledged"} 50"#,
                #"kafka_producer_queue_records 0"#,
            ]
            for line in lines {
                try await eventually("\(line) in \(metrics.exposition())") {
                    metrics.exposition().split(separator: "\n").contains { $0 == line }
                }
            }
            try cluster.setBroker(isUp: false)
            try await eventually("an error is counted") {
                metrics.exposition().contains(#"kafka_errors_total{error="_ALL_BROKERS_DOWN"}"#)
            }
            try cluster.setBroker(isUp: true)
            await producer.close()
            try await running.stop()
        }
    }

    @Test("A consumer that never runs is released")
    func neverRun() async throws {
        try await withMockCluster { cluster, loop in
            for _ in 0..<3 {
                _ = try KafkaConsumer(
                    KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
                    group: "g",
                    topics: ["t"],
                    on: loop
                )
            }
            try await produce(numbered(0..<1), to: cluster.bootstrapServers, on: loop)
        }
    }
}

extension KafkaConsumer {
    /// For tests that leave batches unfinished on purpose.
    func shortenDrain() { stop = ConsumerStop(drainLimit: .milliseconds(100)) }
}
