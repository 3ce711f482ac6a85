import HTTPServer
import Kafka
import ServiceKit
import Settings

/// The simulator's configuration from its environment.
struct SimulatorConfiguration: Sendable {
    var host: String
    /// The port of the control and of MPNS' unauthenticated channels.
    var controlPort: Int
    var providerPort: Int
    var sandboxPort: Int
    var publicHost: String
    var credentialsFolder: String
    var authorityFile: String
    var hostsKafka: Bool
    var kafkaTopicPrefix: String
    var kafkaPartitions: Int

    init(reader: ConfigurationReader) throws {
        host = try reader.value(of: HTTPServerConfiguration.Variable.host)
        guard !reader.isSetEmpty(Variable.controlPort) else {
            throw ConfigurationError("HTTP_PORT", "is empty; the simulator is controlled there")
        }
        controlPort = try reader.value(of: Variable.controlPort)
        providerPort = try reader.value(of: Variable.providerPort)
        sandboxPort = try reader.value(of: Variable.sandboxPort)
        publicHost = try reader.value(of: Variable.publicHost)
        credentialsFolder = try reader.value(of: Variable.credentialsFolder)
        authorityFile =
            try reader.optional(Variable.authorityFile) ?? credentialsFolder + "/ca.pem"
        hostsKafka = try reader.value(of: Variable.hostsKafka)
        kafkaTopicPrefix = try reader.value(of: KafkaConfiguration.Variable.topicPrefix)
        kafkaPartitions = try reader.value(of: Variable.kafkaPartitions)
    }

    static let variables = Variable.all

    enum Variable {
        private static let ports = HTTPServerConfiguration.Variable.ports

        static let controlPort = Setting<Int>(
            "HTTP_PORT",
            in: ports,
            default: 8085,
            "the simulator's control, and MPNS' channels without certificates; 0: any free port"
        )
        static let providerPort = Setting<Int>(
            "HTTP_TLS_PORT",
            in: ports,
            default: 8443,
            "the simulated providers; 0: any free port"
        )
        static let sandboxPort = Setting<Int>(
            "SIMULATOR_SANDBOX_PORT",
            in: ports,
            default: 8444,
            "the simulated sandbox of APNs; 0: any free port"
        )
        static let publicHost = Setting<String>(
            "SIMULATOR_HOST",
            takes: "an address or a name",
            default: "127.0.0.1",
            "host name of the simulator, for token_uri and its certificate"
        )
        static let credentialsFolder = Setting<String>(
            "SIMULATOR_CREDENTIALS_DIR",
            takes: "a folder's path",
            default: "./carillon-simulator",
            "folder of the credentials; those of an earlier start are used again"
        )
        static let authorityFile = Setting<String>(
            "SIMULATOR_CA_FILE",
            takes: "a file's path",
            shown: "ca.pem in the folder",
            "file for the CA certificate that PROVIDER_CA_FILE names"
        )
        static let hostsKafka = Setting<Bool>(
            "SIMULATOR_KAFKA",
            default: false,
            "whether it hosts librdkafka's mock cluster, which loses everything when it stops"
        )
        static let kafkaPartitions = KafkaConfiguration.Variable.partitions(atMost: 1000)

        static let all: [SettingEntry] = [
            HTTPServerConfiguration.Variable.host.entry, controlPort.entry, providerPort.entry,
            sandboxPort.entry, publicHost.entry, credentialsFolder.entry, authorityFile.entry,
            hostsKafka.entry, KafkaConfiguration.Variable.topicPrefix.entry, kafkaPartitions.entry,
        ]
    }

    /// The names and addresses of the server certificate.
    var certificateHosts: [String] {
        let usual = ["localhost", "127.0.0.1", "::1", "simulator", "carillon-simulator"]
        let own = [publicHost, host].filter { $0 != "0.0.0.0" && $0 != "::" }
        return usual + own.filter { !usual.contains($0) }
    }
}
