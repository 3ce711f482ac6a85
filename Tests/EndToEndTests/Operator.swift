import Cryptography
import JSON
import Kafka
import Support

/// Runs the command against a database and a broker that no service uses.
struct Operator {
    let database: TestDatabase
    fileprivate let cluster: MockKafkaCluster
    fileprivate let environment: [String: String]

    /// Returns the same command with other variables.
    func with(_ variables: [String: String]) -> Operator {
        Operator(
            database: database,
            cluster: cluster,
            environment: environment.merging(variables) { $1 }
        )
    }

    /// Makes a Kafka topic that the command would make, as a mock cluster does not create it.
    func createTopic(_ name: String) throws { try cluster.createTopic(name, partitions: 2) }

    var bootstrapServers: String { cluster.bootstrapServers }

    /// Starts the command and returns its process.
    func start(_ words: String...) async throws -> ChildProcess {
        try await ChildProcess.start(
            Stack.executable("carillon"),
            words,
            environment: environment
        )
    }

    /// The master keys that it seals with.
    var masterKeys: String { environment["CARILLON_MASTER_KEYS"] ?? "" }

    @discardableResult
    func callAsFunction(_ words: [String], input: String = "") async throws -> ProgramAnswer {
        try await run(
            Stack.executable("carillon"),
            words,
            environment: environment,
            input: Array(input.utf8)
        )
    }

    /// Returns its output, and expects success.
    @discardableResult
    func says(_ words: String..., input: String = "") async throws -> String {
        try await self(words, input: input).successful(words.joined(separator: " "))
    }

    /// Returns its output with `--json`.
    func json(_ words: String..., input: String = "") async throws -> JSONValue {
        try JSONValue.parse(
            try await self(words + ["--json"], input: input)
                .successful(words.joined(separator: " "))
        )
    }

    /// Returns its error, and expects this exit code.
    func refuses(
        _ words: String...,
        input: String = "",
        code: Int32 = 1
    ) async throws -> String {
        let answer = try await self(words, input: input)
        guard answer.exit == .status(code) else {
            throw TestFailure("\(words) ended with \(answer.exit): \(answer.errors)")
        }
        return answer.errors
    }
}

/// Runs the body with a database and a broker of its own, which no service uses.
func withOperator(
    _ body: (_ carillon: Operator) async throws -> Void
) async throws {
    let database = try await TestDatabase.make()
    let cluster = try MockKafkaCluster()
    for topic in Stack.topics {
        try cluster.createTopic(topic, partitions: 2)
    }
    let environment = [
        "DATABASE_URL": database.url,
        "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrapServers,
        "CARILLON_MASTER_KEYS": "test:\(Base64.encode(randomBytes(32)))",
    ]
    let result: Result<Void, any Error>
    do {
        try await body(Operator(database: database, cluster: cluster, environment: environment))
        result = .success(())
    } catch {
        result = .failure(error)
    }
    cluster.close()
    try await database.drop()
    try result.get()
}
