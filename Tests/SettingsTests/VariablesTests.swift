import Foundation
import Kafka
import ServiceKit
import ServiceShell
import Settings
import Synchronization
import Testing

@testable import CLI
@testable import ConfigWatcher
@testable import Connection
@testable import Dispatcher
@testable import Ingest
@testable import Registration
@testable import SecurePayload
@testable import Simulator

/// Compares the declared settings with those that services read and the guide lists.
@Suite(.timeLimit(.minutes(1)))
struct VariablesTests {
    private static let readers: [(name: String, entries: [SettingEntry])] = [
        (
            "registration",
            ServiceVariable.all(beside: HTTPServiceConfiguration<Registration>.variables)
        ),
        (
            "dispatcher",
            ServiceVariable.all(
                beside: DispatcherConfiguration.variables,
                operationsPort: DispatcherConfiguration.operationsPort
            )
        ),
        (
            "config-watcher",
            ServiceVariable.all(beside: HTTPServiceConfiguration<ConfigWatcher>.variables)
        ),
        (
            "secure-payload",
            ServiceVariable.all(beside: HTTPServiceConfiguration<SecurePayloadService>.variables)
        ),
        ("ingest", ServiceVariable.all(beside: HTTPServiceConfiguration<Ingest>.variables)),
        (
            "connection",
            ServiceVariable.all(beside: HTTPServiceConfiguration<ConnectionService>.variables)
        ),
        ("simulator", ServiceVariable.all(beside: SimulatorConfiguration.variables)),
        ("carillon", CommandContext.variables),
    ]

    @Test("The guide's table matches the declarations of the executables")
    func guideIsDeclared() throws {
        let guide = URL(filePath: #filePath).deletingLastPathComponent()
            .appending(path: "../../deploy/guides/variables.md").standardizedFileURL
        let table = SettingEntry.table(Self.readers)
        let text = try String(contentsOf: guide, encoding: .utf8)
        let parts = text.components(separatedBy: "<!-- declared -->\n")
        try #require(parts.count == 3, "\(guide.path) has two lines <!-- declared -->")
        if ProcessInfo.processInfo.environment["CARILLON_RENEW_VARIABLES"] == "1" {
            let renewed = [parts[0], table, parts[2]].joined(separator: "<!-- declared -->\n")
            try renewed.write(to: guide, atomically: true, encoding: .utf8)
        } else {
            #expect(
                parts[1] == table,
                "CARILLON_RENEW_VARIABLES=1 writes deploy/guides/variables.md anew"
            )
        }
    }

    @Test("No executable declares a variable twice", arguments: readers.map(\.name))
    func namesAreUnique(reader: String) throws {
        let entries = try #require(Self.readers.first { $0.name == reader }).entries
        #expect(Set(entries.map(\.name)).count == entries.count)
    }

    @Test("Each service reads the settings that it declares, and no others")
    func readIsDeclared() throws {
        let file = #filePath
        let keys = "k1:" + Data(repeating: 7, count: 32).base64EncodedString()
        let environment = [
            "DATABASE_URL": "postgresql://carillon@db/carillon", "CARILLON_MASTER_KEYS": keys,
            "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092", "HTTP_TLS_PORT": "0",
            "HTTP_TLS_CERTIFICATE_FILE": file, "HTTP_TLS_PRIVATE_KEY_FILE": file,
        ]
        func names(_ read: (ConfigurationReader) throws -> Void) rethrows -> Set<String> {
            let asked = Mutex(Set<String>())
            try read(
                ConfigurationReader(environment) { name in
                    asked.withLock { _ = $0.insert(name) }
                }
            )
            return asked.withLock { $0 }
        }
        let registration = try names { _ = try HTTPServiceConfiguration<Registration>($0) }
        #expect(registration == Set(HTTPServiceConfiguration<Registration>.variables.map(\.name)))
        let dispatcher = try names { _ = try DispatcherConfiguration(reader: $0) }
        #expect(
            dispatcher.subtracting(["SHUTDOWN_GRACE"])
                == Set(DispatcherConfiguration.variables.map(\.name))
        )
        let watcher = try names { _ = try HTTPServiceConfiguration<ConfigWatcher>($0) }
        #expect(watcher == Set(HTTPServiceConfiguration<ConfigWatcher>.variables.map(\.name)))
        let secure = try names { _ = try HTTPServiceConfiguration<SecurePayloadService>($0) }
        #expect(secure == Set(HTTPServiceConfiguration<SecurePayloadService>.variables.map(\.name)))
        let ingest = try names { _ = try HTTPServiceConfiguration<Ingest>($0) }
        #expect(ingest == Set(HTTPServiceConfiguration<Ingest>.variables.map(\.name)))
        let connection = try names { _ = try HTTPServiceConfiguration<ConnectionService>($0) }
        #expect(
            connection == Set(HTTPServiceConfiguration<ConnectionService>.variables.map(\.name))
        )
        let simulator = try names { _ = try SimulatorConfiguration(reader: $0) }
        #expect(simulator == Set(SimulatorConfiguration.variables.map(\.name)))
    }

    @Test("Any librdkafka property can be set by its variable")
    func kafkaPropertiesAreNamedByVariables() throws {
        let reader = ConfigurationReader([
            "KAFKA_BOOTSTRAP_SERVERS": "kafka:9092", "KAFKA_CONFIG_SOCKET_TIMEOUT_MS": "100",
            "KAFKA_SASL_USERNAME": "me", "KAFKA_SECURITY_PROTOCOL": "sasl_ssl",
        ])
        #expect(
            try KafkaConfiguration(reader, clientID: "test").properties == [
                "socket.timeout.ms": "100", "sasl.username": "me", "security.protocol": "sasl_ssl",
            ]
        )
    }
}
