import Kafka
import PushCore
import PushEvents
import ServiceKit

/// How far the services are behind in what they read from Kafka.
extension Doctor {
    /// Each group has a question of its own, so that one whose coordinator is away hides no other;
    /// each waits for `timeout` at most.
    mutating func examineGroups(
        _ cluster: KafkaCluster,
        timeout: Duration = .seconds(10)
    ) async throws {
        let names = try context.topics()
        for reader in KafkaTopicReader.allCases {
            let group = groups[reader] ?? reader.defaultGroup
            // A topic that is missing has a finding already.
            let topics = cluster.topics.filter { reader.reads($0.name, of: names) }
            do {
                let positions = try await KafkaAdmin.positions(
                    of: group,
                    in: topics,
                    since: Instant.now().adding(milliseconds: -GroupLag.patienceMilliseconds)
                        .milliseconds,
                    try context.kafka(),
                    timeout: timeout,
                    on: context.loop
                )
                for topic in topics {
                    let lag = GroupLag(
                        reader: reader,
                        group: group,
                        kafkaTopic: topic.name,
                        positions.filter { $0.kafkaTopic == topic.name }
                    )
                    lags.append(lag)
                    found(lag.finding)
                }
            } catch let error as KafkaError {
                found(Self.unanswered(group, error))
            }
        }
    }

    /// A coordinator that gives no answer gives the service none either. Where we are refused, the
    /// service need not be: it has credentials of its own.
    private static func unanswered(_ group: String, _ error: KafkaError) -> Finding {
        Finding(
            name: "group \(group)",
            status: error.isRetryable ? .failed : .warning,
            detail: "how far it is cannot be asked: \(error)"
        )
    }
}

extension Command {
    static let groupOption = Arguments.Option.values(
        "--group",
        "<service>=<name>",
        "the consumer group of dispatcher, push-config, push-sync, config-watcher or ingest, where it"
            + " is not KAFKA_GROUP_ID"
    )

    /// The groups that differ from the services' defaults: all of them by `everywhere`, which is
    /// `KAFKA_GROUP_ID`, or one by its option.
    static func groups(
        _ options: [String],
        everywhere: String?
    ) throws(ArgumentsError) -> [KafkaTopicReader: String] {
        var groups: [KafkaTopicReader: String] = [:]
        for option in options {
            let parts = option.split(
                separator: "=",
                maxSplits: 1,
                omittingEmptySubsequences: false
            )
            guard parts.count == 2, !parts[1].isEmpty,
                let reader = KafkaTopicReader(rawValue: String(parts[0]))
            else {
                let services = KafkaTopicReader.allCases.map(\.rawValue)
                throw ArgumentsError(
                    "--group takes <service>=<name>, of \(services.joined(separator: " or "))"
                )
            }
            guard groups.updateValue(String(parts[1]), forKey: reader) == nil else {
                throw ArgumentsError("--group is given twice for \(reader.rawValue)")
            }
        }
        if let name = groups[.dispatcher] ?? everywhere {
            for reader in [KafkaTopicReader.pushConfig, .pushSync] where groups[reader] == nil {
                groups[reader] = reader.group(under: name)
            }
        }
        guard let everywhere else { return groups }
        return groups.merging(
            KafkaTopicReader.allCases.map { ($0, $0.group(under: everywhere)) }
        ) { own, _ in own }
    }
}
