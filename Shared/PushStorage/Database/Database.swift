import Cryptography
import Observability
import Postgres
import PushCore

/// How the database is reached.
package struct DatabaseConfiguration: Sendable {
    /// A libpq URI. Secret.
    package var uri: String
    /// Connections of one loop, 2 or more.
    package var connections: Int
    /// What `pg_stat_activity` shows.
    package var applicationName: String
    /// How long a transaction may wait for this process before the server ends its connection; zero:
    /// for ever.
    package var idleTransactionTimeout: Duration
    /// The schema; `nil`: what the URI or the server says.
    package var searchPath: String?

    package init(
        uri: String,
        connections: Int = 4,
        applicationName: String = "carillon",
        idleTransactionTimeout: Duration = .zero,
        searchPath: String? = nil
    ) {
        self.uri = uri
        self.connections = connections
        self.applicationName = applicationName
        self.idleTransactionTimeout = idleTransactionTimeout
        self.searchPath = searchPath
    }

    /// What is wrong with a `DATABASE_URL`, without showing it; `nil` where it can be tried.
    package static func problem(ofURL text: String) -> String? {
        PostgresConfiguration.problem(ofURI: text)
    }
}

/// What all stores stand on: one loop's connections, and how a statement, a transaction or a client's
/// question goes over them. It knows no table.
final class Database: Sendable {
    let pool: PostgresPool
    let erasureKey: ErasureKey
    let clock: DatabaseClock
    private let questions: QueryGate

    init(
        _ configuration: DatabaseConfiguration,
        keys: KeyRing?,
        settings: [(name: String, value: String)] = [],
        clock: DatabaseClock,
        on loop: PostgresLoop,
        log: Log,
        metrics: Metrics?
    ) {
        erasureKey = ErasureKey(keys)
        self.clock = clock
        questions = QueryGate(limit: configuration.connections / 2)
        pool = PostgresPool(
            PostgresConfiguration(
                uri: configuration.uri,
                connections: configuration.connections,
                applicationName: configuration.applicationName,
                idleTransactionTimeout: configuration.idleTransactionTimeout,
                settings: settings,
                searchPath: configuration.searchPath
            ),
            on: loop,
            log: log,
            metrics: metrics
        )
    }

    func execute(_ sql: String, _ parameters: [PostgresValue] = []) async throws -> PostgresResult {
        try await execute([(sql, parameters)])[0]
    }

    /// Statements in one round trip, in their order; none is a part of another's transaction.
    func execute(
        _ statements: [(sql: String, parameters: [PostgresValue])]
    ) async throws -> [PostgresResult] {
        do {
            return try await pool.execute(statements)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
    }

    /// One statement whose first row has Postgres' time as `now`: it measures the clock.
    func executeMeasuring(
        _ sql: String,
        _ parameters: [PostgresValue] = []
    ) async throws -> PostgresResult {
        let asked = SteadyInstant.now()
        let result = try await execute(sql, parameters)
        if let row = result.first {
            clock.measured(try row.instant("now"), asked: asked, answered: .now())
        }
        return result
    }

    /// One statement that holds a client's condition: on a connection of its own, of which others
    /// are left for everything else, and for a few seconds at most.
    ///
    /// - Throws: `StorageError`, of which `isStatementTimeout` says that the condition asks too much.
    func ask(_ sql: String, _ parameters: [PostgresValue]) async throws -> PostgresResult {
        try await questions.enter()
        defer { questions.leave() }
        return try await transaction { transaction in
            try await transaction.pipeline(
                [("SELECT set_config('statement_timeout', '5000', true)", []), (sql, parameters)],
                isPrepared: false
            )[1]
        }
    }

    /// One statement outside of any transaction, without a timeout.
    func executeAlone(_ sql: String) async throws {
        try await executeAlone([sql])
    }

    /// Statements on one connection, each outside of any transaction and without a timeout; `finally`
    /// runs at the end, also after a failure.
    func executeAlone(_ statements: [String], finally: String = "") async throws {
        do {
            try await pool.executeAlone(statements, finally: finally)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
    }

    /// One transaction. What collided with another is tried again, a few times.
    func transaction<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        try await again { pool in try await pool.transaction(body) }
    }

    /// One transaction and one round trip, of statements none of which depends on another's result. What
    /// collided with another is tried again, a few times.
    func transaction(
        of statements: [(sql: String, parameters: [PostgresValue])]
    ) async throws -> [PostgresResult] {
        try await again { pool in try await pool.transaction(of: statements) }
    }

    private func again<Value: Sendable>(
        _ body: (PostgresPool) async throws -> Value
    ) async throws -> Value {
        var attempt = 1
        while true {
            do {
                return try await body(pool)
            } catch let error as PostgresError {
                let collided = ["40001", "40P01", "23505"].contains(error.sqlState ?? "")
                guard collided, attempt < 4 else { throw StorageError(error) }
                attempt += 1
            }
        }
    }

    /// Calls `handler` on each notification, and with an empty text after every reconnect, when
    /// some may have been missed. It ends with the pool.
    func onNotification(
        _ channel: StorageChannel,
        _ handler: @escaping @Sendable (String) -> Void
    ) async throws {
        do {
            _ = try await pool.listen(channel.rawValue, handler)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
    }
}
