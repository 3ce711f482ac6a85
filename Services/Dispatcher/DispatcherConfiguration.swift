import Cryptography
import Kafka
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

/// What the dispatcher is told by its environment. Read once, then passed as values.
struct DispatcherConfiguration: Sendable {
    /// `DATABASE_URL`: a libpq connection URI. Secret, no default.
    var databaseURL: String
    /// `CARILLON_MASTER_KEYS`: `id:base64(32 bytes),…`; opens the credentials. Secret, no default.
    var keys: KeyRing
    /// `KAFKA_BOOTSTRAP_SERVERS` and what else is librdkafka's.
    var kafka: KafkaConfiguration
    /// `KAFKA_TOPIC_PREFIX`: put before every topic's name. Default: nothing.
    var topics: KafkaTopics
    /// `KAFKA_GROUP_ID`: replicas that share it share the records. Default `carillon-dispatcher`.
    var groupID: String
    /// `DISPATCH_IN_FLIGHT`: deliveries owned at once, 1...100000. Default 4096. Fewer idle the
    /// connections; more repeat more after a crash, and cost memory.
    var inFlight: Int
    /// `DISPATCH_SHARDS`: shards of broadcasts worked on at once, 1...256. Default 4. Fewer wait more
    /// for Postgres; more repeat more after a crash.
    var shards: Int
    /// `DISPATCH_CHECKPOINT_EVERY`: deliveries of a shard between two checkpoints, 1...100000. Default
    /// 1000. Fewer cost more transactions; more repeat more after a crash, and cost memory.
    var checkpointEvery: Int
    /// `SHUTDOWN_GRACE`: how long a stop may take. Default 25 s. What is not answered when most of
    /// it is over goes back, and may ring twice.
    var shutdownGrace: Duration
    /// `IDEMPOTENCY_RETENTION`: how long an event is known again, 1 m...10 years. Default 7 d;
    /// shorter than Kafka keeps the record, and a replay rings again.
    var idempotencyRetention: Duration
    /// `DELIVERY_RETENTION`: how long a delivery's row is kept, 2 d...10 years. Default 7 d.
    var deliveryRetention: Duration
    /// `PUSH_RETENTION`: how long a push's record is kept, 2 d...100 years. Default 90 d.
    var pushRetention: Duration
    /// `AUDIT_RETENTION`: how long it is known who did what with a master key, 1 d...100 years.
    /// Default 90 d.
    var auditRetention: Duration
    var providers: ProviderConfiguration
    /// `MPNS_ENABLED`: whether Windows Phone's old channels are sent to. Default true; false
    /// suppresses their deliveries.
    var isMPNSEnabled: Bool

    init(reader: ConfigurationReader) throws {
        databaseURL = try reader.secret(
            "DATABASE_URL",
            problem: DatabaseConfiguration.problem(ofURL:)
        )
        do {
            keys = try KeyRing(try reader.secret("CARILLON_MASTER_KEYS"))
        } catch let error as CryptographyError {
            throw ConfigurationError("CARILLON_MASTER_KEYS", "\(error)")
        }
        kafka = KafkaConfiguration(
            bootstrapServers: try reader.required("KAFKA_BOOTSTRAP_SERVERS"),
            properties: reader.kafkaProperties(),
            clientID: "carillon-dispatcher"
        )
        topics = KafkaTopics(prefix: reader.string("KAFKA_TOPIC_PREFIX", default: ""))
        groupID = reader.string("KAFKA_GROUP_ID", default: "carillon-dispatcher")
        inFlight = try reader.integer("DISPATCH_IN_FLIGHT", in: 1...100_000, default: 4096)
        shards = try reader.integer("DISPATCH_SHARDS", in: 1...256, default: 4)
        checkpointEvery = try reader.integer(
            "DISPATCH_CHECKPOINT_EVERY",
            in: 1...100_000,
            default: 1000
        )
        shutdownGrace = try reader.duration(
            "SHUTDOWN_GRACE",
            in: .milliseconds(100)...Duration.seconds(3600),
            default: .seconds(25)
        )
        let day = 86_400
        idempotencyRetention = try reader.duration(
            "IDEMPOTENCY_RETENTION",
            in: .seconds(60)...Duration.seconds(3650 * day),
            default: .seconds(7 * day)
        )
        deliveryRetention = try reader.duration(
            "DELIVERY_RETENTION",
            in: .seconds(2 * day)...Duration.seconds(3650 * day),
            default: .seconds(7 * day)
        )
        pushRetention = try reader.duration(
            "PUSH_RETENTION",
            in: .seconds(2 * day)...Duration.seconds(36_500 * day),
            default: .seconds(90 * day)
        )
        auditRetention = try reader.duration(
            "AUDIT_RETENTION",
            in: .seconds(day)...Duration.seconds(36_500 * day),
            default: .seconds(90 * day)
        )
        providers = try Self.providers(reader)
        isMPNSEnabled = try reader.boolean("MPNS_ENABLED", default: true)
    }

    var retention: Retention {
        let day = Duration.seconds(86_400)
        return Retention(
            deliveryDays: Int((deliveryRetention / day).rounded(.up)),
            eventKeys: idempotencyRetention,
            pushes: pushRetention,
            audit: auditRetention
        )
    }

    static let help = """

        DATABASE_URL, CARILLON_MASTER_KEYS, KAFKA_BOOTSTRAP_SERVERS   required
        KAFKA_TOPIC_PREFIX, KAFKA_GROUP_ID (carillon-dispatcher), KAFKA_SECURITY_PROTOCOL,
        KAFKA_SASL_*, KAFKA_CONFIG_*
        DISPATCH_IN_FLIGHT (4096), DISPATCH_SHARDS (4), DISPATCH_CHECKPOINT_EVERY (1000)
        SHUTDOWN_GRACE (25s)
        IDEMPOTENCY_RETENTION (7d), DELIVERY_RETENTION (7d), PUSH_RETENTION (90d),
        AUDIT_RETENTION (90d)
        APNS_PRODUCTION_URL, APNS_SANDBOX_URL, FCM_URL, FCM_TOKEN_HOSTS, WNS_LIVE_TOKEN_URL,
        WNS_ENTRA_TOKEN_URL, WNS_CHANNEL_HOSTS, MPNS_CHANNEL_HOSTS, MPNS_ENABLED (true),
        PROVIDER_CA_FILE, HTTPS_PROXY, NO_PROXY
        HTTP_HOST, HTTP_PORT (8084), OPERATIONS_PORT, HTTP_ACCESS_LOG (true), LOG_LEVEL, LOG_FORMAT
        """

    private static func providers(
        _ reader: ConfigurationReader
    ) throws -> ProviderConfiguration {
        var providers = ProviderConfiguration()
        providers.apnsProductionURL = reader.string(
            "APNS_PRODUCTION_URL",
            default: providers.apnsProductionURL
        )
        providers.apnsSandboxURL = reader.string(
            "APNS_SANDBOX_URL",
            default: providers.apnsSandboxURL
        )
        providers.fcmURL = reader.string("FCM_URL", default: providers.fcmURL)
        providers.wnsLiveTokenURL = reader.string(
            "WNS_LIVE_TOKEN_URL",
            default: providers.wnsLiveTokenURL
        )
        providers.wnsEntraTokenURL = reader.string(
            "WNS_ENTRA_TOKEN_URL",
            default: providers.wnsEntraTokenURL
        )
        providers.fcmTokenHosts = reader.list("FCM_TOKEN_HOSTS", default: providers.fcmTokenHosts)
        providers.wnsChannelHosts = reader.list(
            "WNS_CHANNEL_HOSTS",
            default: providers.wnsChannelHosts
        )
        providers.mpnsChannelHosts = reader.list(
            "MPNS_CHANNEL_HOSTS",
            default: providers.mpnsChannelHosts
        )
        providers.caFile = reader.optional("PROVIDER_CA_FILE")
        providers.proxy = reader.optional("HTTPS_PROXY")
        providers.noProxy = reader.optional("NO_PROXY")
        if let file = providers.caFile, readTextFile(file) == nil {
            throw ConfigurationError(
                "PROVIDER_CA_FILE",
                "names a file that cannot be read: \(file)"
            )
        }
        do {
            try providers.validate()
        } catch {
            throw ConfigurationError(error.variable, error.problem)
        }
        return providers
    }
}
