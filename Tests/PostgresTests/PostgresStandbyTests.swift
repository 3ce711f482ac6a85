import Testing

@testable import Postgres

/// After a failover a connection may lead to a server that is a standby now: it answers, but
/// rejects writes.
@Suite(.enabled(if: TestServer.isThere, TestServer.reason), .timeLimit(.minutes(1)))
struct PostgresStandbyTests {
    enum Call: CaseIterable {
        case statement, transaction, pipeline, script, copy, stream, alone
    }

    @Test("A connection to a read-only server is closed", arguments: Call.allCases)
    func givenUp(_ call: Call) async throws {
        try await TestPool.with({ $0.connections = 2 }) { test in
            let pool = test.pool
            _ = try await pool.execute("CREATE TABLE t (n bigint)")
            let becomeStandby = "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY"
            _ = try await pool.execute(becomeStandby)
            try await pool.executeAlone([becomeStandby])
            let error = try await postgresError { try await write(call, pool) }
            #expect(error.isRetryable)
            #expect(error.sqlState == "25006")
            // It runs on another connection, once there is one.
            try await write(call, pool)
            #expect(try await pool.execute("SELECT n FROM t").count == 1)
        }
    }

    private func write(_ call: Call, _ pool: PostgresPool) async throws {
        let sql = "INSERT INTO t VALUES (1) RETURNING n"
        switch call {
        case .statement: _ = try await pool.execute(sql)
        case .transaction: try await pool.transaction { _ = try await $0.execute(sql) }
        case .pipeline:
            try await pool.transaction {
                _ = try await $0.pipeline([("SELECT 1", []), (sql, []), ("SELECT 2", [])])
            }
        case .script: try await pool.transaction { try await $0.script(sql) }
        case .copy:
            nonisolated(unsafe) var rows: [[PostgresValue]]? = [[.integer(1)]]
            _ = try await pool.copyIn(table: "t", columns: ["n"]) {
                defer { unsafe rows = nil }
                return unsafe rows
            }
        case .stream: _ = try await pool.stream(sql) { _ in }
        case .alone: try await pool.executeAlone([sql])
        }
    }

    @Test("An abandoned transaction ends with its connection, and its locks are released")
    func leftAlone() async throws {
        try await TestPool.with({ $0.idleTransactionTimeout = .milliseconds(200) }) { test in
            _ = try await test.pool.execute("CREATE TABLE t (n bigint)")
            _ = try await test.pool.execute("INSERT INTO t VALUES (1)")
            let error = try await postgresError {
                try await test.pool.transaction { transaction in
                    _ = try await transaction.execute("SELECT n FROM t FOR UPDATE")
                    // The statement waits for the lock, which only the server can release.
                    _ = try await test.pool.execute("UPDATE t SET n = 2")
                    _ = try await transaction.execute("UPDATE t SET n = 3")
                }
            }
            #expect(error.isRetryable)
            #expect(try await test.pool.execute("SELECT n FROM t")[0].integer(0) == 2)
        }
    }
}
