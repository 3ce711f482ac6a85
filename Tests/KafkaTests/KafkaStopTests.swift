import EventLoop
import Foundation
import Observability
import Testing

@testable import Kafka

private let brokers = ProcessInfo.processInfo.environment["KAFKA_BOOTSTRAP_SERVERS"] ?? ""

/// The stop of a member that has a million unread records. The suite is separate, as tests beside
/// it would distort the times that it measures.
@Suite(
    "Stops on a real broker",
    .enabled(if: !brokers.isEmpty, "KAFKA_BOOTSTRAP_SERVERS names no broker"),
    .timeLimit(.minutes(3))
)
struct KafkaStopTests {
    private static let records = 1_000_000
    private static let stops = 20

    @Test("20 stops within 1,000,000 records, with joins and leaves, end soon and lose no record")
    func stopsInMidConsumption() async throws {
        try await withLoop { loop in
            let topic = "kafka-test-\(UUID().uuidString.lowercased())"
            _ = try await KafkaAdmin.ensureTopics(
                [(topic, 12)],
                KafkaConfiguration(bootstrapServers: brokers),
                on: loop
            )
            let start = ContinuousClock.now
            try await write(to: topic, on: loop)
            let written = ContinuousClock.now
            let ledger = MemberLedger(records: Self.records)
            var last = try Member(topic, ledger, on: loop)
            var durations: [Duration] = []
            for round in 0..<Self.stops {
                try await last.hasRead(2000)
                let next: Member
                let duration: Duration
                switch round % 3 {
                case 0:
                    // The only member leaves, and then another joins.
                    duration = try await last.stop()
                    next = try Member(topic, ledger, on: loop)
                case 1:
                    // A second member has its partitions when the first leaves.
                    next = try Member(topic, ledger, on: loop)
                    try await next.hasRead(500)
                    duration = try await last.stop()
                default:
                    // The first leaves while the second joins.
                    next = try Member(topic, ledger, on: loop)
                    duration = try await last.stop()
                }
                #expect(duration < .seconds(3), "stop \(round) took \(duration)")
                durations.append(duration)
                last = next
            }
            let unread = await Self.records - ledger.distinct
            #expect(unread > 0, "the last stops had nothing unread before them")
            let stopped = ContinuousClock.now
            try await last.stop()
            let rest = try Member(topic, ledger, maximumBatch: 5000, pace: nil, on: loop)
            try await eventually("everything is read") { await ledger.distinct == Self.records }
            try await rest.stop()
            #expect(await ledger.distinct == Self.records)
            // Finished records are committed before their partition moves, so no member reads them
            // again, unless the group took a partition without a revocation.
            let (repeats, lost) = (await ledger.repeats, await ledger.lost)
            #expect(repeats == 0 || lost > 0)
            let sorted = durations.sorted()
            print(
                """
                \(Self.stops) stops: \(milliseconds(sorted[0])) to \
                \(milliseconds(sorted[sorted.count - 1])) ms, median \
                \(milliseconds(sorted[sorted.count / 2])) ms; \(unread) of \(Self.records) unread \
                before the last; \(repeats) read twice, \(lost) partitions lost; \
                \(milliseconds(written - start)) ms to write, \
                \(milliseconds(stopped - written)) to stop, \(milliseconds(.now - stopped)) to \
                read the rest
                """
            )
        }
    }

    private func write(to topic: String, on loop: EventLoop) async throws {
        let producer = try KafkaProducer(KafkaConfiguration(bootstrapServers: brokers), on: loop)
        let part = 20_000
        for start in stride(from: 0, to: Self.records, by: part) {
            let errors = try await producer.send(
                (start..<start + part).map {
                    KafkaOutgoing(topic: topic, key: nil, value: Array(String($0).utf8))
                }
            )
            try #require(errors.allSatisfy { $0 == nil })
        }
        await producer.close()
    }
}

private func milliseconds(_ duration: Duration) -> Int { Int(duration / .milliseconds(1)) }

/// A consumer with two outstanding batches at any time.
private struct Member {
    private let running: Running
    private let readers: [Task<Void, any Error>]
    private let count: Count

    /// The records that this member has read.
    actor Count {
        private(set) var value = 0
        func add(_ number: Int) { value += number }
    }

    init(
        _ topic: String,
        _ ledger: MemberLedger,
        maximumBatch: Int = 50,
        pace: Duration? = .milliseconds(10),
        on loop: EventLoop
    ) throws {
        let running = try Running(
            brokers,
            group: topic,
            topics: [topic],
            maximumBatch: maximumBatch,
            on: loop,
            log: ledger.log
        )
        let count = Count()
        self.running = running
        self.count = count
        readers = (0..<2).map { _ in
            Task(executorPreference: loop) {
                while let batch = try await running.consumer.next() {
                    if let pace { try await loop.sleep(for: pace) }
                    await ledger.add(batch.records.map(\.number))
                    await count.add(batch.records.count)
                    await running.consumer.finished(batch)
                }
            }
        }
    }

    func hasRead(_ records: Int) async throws {
        try await eventually("a member reads") { await count.value >= records }
    }

    @discardableResult
    func stop() async throws -> Duration {
        let duration = try await running.stop()
        for reader in readers { try await reader.value }
        return duration
    }
}

/// The records that all members have read, and how often.
private actor MemberLedger {
    private var counts: [UInt8]
    private(set) var distinct = 0
    private(set) var repeats = 0
    private let lines = LostLines()

    init(records: Int) { counts = Array(repeating: 0, count: records) }

    /// Revocations that the group did not wait for.
    var lost: Int { lines.count }
    nonisolated var log: Log { lines.log }

    func add(_ numbers: [Int]) {
        for number in numbers {
            if counts[number] == 0 { distinct += 1 } else { repeats += 1 }
            counts[number] = 1
        }
    }
}

/// Counts the log lines about lost partitions.
private final class LostLines: Sendable {
    private let lock = Lock()
    private nonisolated(unsafe) var found = 0

    var count: Int { lock.withLock { unsafe found } }

    var log: Log {
        Log(service: "test", level: .debug, format: .text) { [self] line in
            let text = String(decoding: line, as: UTF8.self)
            guard text.contains("partitions revoked"), text.contains("lost") else { return }
            lock.withLock { unsafe found += 1 }
        }
    }
}
