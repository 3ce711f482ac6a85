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
struct IngestConfiguration: Sendable {
    var database: DatabaseConfiguration
    var kafka: KafkaConfiguration
    var topics: KafkaTopics
    var groupID: String
    var masterKeys: KeyRing
    var http: HTTPServerConfiguration
    var limits: RateLimits
    /// Whether this process also writes what Kafka has to Postgres.
    var runsSink: Bool
    /// How long an `_id` is known after it was stored.
    var keyRetention: Duration
    /// How long opens and receipts are kept.
    var pushRetention: Duration
    /// What requests may hold until Kafka has their objects, in bytes.
    var maximumHeldBytes: Int

    private static let defaultPort = 8083
    /// Each device that sends holds one.
    private static let defaultMaximumConnections = 65_536

    enum Variable {
        private static let day = Duration.seconds(86_400)

        static let groupID = Setting<String>(
            "KAFKA_GROUP_ID",
            takes: "a consumer group's name",
            default: KafkaTopicReader.ingest.defaultGroup,
            "replicas that share it share the records; the sink's group is it with -ingest behind, unless it ends"
                + " in ingest already"
        )
        static let sink = Setting<Bool>(
            "INGEST_SINK",
            takes: "on or off",
            default: true,
            shown: "on",
            "whether this replica also writes objects to Postgres; off: it only takes in"
        ) { text in
            switch text {
            case "on": true
            case "off": false
            default: nil
            }
        }
        static let keyRetention = Setting<Duration>(
            "INGEST_KEY_RETENTION",
            in: day...day * 3650,
            default: day * 30,
            "how long the _id of an object is known after it was stored; one that comes again later is"
                + " another object, so no client may hold one for longer"
        )
        static let pushRetention = Setting<Duration>(
            "PUSH_RETENTION",
            in: day * 2...day * 36_500,
            default: day * 90,
            "how long opens and receipts are kept: as long as the dispatcher keeps pushes"
        )
        static let maximumHeldBytes = Setting<Int>(
            "INGEST_MAX_HELD_BYTES",
            in: (16 << 20)...(1 << 36),
            unit: .bytes,
            default: 64 << 20,
            "what requests may hold until Kafka has their objects, one app up to four fifths of it;"
                + " beyond it they are refused, 503, or 429 to Segment's clients. Too little refuses"
                + " what a short pause of the broker would let through"
        )

        static let all: [SettingEntry] = [
            groupID.entry, sink.entry, keyRetention.entry, pushRetention.entry,
            maximumHeldBytes.entry,
        ]
    }

    init(reader: ConfigurationReader) throws {
        database = try DatabaseConfiguration(reader, applicationName: "carillon-ingest")
        kafka = try KafkaConfiguration(reader, clientID: "carillon-ingest")
        topics = KafkaTopics(prefix: try reader.value(of: KafkaConfiguration.Variable.topicPrefix))
        groupID = try reader.value(of: Variable.groupID)
        masterKeys = try reader.value(of: KeyRing.variable)
        http = try HTTPServerConfiguration(
            reader,
            defaultPort: Self.defaultPort,
            defaultMaximumConnections: Self.defaultMaximumConnections
        )
        limits = try RateLimits(reader: reader)
        runsSink = try reader.value(of: Variable.sink)
        keyRetention = try reader.value(of: Variable.keyRetention)
        pushRetention = try reader.value(of: Variable.pushRetention)
        maximumHeldBytes = try reader.value(of: Variable.maximumHeldBytes)
    }

    static let variables =
        DatabaseConfiguration.Variable.all + [KeyRing.variable.entry]
        + KafkaConfiguration.Variable.all
        + HTTPServerConfiguration.Variable.all(
            defaultPort: defaultPort,
            defaultMaximumConnections: defaultMaximumConnections
        ) + RateLimits.Variable.all + Variable.all
}
