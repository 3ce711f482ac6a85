import Cryptography
import EventLoop
import Kafka
import Logins
import PushEvents
import PushProviders
import ServiceKit
import Settings
import Storage

/// The state that commands share: the variables, read when a command needs them, and the database,
/// closed at the end.
final class CommandContext: Sendable {
    let reader: ConfigurationReader
    let loop: EventLoop
    private let opened: Opened

    /// The opened database. Commands run one after another on the loop, so only one at a time uses
    /// it.
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

    /// Returns the database, whatever its schema.
    ///
    /// - Parameter keys: The key ring, for a command that erases: the fence's digests are keyed.
    /// - Returns: The single database of this process.
    /// - Throws: `ConfigurationError`.
    func bareDatabase(keys: KeyRing? = nil) throws -> PushDatabase {
        if let database = opened.database { return database }
        // One for single statements, and two for an import's transactions.
        let database = PushDatabase(
            try DatabaseConfiguration(reader, connections: 3, applicationName: "carillon"),
            keys: keys,
            on: loop
        )
        opened.database = database
        return database
    }

    /// Returns the database, if this version may use its schema.
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

    /// Returns the database, and the app of a command's first operand.
    func existingApp(_ arguments: Arguments) async throws -> (PushDatabase, app: String) {
        let database = try await database()
        let id = try arguments.operand(0, "app")
        return (database, try await Command.existing(id, database).id)
    }

    /// Returns the database, and the app of a command's first operand; fails if the app is being
    /// deleted.
    func openApp(
        _ arguments: Arguments,
        keys: KeyRing? = nil
    ) async throws -> (PushDatabase, app: String) {
        let database = try await database(keys: keys)
        return (database, try await Command.open(try arguments.operand(0, "app"), database).id)
    }

    /// Whether a database is configured, for commands that can work without it.
    var namesDatabase: Bool { reader.isSet(DatabaseConfiguration.Variable.url) }

    /// Whether the key ring is configured, for commands that need it only for some apps.
    var namesMasterKeys: Bool { reader.isSet(KeyRing.variable) }

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

    /// Returns the consumer group of the environment, if it is set.
    func groupID() throws -> String? { try reader.optional(Self.groupID) }

    private static let ingestURL = Setting<String>(
        "INGEST_URL",
        takes: "an http or https origin without a path",
        default: "http://127.0.0.1:8083",
        shown: "http://127.0.0.1:8083",
        "origin of carillon-ingest, for replaying dead letters"
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

    /// Returns the text of a file that an option names.
    func file(_ path: String, _ option: String) throws -> String {
        guard let text = readTextFile(path) else {
            throw ArgumentsError("\(option) names a file that cannot be read as text: \(path)")
        }
        return text
    }

    /// Returns the text of a file with exactly one line, the form of stored secrets.
    func line(ofFile path: String, _ option: String) throws -> String {
        var text = try file(path, option)[...]
        while let last = text.last, last.isNewline { text.removeLast() }
        guard !text.isEmpty, !text.contains(where: \.isNewline) else {
            throw ArgumentsError("\(option) names a file that does not hold one line")
        }
        return String(text)
    }
}
