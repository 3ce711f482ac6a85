import Cryptography
import Door
import HTTPServer
import Kafka
import PushEvents
import PushStorage
import ServiceKit

struct RegistrationConfiguration: Sendable {
    /// `DATABASE_URL`: a libpq connection URI. Secret, no default.
    var database: DatabaseConfiguration
    /// `KAFKA_BOOTSTRAP_SERVERS`, and librdkafka's properties.
    var kafka: KafkaConfiguration
    /// `KAFKA_TOPIC_PREFIX`.
    var topics: KafkaTopics
    /// `CARILLON_MASTER_KEYS`: opens the apps' keys. Secret, no default.
    var masterKeys: KeyRing
    /// `HTTP_*`; port 8080 by default.
    var http: HTTPServerConfiguration
    /// `RATE_LIMIT_*` and `HTTP_TRUSTED_PROXIES`.
    var limits: RateLimits

    init(reader: ConfigurationReader) throws {
        database = DatabaseConfiguration(
            uri: try reader.secret(
                "DATABASE_URL",
                problem: DatabaseConfiguration.problem(ofURL:)
            ),
            applicationName: "carillon-registration"
        )
        kafka = KafkaConfiguration(
            bootstrapServers: try reader.required("KAFKA_BOOTSTRAP_SERVERS"),
            properties: reader.kafkaProperties(),
            clientID: "carillon-registration"
        )
        topics = KafkaTopics(prefix: reader.string("KAFKA_TOPIC_PREFIX", default: ""))
        let keys = try reader.secret("CARILLON_MASTER_KEYS")
        do {
            masterKeys = try KeyRing(keys)
        } catch {
            throw ConfigurationError("CARILLON_MASTER_KEYS", "cannot be used: \(error)")
        }
        http = try HTTPServerConfiguration(reader, defaultPort: 8080)
        limits = try RateLimits(reader: reader)
    }

    static let help = """

        DATABASE_URL              libpq URI
        KAFKA_BOOTSTRAP_SERVERS   host:port,…; librdkafka's properties as KAFKA_CONFIG_<PROPERTY>
        KAFKA_TOPIC_PREFIX        put before every topic's name
        CARILLON_MASTER_KEYS      id:base64(32 bytes),…: the first seals, all open
        HTTP_HOST, HTTP_PORT      0.0.0.0, 8080; more in deploy/guides/operating.md
        OPERATIONS_PORT           /livez, /readyz and /metrics there and nowhere else
        HTTP_ACCESS_LOG           a line a request at info (true)
        RATE_LIMIT_PER_ADDRESS, RATE_LIMIT_PER_KEY (0: none), RATE_LIMIT_FAILURES_PER_ADDRESS (10)
                                  requests a second; RATE_LIMIT_BURST (10) seconds' worth at once
        HTTP_TRUSTED_PROXIES      addresses whose X-Forwarded-For is believed
        """
}
