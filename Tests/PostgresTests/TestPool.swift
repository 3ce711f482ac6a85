import EventLoop
import Foundation
import Observability
import Postgres
import Testing

/// The server that these tests need, by `DATABASE_URL`.
enum TestServer {
    static let url = ProcessInfo.processInfo.environment["DATABASE_URL"]
    static var isThere: Bool { url?.isEmpty == false }
    static let reason: Comment = "DATABASE_URL names no Postgres"
}

/// A pool on a loop of its own, in a schema of its own that is dropped afterwards.
struct TestPool: Sendable {
    let loop: EventLoop
    let pool: PostgresPool
    let schema: String
    let configuration: PostgresConfiguration
    let metrics: Metrics

    static func with(
        _ adjust: (inout PostgresConfiguration) -> Void = { _ in },
        _ body: (TestPool) async throws -> Void
    ) async throws {
        let schema = "t_" + UUID().uuidString.lowercased().replacing("-", with: "")
        var configuration = PostgresConfiguration(
            uri: TestServer.url ?? "",
            applicationName: schema,
            searchPath: schema
        )
        adjust(&configuration)
        let loop = try EventLoop(name: "postgres-test")
        let metrics = Metrics()
        let pool = PostgresPool(configuration, on: loop, metrics: metrics)
        let test = TestPool(
            loop: loop,
            pool: pool,
            schema: schema,
            configuration: configuration,
            metrics: metrics
        )
        var failure: (any Error)?
        do {
            _ = try await pool.execute("CREATE SCHEMA \(schema)")
            try await body(test)
        } catch { failure = error }
        await pool.close()
        let cleaner = PostgresPool(configuration, on: loop)
        _ = try? await cleaner.execute("DROP SCHEMA \(schema) CASCADE")
        await cleaner.close()
        await loop.stop()
        if let failure { throw failure }
    }

    /// Runs `body` with another pool in the same schema.
    func withAnother(
        _ adjust: (inout PostgresConfiguration) -> Void = { _ in },
        _ body: (PostgresPool) async throws -> Void
    ) async throws {
        var configuration = configuration
        configuration.applicationName += "_b"
        adjust(&configuration)
        let other = PostgresPool(configuration, on: loop)
        do {
            try await body(other)
            await other.close()
        } catch {
            await other.close()
            throw error
        }
    }

    /// Ends every backend of this test's pool, as an administrator does.
    func killBackends(by other: PostgresPool) async throws -> Int {
        let killed = try await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1",
            [.text(configuration.applicationName)]
        )
        return killed.count
    }

    /// Polls Postgres until `sql` is true, for changes that no event announces.
    func until(_ sql: String, _ parameters: [PostgresValue] = []) async throws {
        while try await !pool.execute(sql, parameters)[0].boolean(0) {
            try await loop.sleep(for: .milliseconds(5))
        }
    }
}

/// The error of `expectError` when the call succeeded.
struct NoError: Error {}

/// Returns the `PostgresError` that `body` throws.
func postgresError(
    _ body: () async throws -> Void,
    _ location: SourceLocation = #_sourceLocation
) async throws -> PostgresError {
    do {
        try await body()
    } catch let error as PostgresError {
        return error
    }
    Issue.record("nothing was thrown", sourceLocation: location)
    throw NoError()
}
