import Cryptography
import EventLoop
import Kafka
import Logins
import PushEvents
import PushProviders
import PushStorage
import ServiceKit
import Settings

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
    ///
    /// - Parameter keys: For a command that erases, whose fence is keyed.
    /// - Returns: The one of this process.
    /// - Throws: `ConfigurationError`.
    func bareDatabase(keys: KeyRing? = nil) throws -> PushDatabase {
        if let database = opened.database { return database }
        let database = PushDatabase(
            try DatabaseConfiguration(reader, connections: 2, applicationName: "carillon"),
            keys: keys,
            on: loop
        )
        opened.database = database
        return database
    }

    /// The database, once its schema is known to be one that this version may use.
    func database(keys: KeyRing? = nil) async throws -> PushDatabase {
        let database = try bareDatabase(keys: keys)
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

    /// Whether a command that can do without the database has one.
    var namesDatabase: Bool { reader.isSet(DatabaseConfiguration.Variable.url) }

    func masterKeys() throws -> KeyRing { try reader.value(of: KeyRing.variable) }

    func kafka() throws -> KafkaConfiguration {
        try KafkaConfiguration(reader, clientID: "carillon")
    }

    func topics() throws -> KafkaTopics {
        KafkaTopics(prefix: try reader.value(of: KafkaConfiguration.Variable.topicPrefix))
    }

    private static let partitions = KafkaConfiguration.Variable.partitions(atMost: 10_000)

    func partitions() throws -> Int { try reader.value(of: Self.partitions) }

    private static let groupID = Setting<String>(
        "KAFKA_GROUP_ID",
        takes: "a consumer group's name",
        shown: "each service's own",
        "the group of every service that doctor looks at; --group tells them apart"
    )

    /// What the environment says of the services' groups, where it says anything.
    func groupID() throws -> String? { try reader.optional(Self.groupID) }

    private static let ingestURL = Setting<String>(
        "INGEST_URL",
        takes: "an http or https origin without a path",
        default: "http://127.0.0.1:8083",
        shown: "http://127.0.0.1:8083",
        "where carillon-ingest is, for dead letters that it takes again"
    ) { text in
        let schemes = ["http://", "https://"]
        guard let scheme = schemes.first(where: text.hasPrefix) else { return nil }
        let host = text.dropFirst(scheme.count)
        guard !host.isEmpty, !host.contains(where: { "/?#@ ".contains($0) }) else { return nil }
        return text
    }

    func ingestURL() throws -> String { try reader.value(of: Self.ingestURL) }

    func providers() throws -> ProviderConfiguration { try ProviderConfiguration(reader) }

    func jwks() throws -> JWKSConfiguration { try JWKSConfiguration(reader) }

    static let variables =
        [ConfigurationReader.file.entry] + DatabaseConfiguration.Variable.all
        + [KeyRing.variable.entry] + KafkaConfiguration.Variable.all
        + [partitions.entry, groupID.entry] + ProviderConfiguration.Variable.all
        + [JWKSConfiguration.Variable.hosts.entry, ingestURL.entry]

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
