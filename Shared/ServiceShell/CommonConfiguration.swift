package import Cryptography
import Gateway
package import HTTPServer
package import Kafka
package import PushEvents
package import Settings
package import Storage

/// Configuration that every service reads: Postgres, the key ring and Kafka.
package struct CommonConfiguration: Sendable {
    package var database: DatabaseConfiguration
    package var keys: KeyRing
    package var kafka: KafkaConfiguration
    package var topics: KafkaTopics

    package static let variables =
        DatabaseConfiguration.Variable.all + [KeyRing.variable.entry]
        + KafkaConfiguration.Variable.all

    /// - Parameters:
    ///   - reader: The process's.
    ///   - service: The name in logs; Postgres and Kafka see `carillon-<service>`.
    /// - Throws: `ConfigurationError`.
    package init(_ reader: ConfigurationReader, service: String) throws {
        let name = "carillon-" + service
        database = try DatabaseConfiguration(reader, applicationName: name)
        keys = try reader.value(of: KeyRing.variable)
        kafka = try KafkaConfiguration(reader, clientID: name)
        topics = KafkaTopics(prefix: try reader.value(of: KafkaConfiguration.Variable.topicPrefix))
    }
}

/// Configuration of one service in addition to the common one.
package protocol OwnConfiguration: Sendable {
    /// Declares the variables that `init` reads.
    static var variables: [SettingEntry] { get }

    /// - Throws: `ConfigurationError`.
    init(_ reader: ConfigurationReader) throws
}

/// The empty configuration of a service without its own.
package struct NoConfiguration: OwnConfiguration {
    package static let variables: [SettingEntry] = []

    package init(_ reader: ConfigurationReader) {}
}

/// Configuration of a service that answers callers over HTTP.
package struct HTTPServiceConfiguration<Program: HTTPServiceProgram>: Sendable {
    package var common: CommonConfiguration
    package var http: HTTPServerConfiguration
    package var own: Program.Own
    let limits: RateLimits

    package static var variables: [SettingEntry] {
        CommonConfiguration.variables
            + HTTPServerConfiguration.Variable.all(
                defaultPort: Program.port,
                defaultMaximumConnections: Program.maximumConnections
            ) + RateLimits.Variable.all + Program.Own.variables
    }

    /// - Throws: `ConfigurationError`.
    package init(_ reader: ConfigurationReader) throws {
        common = try CommonConfiguration(reader, service: Program.name)
        http = try HTTPServerConfiguration(
            reader,
            defaultPort: Program.port,
            defaultMaximumConnections: Program.maximumConnections
        )
        limits = try RateLimits(reader: reader)
        own = try Program.Own(reader)
    }
}

extension Setting<String> {
    /// Returns `KAFKA_GROUP_ID` of a service.
    ///
    /// - Parameters:
    ///   - reader: The role of the group's consumers.
    ///   - note: Appended to the common description.
    /// - Returns: The variable.
    package static func consumerGroup(of reader: ConsumerRole, _ note: String = "") -> Self {
        Setting(
            "KAFKA_GROUP_ID",
            takes: "a consumer group's name",
            default: reader.defaultGroup,
            "replicas that share it share the records" + note
        )
    }
}
