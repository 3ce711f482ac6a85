package import EventLoop
import JSON
package import Kafka
package import Observability
package import PushEvents

extension StoredDeadLetter {
    /// The topic of dead letters does not exist.
    package struct MissingTopic: Error, CustomStringConvertible {
        package let name: String
        package var description: String { "there is no topic \(name): run carillon migrate first" }
    }

    /// How much of the topic is read.
    package struct Span: Sendable {
        /// Only this one.
        package var only: ID?
        /// The offsets before each partition's end; `nil`: all there are.
        package var last: Int64?
        /// The most wanted records of each partition, the latest ones.
        package var limit: Int
        /// The limit of the returned records, which partitions share.
        package var maximumBytes: Int
        package var timeout: Duration

        package init(
            only: ID? = nil,
            last: Int64? = nil,
            limit: Int,
            maximumBytes: Int = .max,
            timeout: Duration
        ) {
            self.only = only
            self.last = last
            self.limit = limit
            self.maximumBytes = maximumBytes
            self.timeout = timeout
        }
    }

    /// Reads dead letters from Kafka.
    ///
    /// - Returns: The wanted records, by partition and offset.
    /// - Throws: `KafkaError`, `MissingTopic`.
    package static func read(
        _ span: Span,
        _ kafka: KafkaConfiguration,
        _ topics: KafkaTopics,
        on loop: EventLoop,
        log: Log = .disabled,
        where isWanted: @escaping @Sendable (StoredDeadLetter) -> Bool
    ) async throws -> KafkaReading {
        let cluster = try await KafkaAdmin.describe(
            kafka,
            timeout: min(span.timeout, .seconds(5)),
            on: loop,
            log: log
        )
        guard let topic = cluster.topics.first(where: { $0.name.isSame(as: topics.deadLetters) })
        else { throw MissingTopic(name: topics.deadLetters) }
        return try await KafkaAdmin.read(
            topic,
            only: span.only.map { ($0.partition, $0.offset) },
            last: span.last,
            limit: span.limit,
            maximumBytes: span.maximumBytes / max(1, topic.partitions),
            kafka,
            timeout: span.timeout,
            on: loop,
            log: log
        ) { isWanted(StoredDeadLetter(record: $0)) }
    }
}
