import PushCore

/// The names of the topics, each behind `KAFKA_TOPIC_PREFIX`.
package struct KafkaTopics: Sendable, Equatable {
    package let prefix: String

    package init(prefix: String = "") {
        self.prefix = prefix
    }

    package var pushRequests: String { prefix + "push.requests" }
    package var pushOutcomes: String { prefix + "push.outcomes" }
    package var deadLetters: String { prefix + "push.dead-letters" }
    package var configPublished: String { prefix + "config.published" }
    package var pushRC: String { prefix + "PUSH_RC" }
    package var datasetChanges: String { prefix + "dataset.changes" }

    /// Returns the topic for objects of one type, of all apps that have it.
    package func ingest(_ type: String) -> String { ingestPrefix + type }
    package var ingestPrefix: String { prefix + "ingest." }

    /// The topics that this version writes or reads: `carillon migrate` creates them.
    package var all: [String] {
        [pushRequests, pushOutcomes, deadLetters, configPublished, pushRC, datasetChanges]
            + BuiltInIngestType.allCases.map { ingest($0.rawValue) }
    }
}
