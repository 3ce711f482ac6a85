import HTTPServer
import ServiceKit

/// What the simulator is told by its environment.
struct SimulatorConfiguration: Sendable {
    /// `HTTP_HOST`: the address of every listener. Default `0.0.0.0`.
    var host: String
    /// `HTTP_PORT`: the control's plain port, where MPNS' unauthenticated channels are too. 0: any
    /// free one. Default 8085.
    var controlPort: Int
    /// `HTTP_TLS_PORT`: the providers. Default 8443.
    var providerPort: Int
    /// `SIMULATOR_SANDBOX_PORT`: APNs' sandbox. Default 8444.
    var sandboxPort: Int
    /// `SIMULATOR_HOST`: the name by which the simulator is reached: what `token_uri` says, and a
    /// name of its certificate. Default `127.0.0.1`.
    var publicHost: String
    /// `SIMULATOR_CREDENTIALS_DIR`: where credentials are written, or taken up from an earlier
    /// start. Default `./carillon-simulator`.
    var credentialsFolder: String
    /// `SIMULATOR_CA_FILE`: where the CA's certificate is written. Default `ca.pem` in the folder.
    var authorityFile: String
    /// `SIMULATOR_KAFKA`: whether it hosts librdkafka's mock cluster. Default false.
    var hostsKafka: Bool
    /// `KAFKA_TOPIC_PREFIX`. Default empty.
    var kafkaTopicPrefix: String
    /// `KAFKA_PARTITIONS`: of each topic, 1...1000. Default 12.
    var kafkaPartitions: Int

    init(reader: ConfigurationReader) throws {
        let ports = 0...65_535
        host = reader.string("HTTP_HOST", default: "0.0.0.0")
        guard !reader.isSetEmpty("HTTP_PORT") else {
            throw ConfigurationError("HTTP_PORT", "is empty; the simulator is controlled there")
        }
        controlPort = try reader.integer("HTTP_PORT", in: ports, default: 8085)
        providerPort = try reader.integer("HTTP_TLS_PORT", in: ports, default: 8443)
        sandboxPort = try reader.integer("SIMULATOR_SANDBOX_PORT", in: ports, default: 8444)
        publicHost = reader.string("SIMULATOR_HOST", default: "127.0.0.1")
        credentialsFolder = reader.string(
            "SIMULATOR_CREDENTIALS_DIR",
            default: "./carillon-simulator"
        )
        authorityFile = reader.string(
            "SIMULATOR_CA_FILE",
            default: credentialsFolder + "/ca.pem"
        )
        hostsKafka = try reader.boolean("SIMULATOR_KAFKA", default: false)
        kafkaTopicPrefix = reader.string("KAFKA_TOPIC_PREFIX", default: "")
        kafkaPartitions = try reader.integer("KAFKA_PARTITIONS", in: 1...1000, default: 12)
    }

    /// Names and addresses of the server certificate.
    var certificateHosts: [String] {
        let usual = ["localhost", "127.0.0.1", "::1", "simulator", "carillon-simulator"]
        let own = [publicHost, host].filter { $0 != "0.0.0.0" && $0 != "::" }
        return usual + own.filter { !usual.contains($0) }
    }
}
