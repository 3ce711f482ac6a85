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
struct RegistrationConfiguration: Sendable {
    var database: DatabaseConfiguration
    var kafka: KafkaConfiguration
    var topics: KafkaTopics
    var masterKeys: KeyRing
    var http: HTTPServerConfiguration
    var limits: RateLimits

    private static let defaultPort = 8080

    init(reader: ConfigurationReader) throws {
        database = try DatabaseConfiguration(reader, applicationName: "carillon-registration")
        kafka = try KafkaConfiguration(reader, clientID: "carillon-registration")
        topics = KafkaTopics(prefix: try reader.value(of: KafkaConfiguration.Variable.topicPrefix))
        masterKeys = try reader.value(of: KeyRing.variable)
        http = try HTTPServerConfiguration(reader, defaultPort: Self.defaultPort)
        limits = try RateLimits(reader: reader)
    }

    static let variables =
        DatabaseConfiguration.Variable.all + [KeyRing.variable.entry]
        + KafkaConfiguration.Variable.all
        + HTTPServerConfiguration.Variable.all(defaultPort: defaultPort) + RateLimits.Variable.all
}
