/// A service that reads topics, as one consumer group of all its replicas. Here, and not with the
/// services, since `carillon doctor` looks at what they read.
package enum KafkaTopicReader: String, CaseIterable, Sendable {
    case dispatcher
    case configWatcher = "config-watcher"
    /// The dispatcher's other topics, each in a group of its own: a group balances the partitions of all
    /// its topics together, so only one topic to a group gives every replica its share of each.
    case pushConfig = "push-config"
    case pushSync = "push-sync"
    /// The sink of what devices send: all topics of `ingest.<Type>`, those to come among them.
    case ingest

    /// Its consumer group where `KAFKA_GROUP_ID` names no other.
    package var defaultGroup: String {
        switch self {
        case .dispatcher, .configWatcher, .ingest: "carillon-\(rawValue)"
        case .pushConfig, .pushSync: group(under: Self.dispatcher.defaultGroup)
        }
    }

    /// Its consumer group where `KAFKA_GROUP_ID` is this name. All services may be given the same one; the
    /// sink shares partitions by another protocol than the others, so its group is never theirs.
    package func group(under name: String) -> String {
        switch self {
        case .dispatcher, .configWatcher: name
        case .ingest: name.hasSuffix(rawValue) ? name : "\(name)-\(rawValue)"
        case .pushConfig: name + "-config"
        case .pushSync: name + "-sync"
        }
    }

    /// The group that read the same topics in the versions before, if it was another: its positions count
    /// where the group has none yet.
    package func formerGroup(under name: String) -> String? {
        switch self {
        case .pushConfig: Self.dispatcher.group(under: name)
        case .ingest: group(under: name) == name ? nil : name
        case .dispatcher, .configWatcher, .pushSync: nil
        }
    }

    /// Whether it reads a topic.
    package func reads(_ kafkaTopic: String, of topics: KafkaTopics) -> Bool {
        switch self {
        case .dispatcher, .configWatcher, .pushConfig, .pushSync:
            kafkaTopics(of: topics).contains(kafkaTopic)
        case .ingest: kafkaTopic.hasPrefix(topics.ingestPrefix)
        }
    }

    package func kafkaTopics(of topics: KafkaTopics) -> [String] {
        switch self {
        case .dispatcher: [topics.pushRequests]
        case .pushConfig: [topics.pushRC]
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
