import Kafka
import PushCore
import PushEvents
import ServiceKit

/// The lag of the services' consumer groups in Kafka.
extension Doctor {
    /// Checks each group by a separate request, which waits for `timeout` at most, so that a group
    /// with an unreachable coordinator does not hide the others.
    mutating func examineGroups(
        _ cluster: KafkaCluster,
        timeout: Duration = .seconds(10)
    ) async throws {
        let names = try context.topics()
        for reader in ConsumerRole.allCases {
            let group = groups[reader] ?? reader.defaultGroup
            // A missing topic already has a finding.
            let topics = cluster.topics.filter { reader.reads($0.name, of: names) }
            do {
                let positions = try await KafkaAdmin.positions(
                    of: group,
                    in: topics,
                    since: Instant.now().adding(milliseconds: -GroupLag.maximumAgeMilliseconds)
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

    /// Returns the finding for a group whose offsets cannot be read. A coordinator that does not
    /// answer is a failure, as it does not answer the service either. A refusal is a warning: it
    /// may concern only this command, as the service has its own credentials.
    private static func unanswered(_ group: String, _ error: KafkaError) -> Finding {
        Finding(
            name: "group \(group)",
            status: error.isRetryable ? .failed : .warning,
            detail: "cannot read its offsets: \(error)"
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

    /// Returns the groups that replace the services' defaults: `everywhere`, the value of `KAFKA_GROUP_ID`,
    /// replaces all, and an option replaces one.
    static func groups(
        _ options: [String],
        everywhere: String?
    ) throws(ArgumentsError) -> [ConsumerRole: String] {
        var groups: [ConsumerRole: String] = [:]
        for option in options {
            let parts = option.split(
                separator: "=",
                maxSplits: 1,
                omittingEmptySubsequences: false
            )
            guard parts.count == 2, !parts[1].isEmpty,
                let reader = ConsumerRole(rawValue: String(parts[0]))
            else {
                let services = ConsumerRole.allCases.map(\.rawValue)
                throw ArgumentsError(
                    "--group takes <service>=<name>; the service is \(services.joined(separator: " or "))"
                )
            }
            guard groups.updateValue(String(parts[1]), forKey: reader) == nil else {
                throw ArgumentsError("--group is given twice for \(reader.rawValue)")
            }
        }
        if let name = groups[.dispatcher] ?? everywhere {
            for reader in [ConsumerRole.pushConfig, .pushSync] where groups[reader] == nil {
                groups[reader] = reader.group(under: name)
            }
        }
        guard let everywhere else { return groups }
        return groups.merging(
            ConsumerRole.allCases.map { ($0, $0.group(under: everywhere)) }
        ) { own, _ in own }
    }
}
