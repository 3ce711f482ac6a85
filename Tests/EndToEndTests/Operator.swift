import Cryptography
import JSON
import Kafka
import Support

/// A database and a broker of one's own, which no service runs on.
func withOperator(
    _ body: (_ carillon: ([String]) async throws -> ProgramAnswer) async throws -> Void
) async throws {
    let database = try await TestDatabase.make()
    let cluster = try MockKafkaCluster()
    for topic in ["push.requests", "push.outcomes", "push.dead-letters"] {
        try cluster.createTopic(topic, partitions: 2)
    }
    let environment = [
        "DATABASE_URL": database.url,
        "KAFKA_BOOTSTRAP_SERVERS": cluster.bootstrapServers,
        "CARILLON_MASTER_KEYS": "test:\(Base64.encode(randomBytes(32)))",
    ]
    let result: Result<Void, any Error>
    do {
        try await body { words in
            try await run(
                Stack.executable("carillon"),
                words,
                environment: environment
            )
        }
        result = .success(())
    } catch {
        result = .failure(error)
    }
    cluster.close()
    try await database.drop()
    try result.get()
}
