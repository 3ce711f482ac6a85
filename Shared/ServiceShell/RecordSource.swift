package import Kafka
import Observability
package import PushEvents
package import ServiceKit
package import Storage

/// The records of a role's topics, read by one consumer group of all replicas.
package struct RecordSource: Sendable {
    package let consumer: KafkaConsumer
    private let reader: ConsumerRole
    private let group: String
    private let kafka: KafkaConfiguration
    private let topics: KafkaTopics
    private let runtime: ServiceRuntime

    /// - Parameters:
    ///   - reader: Determines the topics, and the group's name.
    ///   - group: `KAFKA_GROUP_ID`.
    ///   - configuration: The service's.
    ///   - maximumBatch: Records, as `KafkaConsumer` takes all three.
    ///   - maximumOutstanding: Records.
    ///   - maximumOutstandingBytes: Bytes.
    ///   - assignment: `even` if each replica must have its share of every topic.
    ///   - runtime: The service's; it is read on the main loop.
    /// - Throws: `KafkaError`.
    package init(
        _ reader: ConsumerRole,
        under group: String,
        _ configuration: CommonConfiguration,
        maximumBatch: Int,
        maximumOutstanding: Int = 10_000,
        maximumOutstandingBytes: Int = 64 << 20,
        assignment: PartitionAssignment = .cooperative,
        in runtime: ServiceRuntime
    ) throws {
        self.reader = reader
        self.group = group
        self.runtime = runtime
        (kafka, topics) = (configuration.kafka, configuration.topics)
        consumer = try KafkaConsumer(
            configuration.kafka,
            group: reader.group(under: group),
            topics: reader.kafkaTopics(of: configuration.topics),
            assignment: assignment,
            maximumBatch: maximumBatch,
            maximumOutstanding: maximumOutstanding,
            maximumOutstandingBytes: maximumOutstandingBytes,
            on: runtime.mainLoop,
            log: runtime.log,
            metrics: runtime.metrics
        )
    }

    /// Joins the group once the database is ready: a replica that cannot store records must not
    /// read them.
    package func part(_ name: String, after database: PushDatabase) -> ClosurePart {
        ClosurePart(name, notReady: consumer.notReadyReason) {
            try await database.untilReady()
            await inheritPositions()
            if Task.isCancelled { return }
            try await consumer.run()
        }
    }

    /// Takes over, once, the positions of the group that earlier versions used, if that was another
    /// one: no record is skipped, and no topic is read again from its beginning. Retries until it
    /// has succeeded, or the task is cancelled.
    ///
    /// While members of both groups run, during an upgrade, each record may be read by both:
    /// readers deduplicate an event or an object by its id.
    private func inheritPositions() async {
        guard let former = reader.formerGroup(under: group) else { return }
        var pause = ExponentialBackoff()
        while !Task.isCancelled {
            do {
                return try await inheritPositions(from: former)
            } catch {
                runtime.log.warning(
                    "the positions of the former group cannot be taken over yet",
                    [.kafkaGroup: .string(former), .error: .string("\(error)")]
                )
                await pause.wait(on: runtime.mainLoop)
            }
        }
    }

    /// A stop does not wait for the call: a broker that does not answer blocks its thread for seconds.
    private func inheritPositions(from former: String) async throws {
        let ends = AsyncThrowingStream<Never, any Error> { end in
            Task(executorPreference: runtime.mainLoop) {
                do {
                    try await KafkaAdmin.inheritPositions(
                        of: reader.group(under: group),
                        from: former,
                        in: { reader.reads($0, of: topics) },
                        kafka,
                        on: runtime.mainLoop
                    )
                    end.finish()
                } catch {
                    end.finish(throwing: error)
                }
            }
        }
        for try await _ in ends {}
    }
}
