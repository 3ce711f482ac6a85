import EventLoop
import Foundation
import Observability
import Testing

@testable import Kafka

private let brokers = ProcessInfo.processInfo.environment["KAFKA_BOOTSTRAP_SERVERS"] ?? ""

/// How the members of a group share its partitions as members join and leave.
@Suite(
    "Shares of a consumer group",
    .enabled(if: !brokers.isEmpty, "KAFKA_BOOTSTRAP_SERVERS names no broker"),
    .timeLimit(.minutes(3))
)
struct KafkaSharesTests {
    private let configuration = KafkaConfiguration(bootstrapServers: brokers)

    /// Makes topics of twelve partitions each, whose names begin alike.
    private func makeTopics(_ names: [String], on loop: EventLoop) async throws -> String {
        let prefix = "kafka-shares-\(UUID().uuidString.lowercased())."
        _ = try await KafkaAdmin.ensureTopics(
            names.map { (name: prefix + $0, partitions: 12) },
            configuration,
            on: loop
        )
        return prefix
    }

    /// Waits until the members together have all partitions, each topic's as even as possible.
    private func even(
        _ members: [Running],
        of topics: [String],
        _ comment: Comment
    ) async throws {
        try await eventually(within: .seconds(40), comment) {
            var shares: [String: [Int]] = [:]
            for member in members {
                let own = await member.consumer.tracker.partitions
                for topic in topics {
                    shares[topic, default: []].append(own.count { $0.topic == topic })
                }
            }
            return topics.allSatisfy { topic in
                let counts = shares[topic] ?? []
                return counts.reduce(0, +) == 12 && (counts.max() ?? 0) - (counts.min() ?? 0) <= 1
            }
        }
    }

    /// Starts up to four members one after the other; then one leaves, one joins, the first leaves,
    /// and two are left.
    private func change(
        topics: [String],
        as pattern: String,
        _ assignment: PartitionAssignment,
        group: String,
        on loop: EventLoop
    ) async throws {
        func join() throws -> Running {
            try Running(
                brokers,
                group: group,
                topics: [pattern],
                assignment: assignment,
                properties: ["topic.metadata.refresh.interval.ms": "3000"],
                on: loop
            )
        }
        var members: [Running] = []
        for count in 1...4 {
            members.append(try join())
            try await even(members, of: topics, "\(count) members share every topic")
        }
        try await members.remove(at: 1).stop()
        try await even(members, of: topics, "three share what the fourth has left")
        members.append(try join())
        try await even(members, of: topics, "another has joined")
        for _ in 0..<2 {
            try await members.removeFirst().stop()
            try await even(members, of: topics, "the oldest has left")
        }
        for member in members { try await member.stop() }
    }

    @Test("Each member gets its share of one topic, in whatever order members start and leave")
    func oneTopic() async throws {
        try await withLoop { loop in
            let prefix = try await makeTopics(["requests"], on: loop)
            try await change(
                topics: [prefix + "requests"],
                as: prefix + "requests",
                .cooperative,
                group: prefix,
                on: loop
            )
        }
    }

    @Test("Each member gets its share of every topic, in whatever order members start and leave")
    func manyTopics() async throws {
        try await withLoop { loop in
            let names = ["Invoice", "Ride", "Weather", "Weight"]
            let prefix = try await makeTopics(names, on: loop)
            try await change(
                topics: names.map { prefix + $0 },
                as: "^" + prefix.split(separator: ".").joined(separator: "\\.") + "\\..*",
                .even,
                group: prefix,
                on: loop
            )
        }
    }

    @Test(
        "With an even assignment a change finishes outstanding batches, so nothing is read twice"
    )
    func eagerHandover() async throws {
        try await withLoop { loop in
            let prefix = try await makeTopics(["a", "b"], on: loop)
            let topics = [prefix + "a", prefix + "b"]
            let ledger = Ledger()
            func join() throws -> (Running, Task<Void, any Error>) {
                let running = try Running(
                    brokers,
                    group: prefix,
                    topics: topics,
                    assignment: .even,
                    maximumBatch: 20,
                    on: loop
                )
                return (running, ledger.follow(running.consumer, on: loop))
            }
            let (first, reading) = try join()
            for round in 0..<3 {
                let start = round * 2000
                func write(_ numbers: Range<Int>) async throws {
                    for (index, topic) in topics.enumerated() {
                        try await produce(
                            numbered(numbers.filter { $0 % 2 == index }, topic: topic),
                            to: brokers,
                            on: loop
                        )
                    }
                }
                try await write(start..<start + 1000)
                let (second, alsoReading) = try join()
                try await even([first, second], of: topics, "both have their share")
                try await write(start + 1000..<start + 2000)
                try await eventually("everything so far is read") {
                    await ledger.distinct == start + 2000
                }
                #expect(try await second.stop() < .seconds(12))
                try await alsoReading.value
            }
            try await first.stop()
            try await reading.value
            #expect(await ledger.distinct == 6000)
            #expect(await ledger.repeats == 0)
        }
    }

    @Test("A member without a partition also leaves at once")
    func surplus() async throws {
        try await withLoop { loop in
            let topic = "kafka-shares-\(UUID().uuidString.lowercased())"
            _ = try await KafkaAdmin.ensureTopics([(topic, 1)], configuration, on: loop)
            func join() throws -> Running {
                try Running(
                    brokers,
                    group: topic,
                    topics: [topic],
                    assignment: .even,
                    on: loop
                )
            }
            let members = [try join(), try join()]
            func shares() async -> [Int] {
                var counts: [Int] = []
                for member in members {
                    counts.append(await member.consumer.tracker.partitions.count)
                }
                return counts
            }
            try await eventually("both have joined, and one has the partition") {
                for member in members where await !member.consumer.hasJoined { return false }
                return await shares().reduce(0, +) == 1
            }
            let idle = await shares()[0] == 0 ? 0 : 1
            #expect(try await members[idle].stop() < .seconds(5))
            #expect(try await members[1 - idle].stop() < .seconds(5))
        }
    }

    @Test(
        "During a rolling upgrade a new replica is a ready standby and reads once the old ones have left"
    )
    func rollingUpgrade() async throws {
        try await withLoop { loop in
            let prefix = try await makeTopics(["a"], on: loop)
            let topics = [prefix + "a"]
            let ledger = Ledger()
            let old = try Running(
                brokers,
                group: prefix,
                topics: topics,
                maximumBatch: 20,
                on: loop
            )
            let oldReading = ledger.follow(old.consumer, on: loop)
            try await even([old], of: topics, "the version before has everything")
            func join() throws -> Running {
                try Running(
                    brokers,
                    group: prefix,
                    topics: topics,
                    assignment: .even,
                    maximumBatch: 20,
                    on: loop
                )
            }
            let gone = try join()
            let new = try join()
            let newReading = ledger.follow(new.consumer, on: loop)
            for member in [gone, new] {
                try await eventually("the broker rejects it, and it is ready") {
                    let isRejected = await member.consumer.isRejected
                    return isRejected && member.consumer.notReadyReason() == nil
                }
            }
            try await produce(numbered(0..<1000, topic: topics[0]), to: brokers, on: loop)
            try await eventually("the version before reads on") {
                await ledger.distinct == 1000
            }
            #expect(try await gone.stop() < .seconds(5))
            try await old.stop()
            try await oldReading.value
            try await even([new], of: topics, "the new one takes over")
            try await produce(numbered(1000..<2000, topic: topics[0]), to: brokers, on: loop)
            try await eventually("and reads") { await ledger.distinct == 2000 }
            #expect(await ledger.repeats == 0)
            try await new.stop()
            try await newReading.value
        }
    }

    @Test("A group takes over the positions of its predecessor for partitions without its own")
    func inheritance() async throws {
        try await withLoop { loop in
            let prefix = try await makeTopics(["a"], on: loop)
            let topic = prefix + "a"
            let (former, group) = (prefix + "former", prefix + "new")
            func inherit() async throws -> Int {
                try await KafkaAdmin.inheritPositions(
                    of: group,
                    from: former,
                    in: { $0 == topic },
                    configuration,
                    on: loop
                )
            }
            #expect(try await inherit() == 0)
            try await produce(
                numbered(0..<50, topic: topic, partition: 3)
                    + numbered(50..<60, topic: topic, partition: 4),
                to: brokers,
                on: loop
            )
            let old = try Running(brokers, group: former, topics: [topic], on: loop)
            _ = try await old.consume(60)
            try await old.stop()
            #expect(try await inherit() == 2)
            try await produce(numbered(60..<70, topic: topic, partition: 3), to: brokers, on: loop)
            let new = try Running(brokers, group: group, topics: [topic], on: loop)
            #expect(try await new.consume(10).map(\.number) == Array(60..<70))
            // A second replica finds them, with or without members in the group.
            #expect(try await inherit() == 0)
            try await new.stop()
            #expect(try await inherit() == 0)
            let last = try Running(brokers, group: group, topics: [topic], on: loop)
            try await produce(numbered(70..<71, topic: topic, partition: 3), to: brokers, on: loop)
            #expect(try await last.consume(1).map(\.number) == [70])
            try await last.stop()
        }
    }
}
