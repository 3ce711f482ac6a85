import Cryptography
import Door
import HTTPServer
import Kafka
import Logins
import PushEvents
import PushStorage
import ServiceKit
import Settings

/// What the service is told by its environment. Each room reads its own variables, and declares what
/// they take and mean.
struct SecurePayloadConfiguration: Sendable {
    var database: DatabaseConfiguration
    var kafka: KafkaConfiguration
    var topics: KafkaTopics
    var masterKeys: KeyRing
    var http: HTTPServerConfiguration
    var limits: RateLimits
    var jwks: JWKSConfiguration
    /// How long content that is read once can be read again.
    var readGrace: Duration
    /// How long the bare row of content stays that is over.
    var retention: Duration
    /// How long a request's key is known.
    var keyRetention: Duration
    /// Wrong secrets of one identity from one address, a minute; 0: no limit.
    var failuresPerIdentity: Int

    private static let defaultPort = 8081

    enum Variable {
        private static let day = Duration.seconds(86_400)

        static let readGrace = Setting<Duration>(
            "SECURE_READ_GRACE",
            in: .zero...day,
            default: .seconds(60),
            "how long content that is read once can be read again by its identity; too short loses"
                + " content whose answer was lost on the way, too long lets a thief read it as well"
        )
        static let retention = Setting<Duration>(
            "SECURE_RETENTION",
            in: .zero...(day * 365),
            default: day * 7,
            "how long the bare row of content stays that is over, for the backend's list; then its"
                + " number may be used again"
        )
        static let failuresPerIdentity = Setting<Int>(
            "SECURE_FAILURES_PER_IDENTITY",
            in: 0...1_000_000,
            default: 10,
            "wrong secrets of one identity from one address, a minute, and a tenth of the ids that a"
                + " reader may get wrong, 0: no limit. Too many help those who guess, too few lock"
                + " out those who mistype"
        )
        static let keyRetention = Setting<Duration>(
            "IDEMPOTENCY_RETENTION",
            in: .seconds(60)...(day * 3650),
            default: day * 7,
            "how long the key of a request is known, so that a repeat keeps and rings nothing anew"
        )

        static let all: [SettingEntry] = [
            readGrace.entry, retention.entry, failuresPerIdentity.entry, keyRetention.entry,
        ]
    }

    init(reader: ConfigurationReader) throws {
        database = try DatabaseConfiguration(reader, applicationName: "carillon-secure-payload")
        kafka = try KafkaConfiguration(reader, clientID: "carillon-secure-payload")
        topics = KafkaTopics(prefix: try reader.value(of: KafkaConfiguration.Variable.topicPrefix))
        masterKeys = try reader.value(of: KeyRing.variable)
        http = try HTTPServerConfiguration(reader, defaultPort: Self.defaultPort)
        limits = try RateLimits(reader: reader)
        jwks = try JWKSConfiguration(reader)
        readGrace = try reader.value(of: Variable.readGrace)
        retention = try reader.value(of: Variable.retention)
        keyRetention = try reader.value(of: Variable.keyRetention)
        failuresPerIdentity = try reader.value(of: Variable.failuresPerIdentity)
    }

    static let variables =
        DatabaseConfiguration.Variable.all + [KeyRing.variable.entry]
        + KafkaConfiguration.Variable.all
        + HTTPServerConfiguration.Variable.all(defaultPort: defaultPort)
        + RateLimits.Variable.all + JWKSConfiguration.Variable.all + Variable.all
}
