/// A service that reads topics, as one consumer group of all its replicas. Defined here, and not in
/// the services, since `carillon doctor` checks their topics.
package enum ConsumerRole: String, CaseIterable, Sendable {
    case dispatcher
    case configWatcher = "config-watcher"
    /// The dispatcher's other topics, each in a group of its own: a group balances the partitions of all
    /// its topics together, so only one topic to a group gives every replica its share of each.
    case pushConfig = "push-config"
    case pushSync = "push-sync"
    /// The sink of device objects: all topics of `ingest.<Type>`, including future ones.
    case ingest

    /// Its consumer group if `KAFKA_GROUP_ID` names no other.
    package var defaultGroup: String {
        switch self {
        case .dispatcher, .configWatcher, .ingest: "carillon-\(rawValue)"
        case .pushConfig, .pushSync: group(under: Self.dispatcher.defaultGroup)
        }
    }

    /// Returns its consumer group if `KAFKA_GROUP_ID` is this name. All services may be given the same one; the sink
    /// uses another protocol for sharing partitions, so its group always differs from the others'.
    package func group(under name: String) -> String {
        switch self {
        case .dispatcher, .configWatcher: name
        case .ingest: name.hasSuffix(rawValue) ? name : "\(name)-\(rawValue)"
        case .pushConfig: name + "-config"
        case .pushSync: name + "-sync"
        }
    }

    /// Returns the group that read the same topics in previous versions, if it differs: its positions are
    /// used if the group has none yet.
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

    /// Escapes a topic prefix for a regular expression; it consists of letters, digits, `.`, `_` and `-`.
    private static func escaped(_ text: String) -> String {
        text.split(separator: ".", omittingEmptySubsequences: false).joined(separator: "\\.")
    }
}
