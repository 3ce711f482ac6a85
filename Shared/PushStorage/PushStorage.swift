// PushStorage is all of Carillon's SQL: the schema as numbered migrations, and stores that turn rows
// into values and back. Values travel only as bound parameters, everything moves by the batch.
//
// Authority: the tables are written here and nowhere else. What is claimed (a delivery, a push in
// planning) carries the session that claimed it, and every later write says so again, so that a
// dispatcher that stalled and came back changes nothing.
//
// Lock order, so that no two transactions wait for each other: a dispatcher's session, then shards
// by (push, number), then pushes by id, then deliveries, then installations by (app, object id).
// Who writes new shards holds their push; nobody waits for a shard while he holds a push.
//
// Shutdown: `run` ends when its task is cancelled, after the pool has answered what is in flight.

package import Observability
package import Postgres

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

/// One loop's door to the database.
package final class PushDatabase: Sendable {
    let pool: PostgresPool
    let zoneNames = ZoneNames()
    private let questions: QueryGate
    let saves = InstallationSaves()
    let fieldTypes = FieldTypes()
    private let log: Log
    private let schema = SchemaWatch()

    package init(
        _ configuration: DatabaseConfiguration,
        on loop: PostgresLoop,
        log: Log = .disabled,
        metrics: Metrics? = nil
    ) {
        self.log = log
        questions = QueryGate(limit: configuration.connections / 2)
        pool = PostgresPool(
            PostgresConfiguration(
                uri: configuration.uri,
                connections: configuration.connections,
                applicationName: configuration.applicationName,
                idleTransactionTimeout: configuration.idleTransactionTimeout,
                searchPath: configuration.searchPath
            ),
            on: loop,
            log: log,
            metrics: metrics
        )
        saves.open(self, on: loop)
    }

    package var apps: AppStore { AppStore(database: self) }
    package var credentials: CredentialStore { CredentialStore(database: self) }
    package var installations: InstallationStore { InstallationStore(database: self) }
    package var fieldIndexes: FieldIndexStore { FieldIndexStore(database: self) }
    package var pushes: PushStore { PushStore(database: self) }
    package var hubTemplates: HubTemplateStore { HubTemplateStore(database: self) }
    package var deliveries: DeliveryStore { DeliveryStore(database: self) }
    package var shards: ShardStore { ShardStore(database: self) }
    package var sessions: SessionStore { SessionStore(database: self) }
    package var outbox: OutboxStore { OutboxStore(database: self) }
    package var audit: AuditStore { AuditStore(database: self) }
    package var sealed: SealedStore { SealedStore(database: self) }
    package var erasures: ErasureStore { ErasureStore(database: self) }
    package var maintenance: Maintenance { Maintenance(database: self) }

    /// Keeps connections, and an eye on the schema's version. Ends when its task is cancelled.
    ///
    /// - Throws: `SchemaTooNew` as soon as the schema says that this version may not use it.
    package func run() async throws {
        try await withThrowingTaskGroup(of: Void.self) { group in
            group.addTask { try await self.pool.run() }
            group.addTask { try await self.watchSchema() }
            defer { group.cancelAll() }
            // The first to end ends both: the pool on cancellation, the watch on a schema too new.
            while try await group.next() != nil {
                if Task.isCancelled { continue }
                group.cancelAll()
            }
        }
    }

    /// Why the database cannot be used now; `nil` when it can.
    package func notReadyReason() -> String? {
        pool.notReadyReason() ?? schema.notReadyReason
    }

    /// Waits until the schema can be used. Ends early only by cancellation.
    package func untilReady() async throws {
        while schema.notReadyReason != nil {
            try await Task.sleep(for: .milliseconds(50))
        }
    }

    /// Ends the pool without `run`: for commands and tests.
    package func close() async {
        await pool.close()
    }

    private func watchSchema() async throws {
        while !Task.isCancelled {
            do {
                let state = try await schemaState()
                if case .tooNew(let error) = state { throw error }
                if schema.update(state), let reason = state.notReadyReason {
                    log.info("waiting for the schema", [.reason: .string(reason)])
                }
            } catch let error as StorageError {
                log.debug("cannot read the schema's version", [.error: .string(error.description)])
            }
            let wait: Duration = schema.notReadyReason == nil ? .seconds(10) : .milliseconds(250)
            do { try await Task.sleep(for: wait) } catch { return }
        }
    }

    // MARK: Calls

    func execute(_ sql: String, _ parameters: [PostgresValue] = []) async throws -> PostgresResult {
        do {
            return try await pool.execute(sql, parameters)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
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
        do {
            try await pool.executeAlone(sql)
        } catch let error as PostgresError {
            throw StorageError(error)
        }
    }

    /// One transaction. What collided with another is tried again, a few times.
    func transaction<Value: Sendable>(
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        var attempt = 1
        while true {
            do {
                return try await pool.transaction(body)
            } catch let error as PostgresError {
                let collided = ["40001", "40P01", "23505"].contains(error.sqlState ?? "")
                guard collided, attempt < 4 else { throw StorageError(error) }
                attempt += 1
            }
        }
    }
}

/// What was last seen of the schema; written by the watch, read by anyone.
private final class SchemaWatch: Sendable {
    private let lock = Lock()
    nonisolated(unsafe) private var reason: String? = "the schema was not looked at yet"

    var notReadyReason: String? { lock.withLock { unsafe reason } }

    /// Whether it is news.
    func update(_ state: SchemaState) -> Bool {
        lock.withLock {
            let changed = unsafe reason != state.notReadyReason
            unsafe reason = state.notReadyReason
            return changed
        }
    }
}
