import Postgres

/// The schema itself: its version, and the migration to this program's version.
struct SchemaStore: Sendable {
    let database: Database

    /// How long a step waits for a lock. Later statements wait behind the step for as long, so it
    /// soon gives up. The time is below Postgres' `deadlock_timeout`, so that in a deadlock this
    /// step fails first.
    private static let lockTimeout = "50ms"
    /// The first timeout of a step that holds locks; doubled each time that the step exceeds it.
    private static let statementTimeoutMilliseconds = 100
    private static let maximumStatementTimeoutMilliseconds = 10_000
    /// The time for which a step is retried if its tables are never free.
    private static let timeLimit: Duration = .seconds(600)
    /// The table size from which on an index is built concurrently with writes; for smaller tables,
    /// writes wait for some milliseconds.
    private static let largeTableBytes = 1 << 20

    private static let lockKey = "hashtextextended('carillon ' || current_schema(), 0)"

    func state() async throws -> SchemaState {
        let known = try await database.executeMeasuring(
            "SELECT to_regclass('carillon_schema') IS NOT NULL AS known, clock_timestamp() AS now"
        )
        guard try known.first?.boolean("known") == true else { return .missing }
        let result = try await database.execute(
            "SELECT max(version) AS version, max(oldest_usable) AS oldest FROM carillon_schema"
        )
        guard let row = result.first, let version = try row.integerOrNil("version") else {
            return .missing
        }
        return .assess(
            version: version,
            oldestUsable: try row.integerOrNil("oldest") ?? 0,
            own: Migration.current
        )
    }

    /// Migrates the schema to this version: safe to repeat, also after a kill in the middle, and safe to
    /// run concurrently.
    ///
    /// A schema in use is changed statement by statement, each recorded as done in its own
    /// transaction. A new schema is built migration by migration.
    ///
    /// - Parameter target: The version to stop at.
    /// - Returns: The versions that this call completed; empty if there was nothing to do.
    /// - Throws: `SchemaTooNew` if the schema excludes this version.
    func migrate(to target: Int = Migration.current) async throws -> [Int] {
        var version = 0
        switch try await state() {
        case .missing: break
        case .behind(let known, _), .usable(let known): version = known
        case .tooNew(let error): throw error
        }
        let missing = Migration.all.filter { $0.version > version && $0.version <= target }
        if missing.isEmpty { return [] }
        try await retryingUntilStopped("the schema's own tables") { limit in
            try await locked(statementTimeout: limit) { transaction in
                _ = try await transaction.execute(
                    """
                    CREATE TABLE IF NOT EXISTS carillon_schema (
                        version integer PRIMARY KEY,
                        oldest_usable integer NOT NULL,
                        applied_at timestamptz NOT NULL DEFAULT now())
                    """
                )
                _ = try await transaction.execute(
                    """
                    CREATE TABLE IF NOT EXISTS carillon_schema_steps (
                        version integer NOT NULL,
                        step integer NOT NULL,
                        PRIMARY KEY (version, step))
                    """
                )
            }
        }
        var applied: [Int] = []
        for migration in missing where try await apply(migration, isNew: version == 0) {
            applied.append(migration.version)
        }
        return applied
    }

    // MARK: One migration

    /// - Returns: Whether this call completed it.
    func apply(_ migration: Migration, isNew: Bool) async throws -> Bool {
        let steps = MigrationStep.steps(of: migration.statements)
        // A whole migration's statements depend on each other.
        if isNew || migration.isWhole {
            let result: Progress? = try await retryingUntilStopped("migration \(migration.version)")
            { _ in
                try await locked(statementTimeout: 0) { transaction -> Progress? in
                    let progress = try await progress(of: migration, transaction)
                    guard !progress.isOver, progress.done.isEmpty else { return progress }
                    for step in steps { _ = try await transaction.execute(step.sql) }
                    try await note(migration, transaction)
                    return nil
                }
            }
            guard let result else { return true }
            if result.isOver { return false }
        }
        var isCompletedHere = false
        for (number, step) in steps.enumerated() {
            let name = "step \(number + 1) of migration \(migration.version)"
            if case .index(let index, let table) = step.kind {
                try await buildIndex(step.sql, index, on: table, migration, number, name)
            }
            isCompletedHere = try await retryingUntilStopped(name) { limit in
                try await locked(statementTimeout: limit) { transaction in
                    let progress = try await progress(of: migration, transaction)
                    guard !progress.isOver, !progress.done.contains(number) else { return false }
                    // The statement comes last, so that its locks are held only until the commit.
                    if number == steps.count - 1 {
                        try await note(migration, transaction)
                    } else {
                        _ = try await transaction.execute(
                            "INSERT INTO carillon_schema_steps VALUES ($1, $2)",
                            [.integer(migration.version), .integer(number)]
                        )
                    }
                    if try await !isBuilt(step, transaction) {
                        _ = try await transaction.execute(step.sql)
                    }
                    return number == steps.count - 1
                }
            }
        }
        return isCompletedHere
    }

    private struct Progress: Sendable {
        var isOver = false
        var done: Set<Int> = []
    }

    private func progress(
        of migration: Migration,
        _ transaction: PostgresTransaction
    ) async throws -> Progress {
        let rows = try await transaction.execute(
            """
            SELECT coalesce(max(version), 0) AS version, coalesce(max(oldest_usable), 0) AS oldest
            FROM carillon_schema
            """
        )
        let version = try rows.first?.integer("version") ?? 0
        if case .tooNew(let error) = SchemaState.assess(
            version: version,
            oldestUsable: try rows.first?.integer("oldest") ?? 0,
            own: Migration.current
        ) {
            throw error
        }
        let steps = try await transaction.execute(
            "SELECT step FROM carillon_schema_steps WHERE version = $1",
            [.integer(migration.version)]
        )
        return Progress(
            isOver: version >= migration.version,
            done: Set(try steps.rows.map { try $0.integer("step") })
        )
    }

    private func note(_ migration: Migration, _ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(
            "DELETE FROM carillon_schema_steps WHERE version <= $1",
            [.integer(migration.version)]
        )
        _ = try await transaction.execute(
            "INSERT INTO carillon_schema (version, oldest_usable) VALUES ($1, $2)",
            [.integer(migration.version), .integer(migration.oldestUsable)]
        )
    }

    // MARK: Indexes

    /// Builds the large part of an index concurrently with writes. For a partitioned table these
    /// are its partitions' indexes, which the statement itself then only attaches.
    private func buildIndex(
        _ sql: String,
        _ index: String,
        on table: String,
        _ migration: Migration,
        _ number: Int,
        _ name: String
    ) async throws {
        let parts = try await database.execute(
            """
            SELECT c.oid::regclass::text AS part, c.oid = to_regclass($1) AS is_alone
            FROM pg_class c
            WHERE c.relkind = 'r' AND pg_relation_size(c.oid) >= $2
                AND (c.oid = to_regclass($1)
                    OR c.oid IN (SELECT relid FROM pg_partition_tree(to_regclass($1))))
                AND NOT EXISTS (SELECT FROM carillon_schema WHERE version >= $3)
                AND NOT EXISTS (SELECT FROM carillon_schema_steps WHERE version = $3 AND step = $4)
            """,
            [
                .text(table), .integer(Self.largeTableBytes), .integer(migration.version),
                .integer(number),
            ]
        ).rows
        for row in parts {
            let part = try row.text("part")
            let own = try row.boolean("is_alone") == true ? index : "\(part)_\(index)"
            let cut = String(own.prefix(63))
            guard
                let statement = Self.concurrently(sql, index, as: cut, on: part, instead: table)
            else { throw StorageError(.corrupt, "\(name) is not an index that can be built") }
            try await retryingUntilStopped(name) { _ in
                try await database.executeAlone(
                    [
                        // An index that was not finished is built again from the start.
                        """
                        DO $$ BEGIN
                            IF NOT pg_try_advisory_lock(\(Self.lockKey)) THEN
                                RAISE EXCEPTION 'another process migrates'
                                    USING ERRCODE = '\(Self.takenState)';
                            END IF;
                            IF EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass('\(cut)')
                                AND NOT indisvalid)
                            THEN
                                SET LOCAL lock_timeout = '\(Self.lockTimeout)';
                                DROP INDEX \(cut);
                            END IF;
                        END $$
                        """, "SET lock_timeout = 0", statement,
                    ],
                    finally: "SELECT pg_advisory_unlock_all()"
                )
            }
        }
    }

    static func concurrently(
        _ sql: String,
        _ index: String,
        as name: String,
        on part: String,
        instead table: String
    ) -> String? {
        guard let range = sql.firstRange(of: "INDEX \(index)"),
            let place = sql[range.upperBound...].firstRange(of: "ON \(table)")
        else { return nil }
        return "\(sql[..<range.lowerBound])INDEX CONCURRENTLY IF NOT EXISTS \(name) ON \(part)"
            + String(sql[place.upperBound...])
    }

    /// Whether the statement's index exists: `buildIndex` has built it.
    private func isBuilt(
        _ step: MigrationStep,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        guard case .index(let name, _) = step.kind else { return false }
        let row = try await transaction.execute(
            """
            SELECT EXISTS (SELECT FROM pg_index WHERE indexrelid = to_regclass($1) AND indisvalid)
                AS known
            """,
            [.text(name)]
        ).first
        return try row?.boolean("known") == true
    }

    // MARK: Locks

    /// Runs one transaction, in one process at a time.
    private func locked<Value: Sendable>(
        statementTimeout: Int,
        _ body: @escaping @Sendable (PostgresTransaction) async throws -> Value
    ) async throws -> Value {
        try await database.transaction { transaction in
            // Each schema has its own lock: tests migrate many of them at once. The transaction
            // does not wait for the lock, as that would delay the building of an index.
            let mine = try await transaction.execute(
                "SELECT pg_try_advisory_xact_lock(\(Self.lockKey)) AS mine"
            )
            guard try mine.first?.boolean("mine") == true else { throw Taken() }
            _ = try await transaction.execute("SET LOCAL lock_timeout = '\(Self.lockTimeout)'")
            _ = try await transaction.execute("SET LOCAL statement_timeout = \(statementTimeout)")
            return try await body(transaction)
        }
    }

    /// Our own SQLSTATE for "another process migrates".
    private static let takenState = "CA001"

    /// Another process migrates.
    private struct Taken: Error {}

    private static func isTaken(_ error: any Error) -> Bool {
        error is Taken || (error as? StorageError)?.sqlState == takenState
    }

    /// Retries a step that gave up its wait for a lock, after a pause in which other statements
    /// proceed.
    private func retryingUntilStopped<Value: Sendable>(
        _ name: String,
        _ body: (_ statementTimeout: Int) async throws -> Value
    ) async throws -> Value {
        let end = ContinuousClock.now + Self.timeLimit
        var limit = Self.statementTimeoutMilliseconds
        var pause = Duration.milliseconds(100)
        while true {
            do {
                return try await body(limit)
            } catch let error where Self.isTaken(error) {
                // The other process may take any time.
                try await Task.sleep(for: .milliseconds(50))
            } catch let error as StorageError where error.isOfOthersLocks {
                guard ContinuousClock.now < end else {
                    throw StorageError(
                        .database,
                        "\(name): its tables were never free: \(error.description). What is done stays"
                            + " done; end what holds them, a dump or a VACUUM, and migrate again",
                        isRetryable: true,
                        sqlState: error.sqlState
                    )
                }
                if error.isStatementTimeout {
                    limit = min(limit * 2, Self.maximumStatementTimeoutMilliseconds)
                }
                try await Task.sleep(for: pause * Double.random(in: 0.75...1.25))
                pause = min(pause * 2, .seconds(1))
            }
        }
    }
}

extension StorageError {
    /// Whether a lock was not free in time, or a deadlock or timeout ended the statement.
    fileprivate var isOfOthersLocks: Bool {
        ["55P03", "40P01", "57014"].contains(sqlState)
    }
}
