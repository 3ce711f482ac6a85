/// A service that reads topics, as one consumer group of all its replicas. Here, and not with the
/// services, since `carillon doctor` looks at what they read.
package enum KafkaTopicReader: String, CaseIterable, Sendable {
    case dispatcher
    case configWatcher = "config-watcher"

    /// Its consumer group where `KAFKA_GROUP_ID` names no other.
    package var defaultGroup: String { "carillon-\(rawValue)" }

    package func kafkaTopics(of topics: KafkaTopics) -> [String] {
        switch self {
        case .dispatcher: [topics.pushRequests, topics.pushRC]
        case .configWatcher: [topics.configPublished]
        }
    }
}
