import Cryptography
import EventLoop
import Kafka
import PushEvents
import PushProviders
import PushStorage
import ServiceKit

/// What commands share: the variables, read when a command needs them, and the door to Postgres,
/// closed at the end.
final class CommandContext: Sendable {
    let reader: ConfigurationReader
    let loop: EventLoop
    private let opened: Opened

    /// Commands run one after another on the loop, so one at a time touches it.
    private final class Opened: @unchecked Sendable {
        var database: PushDatabase?
    }

    init(reader: ConfigurationReader, loop: EventLoop) {
        self.reader = reader
        self.loop = loop
        opened = Opened()
    }

    func close() async {
        await opened.database?.close()
    }

    /// The database, whatever its schema.
    func bareDatabase() throws -> PushDatabase {
        if let database = opened.database { return database }
        let database = PushDatabase(
            DatabaseConfiguration(
                uri: try reader.secret(
                    "DATABASE_URL",
                    problem: DatabaseConfiguration.problem(ofURL:)
                ),
                connections: 2,
                applicationName: "carillon"
            ),
            on: loop
        )
        opened.database = database
        return database
    }

    /// The database, once its schema is known to be one that this version may use.
    func database() async throws -> PushDatabase {
        let database = try bareDatabase()
        switch try await database.schemaState() {
        case .usable: return database
        case .tooNew(let error): throw error
        case .missing:
            throw CommandFailure("the schema is missing: run carillon migrate first")
        case .behind(let version, let wanted):
            throw CommandFailure(
                "the schema is at version \(version), this command needs \(wanted): run carillon"
                    + " migrate first"
            )
        }
    }

    func masterKeys() throws -> KeyRing {
        let text = try reader.secret("CARILLON_MASTER_KEYS")
        do {
            return try KeyRing(text)
        } catch {
            throw ConfigurationError("CARILLON_MASTER_KEYS", "cannot be used: \(error)")
        }
    }

    func kafka() throws -> KafkaConfiguration {
        KafkaConfiguration(
            bootstrapServers: try reader.required("KAFKA_BOOTSTRAP_SERVERS"),
            properties: reader.kafkaProperties(),
            clientID: "carillon"
        )
    }

    var topics: KafkaTopics {
        KafkaTopics(prefix: reader.string("KAFKA_TOPIC_PREFIX", default: ""))
    }

    func partitions() throws -> Int {
        try reader.integer("KAFKA_PARTITIONS", in: 1...10_000, default: 12)
    }

    func providers() throws -> ProviderConfiguration {
        var configuration = ProviderConfiguration()
        func take(_ variable: String, _ field: WritableKeyPath<ProviderConfiguration, String>) {
            configuration[keyPath: field] = reader.string(
                variable,
                default: configuration[keyPath: field]
            )
        }
        take("APNS_PRODUCTION_URL", \.apnsProductionURL)
        take("APNS_SANDBOX_URL", \.apnsSandboxURL)
        take("FCM_URL", \.fcmURL)
        take("WNS_LIVE_TOKEN_URL", \.wnsLiveTokenURL)
        take("WNS_ENTRA_TOKEN_URL", \.wnsEntraTokenURL)
        configuration.fcmTokenHosts = reader.list(
            "FCM_TOKEN_HOSTS",
            default: configuration.fcmTokenHosts
        )
        configuration.wnsChannelHosts = reader.list(
            "WNS_CHANNEL_HOSTS",
            default: configuration.wnsChannelHosts
        )
        configuration.mpnsChannelHosts = reader.list(
            "MPNS_CHANNEL_HOSTS",
            default: configuration.mpnsChannelHosts
        )
        configuration.caFile = reader.optional("PROVIDER_CA_FILE")
        configuration.proxy = reader.optional("HTTPS_PROXY")
        configuration.noProxy = reader.optional("NO_PROXY")
        do throws(ProviderConfiguration.InvalidSetting) {
            try configuration.validate()
        } catch {
            throw ConfigurationError(error.variable, error.problem)
        }
        return configuration
    }

    /// The text of a file that an option names.
    func file(_ path: String, _ option: String) throws -> String {
        guard let text = readTextFile(path) else {
            throw ArgumentsError("\(option) names a file that cannot be read as text: \(path)")
        }
        return text
    }

    /// A file's one line: what a secret is kept as.
    func line(ofFile path: String, _ option: String) throws -> String {
        var text = try file(path, option)[...]
        while let last = text.last, last.isNewline { text.removeLast() }
        guard !text.isEmpty, !text.contains(where: \.isNewline) else {
            throw ArgumentsError("\(option) names a file that does not hold one line")
        }
        return String(text)
    }
}
