import Cryptography
import Door
import HTTPServer
import Kafka
import PushEvents
import PushStorage
import ServiceKit
import Settings

/// What the service is told by its environment. Each room reads its own variables, and declares what
/// they take and mean.
struct ConfigWatcherConfiguration: Sendable {
    var database: DatabaseConfiguration
    var kafka: KafkaConfiguration
    var topics: KafkaTopics
    var groupID: String
    var masterKeys: KeyRing
    var http: HTTPServerConfiguration
    var limits: RateLimits
    /// How long the publishes of one template are gathered; never less than half a second.
    var coalesce: Duration
    /// Over how long clients are told.
    var spread: Duration
    /// How long versions are kept that are not current.
    var retention: Duration

    private static let defaultPort = 8082
    /// Each client that listens holds one.
    private static let defaultMaximumConnections = 65_536

    enum Variable {
        private static let day = Duration.seconds(86_400)

        static let groupID = Setting<String>(
            "KAFKA_GROUP_ID",
            takes: "a consumer group's name",
            default: KafkaTopicReader.configWatcher.defaultGroup,
            "replicas that share it share the records"
        )
        static let coalesce = Setting<Duration>(
            "CONFIG_COALESCE",
            in: .zero ... .seconds(3600),
            default: .seconds(1),
            "how long publishes of one template are gathered before the highest is announced, at"
                + " least 500ms; too long keeps clients stale, too short tells them again and again"
        )
        static let spread = Setting<Duration>(
            "CONFIG_SPREAD",
            in: .zero...day,
            default: .zero,
            "over how long an app's clients are told of a version; 0: all at once, and all fetch at"
                + " once"
        )
        static let retention = Setting<Duration>(
            "CONFIG_RETENTION",
            in: day...(day * 3650),
            default: day * 90,
            "how long versions of templates are kept that are not current, of which at most 300 are"
        )

        static let all: [SettingEntry] = [
            groupID.entry, coalesce.entry, spread.entry, retention.entry,
        ]
    }

    init(reader: ConfigurationReader) throws {
        database = try DatabaseConfiguration(reader, applicationName: "carillon-config-watcher")
        kafka = try KafkaConfiguration(reader, clientID: "carillon-config-watcher")
        topics = KafkaTopics(prefix: try reader.value(of: KafkaConfiguration.Variable.topicPrefix))
        groupID = try reader.value(of: Variable.groupID)
        masterKeys = try reader.value(of: KeyRing.variable)
        http = try HTTPServerConfiguration(
            reader,
            defaultPort: Self.defaultPort,
            defaultMaximumConnections: Self.defaultMaximumConnections
        )
        limits = try RateLimits(reader: reader)
        coalesce = try reader.value(of: Variable.coalesce)
        spread = try reader.value(of: Variable.spread)
        retention = try reader.value(of: Variable.retention)
    }

    static let variables =
        DatabaseConfiguration.Variable.all + [KeyRing.variable.entry]
        + KafkaConfiguration.Variable.all
        + HTTPServerConfiguration.Variable.all(
            defaultPort: defaultPort,
            defaultMaximumConnections: defaultMaximumConnections
        ) + RateLimits.Variable.all + Variable.all
}
