import EventLoop
import Testing

@testable import Kafka

@Suite("Positions of a consumer group", .timeLimit(.minutes(2)))
struct KafkaGroupPositionTests {
    private func positions(
        in cluster: MockKafkaCluster,
        partitions: Int = 1,
        timeout: Duration = .seconds(10),
        on loop: EventLoop
    ) async throws -> [KafkaGroupPosition] {
        try await KafkaAdmin.positions(
            of: "g",
            in: [KafkaCluster.Topic(name: "t", partitions: partitions)],
            since: .max,
            KafkaConfiguration(bootstrapServers: cluster.bootstrapServers),
            timeout: timeout,
            on: loop
        )
    }

    @Test("A group that never existed has no committed offset")
    func absent() async throws {
        try await withMockCluster(partitions: 2) { cluster, loop in
            let records = numbered(0..<5, partition: 1)
            try await produce(records, to: cluster.bootstrapServers, on: loop)
            let positions = try await positions(in: cluster, partitions: 2, on: loop)
            #expect(positions.map(\.partition) == [0, 1])
            #expect(positions.map(\.committed) == [nil, nil])
            #expect(positions.map(\.start) == [0, 0])
            #expect(positions.map(\.end) == [0, 5])
        }
    }

    @Test("Finished records are committed, and newer ones are not")
    func committed() async throws {
        try await withMockCluster { cluster, loop in
            let servers = cluster.bootstrapServers
            try await produce(numbered(0..<5), to: servers, on: loop)
            let running = try Running(servers, group: "g", on: loop)
            _ = try await running.consume(5)
            try await running.stop()
            try await produce(numbered(5..<7), to: servers, on: loop)
            let position = try #require(try await positions(in: cluster, on: loop).first)
            #expect(position.committed == 5)
            #expect(position.end == 7)
        }
    }

    @Test("An empty list of topics sends no request")
    func none() async throws {
        try await withMockCluster { cluster, loop in
            let positions = try await positions(in: cluster, partitions: 0, on: loop)
            #expect(positions.isEmpty)
        }
    }

    @Test("A coordinator that is not available yet is asked until it is")
    func lateCoordinator() async throws {
        try await withMockCluster { cluster, loop in
            // librdkafka gives up by itself after three.
            cluster.refuse(.findCoordinator, with: .coordinatorNotAvailable, times: 4)
            let positions = try await positions(in: cluster, on: loop)
            #expect(positions.count == 1)
        }
    }

    @Test("Partitions without a leader are asked for until they have one")
    func lateLeader() async throws {
        try await withMockCluster { cluster, loop in
            cluster.refuse(.listOffsets, with: .notLeaderForPartition, times: 4)
            let positions = try await positions(in: cluster, on: loop)
            #expect(positions.count == 1)
        }
    }

    @Test("A caller without permission gets the error at once")
    func refused() async throws {
        try await withMockCluster { cluster, loop in
            cluster.refuse(.offsetFetch, with: .groupAuthorizationFailed)
            let error = await #expect(throws: KafkaError.self) {
                try await positions(in: cluster, on: loop)
            }
            #expect(error?.name == "GROUP_AUTHORIZATION_FAILED")
            #expect(error?.isRetryable == false)
        }
    }

    @Test("A broker that does not answer is given until the deadline")
    func silent() async throws {
        try await withMockCluster { cluster, loop in
            try cluster.setBroker(isUp: false)
            let start = ContinuousClock.now
            let error = await #expect(throws: KafkaError.self) {
                try await positions(in: cluster, timeout: .seconds(2), on: loop)
            }
            #expect(error?.isRetryable == true)
            #expect(.now - start < .seconds(10))
        }
    }
}
