package import Cryptography
package import Observability
package import Postgres
package import PushCore

/// The settings of a database connection.
package struct DatabaseConfiguration: Sendable {
    /// A libpq URI. Secret.
    package var uri: String
    /// Connections of one loop, 2 or more.
    package var connections: Int
    /// The name that `pg_stat_activity` shows.
    package var applicationName: String
    /// The time that a transaction may wait for this process before the server closes its
    /// connection; zero: for ever.
    package var idleTransactionTimeout: Duration
    /// The schema; `nil`: the one of the URI or the server's default.
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

    /// Returns why a `DATABASE_URL` is invalid, without showing it; `nil` if it is valid.
    package static func problem(ofURL text: String) -> String? {
        PostgresConfiguration.problem(ofURI: text)
    }
}

/// The base of all stores: one loop's connections, and the ways to run a statement, a transaction or
/// a client's condition on them. It knows no table.
package final class Database: Sendable {
    package let pool: PostgresPool
    package let erasureKey: ErasureKey
    package let clock: DatabaseClock
    private let questions: QueryGate

    package init(
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

    package func execute(_ sql: String, _ parameters: [PostgresValue] = []) async throws
        -> PostgresResult
    {
        try await execute([(sql, parameters)])[0]
    }

    /// Executes statements in one round trip, in their order; each is a transaction of its own.
    package func execute(
        _ statements: [(sql: String, parameters: [PostgresValue])]
    ) async throws -> [PostgresResult] {
        do {
            return try await pool.execute(statements)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
    }

    /// Executes a statement whose first row has Postgres' time as `now`, and measures the clock by it.
    package func executeMeasuring(
        _ sql: String,
        _ parameters: [PostgresValue] = []
    ) async throws -> PostgresResult {
        let asked = MonotonicInstant.now()
        let result = try await execute(sql, parameters)
        if let row = result.first {
            clock.measured(try row.instant("now"), asked: asked, answered: .now())
        }
        return result
    }

    /// Executes a statement that contains a client's condition: on one of a limited number of
    /// connections, which leaves some for all other statements, and for 5 s at most.
    ///
    /// - Throws: `StorageError`; `isStatementTimeout` if the condition takes too long.
    package func ask(_ sql: String, _ parameters: [PostgresValue]) async throws -> PostgresResult {
        try await questions.enter()
        defer { questions.leave() }
        return try await transaction { transaction in
            try await transaction.pipeline(
                [("SELECT set_config('statement_timeout', '5000', true)", []), (sql, parameters)],
                isPrepared: false
            )[1]
        }
    }

    /// Runs a transaction with a client's condition on one of the connections of `ask`; it sets its own
    /// time limit.
    package func asking<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        try await questions.enter()
        defer { questions.leave() }
        return try await transaction(body)
    }

    /// Executes one statement outside of any transaction, without a timeout.
    package func executeAlone(_ sql: String) async throws {
        try await executeAlone([sql])
    }

    /// Executes statements on one connection, each outside of any transaction and without a timeout;
    /// `finally` runs at the end, also after a failure.
    package func executeAlone(_ statements: [String], finally: String = "") async throws {
        do {
            try await pool.executeAlone(statements, finally: finally)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
    }

    /// Runs one transaction. Collisions with other transactions are retried, a few times.
    package func transaction<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        try await again { pool in try await pool.transaction(body) }
    }

    /// Runs one transaction in one round trip, of statements that do not depend on each other's
    /// results. Collisions with other transactions are retried, a few times.
    package func transaction(
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

    /// Calls `handler` on each notification, and with an empty string after every reconnect, when
    /// notifications may have been missed. The subscription ends with the pool.
    package func onNotification(
        _ channel: NotifyChannel,
        _ handler: @escaping @Sendable (String) -> Void
    ) async throws {
        do {
            _ = try await pool.listen(channel.rawValue, handler)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
    }
}
