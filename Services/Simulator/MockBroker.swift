import EventLoop
import Kafka
import Observability
import PushCore
import ServiceKit

/// librdkafka's mock cluster with Carillon's topics, for a laptop without a broker. It stores records in
/// memory, and loses them when the simulator stops.
final class MockBroker: ServicePart {
    let name = "mock broker"
    private let cluster: MockKafkaCluster

    /// Carillon's topics, as `carillon migrate` would create them.
    static let topics =
        [
            "push.requests", "push.outcomes", "dataset.changes", "config.published", "PUSH_RC",
            "push.dead-letters",
        ] + BuiltInIngestType.allCases.map { "ingest.\($0.rawValue)" }

    init(_ configuration: SimulatorConfiguration, log: Log) throws {
        cluster = try MockKafkaCluster()
        for topic in Self.topics {
            try cluster.createTopic(
                configuration.kafkaTopicPrefix + topic,
                partitions: configuration.kafkaPartitions
            )
        }
        log.info("mock broker", [.bootstrap: .string(cluster.bootstrapServers)])
    }

    /// Serves until its task is cancelled; librdkafka has its own threads.
    func run() async throws {
        let (forever, continuation) = AsyncStream.makeStream(of: Never.self)
        await withTaskCancellationHandler {
            for await _ in forever {}
        } onCancel: {
            continuation.finish()
        }
        let cluster = cluster
        // Closing blocks, so it runs off the loop. A task without a loop cannot block one.
        guard let loop = EventLoop.current else { return cluster.close() }
        try await loop.blocking { cluster.close() }
    }
}
