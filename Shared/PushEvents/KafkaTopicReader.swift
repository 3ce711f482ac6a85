/// A service that reads topics, as one consumer group of all its replicas. Here, and not with the
/// services, since `carillon doctor` looks at what they read.
package enum KafkaTopicReader: String, CaseIterable, Sendable {
    case dispatcher
    case configWatcher = "config-watcher"
    /// The dispatcher too, in a group of its own, so that neither waits for the other's partitions.
    case pushSync = "push-sync"
    /// The sink of what devices send: all topics of `ingest.<Type>`, those to come among them.
    case ingest

    /// Its consumer group where `KAFKA_GROUP_ID` names no other.
    package var defaultGroup: String {
        switch self {
        case .dispatcher, .configWatcher, .ingest: "carillon-\(rawValue)"
        case .pushSync: group(under: Self.dispatcher.defaultGroup)
        }
    }

    /// Its consumer group where `KAFKA_GROUP_ID` is this name.
    package func group(under name: String) -> String {
        switch self {
        case .dispatcher, .configWatcher, .ingest: name
        case .pushSync: name + "-sync"
        }
    }

    package func kafkaTopics(of topics: KafkaTopics) -> [String] {
        switch self {
        case .dispatcher: [topics.pushRequests, topics.pushRC]
        case .configWatcher: [topics.configPublished]
        case .pushSync: [topics.datasetChanges]
        case .ingest: ["^" + Self.escaped(topics.ingestPrefix) + ".*"]
        }
    }

    /// As a regular expression has it; a prefix is letters, digits, `.`, `_` and `-`.
    private static func escaped(_ text: String) -> String {
        text.split(separator: ".", omittingEmptySubsequences: false).joined(separator: "\\.")
    }
}
