import EventLoop
import Foundation
import Synchronization
import Testing

@testable import Postgres

@Suite(.enabled(if: TestServer.isThere, TestServer.reason), .timeLimit(.minutes(1)))
struct PostgresTransactionTests {
    struct Refusal: Error {}

    private func count(_ test: TestPool) async throws -> Int {
        try await test.pool.execute("SELECT count(*) FROM t")[0].integer(0)
    }

    private func withTable(_ body: (TestPool) async throws -> Void) async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("CREATE TABLE t (n int PRIMARY KEY)")
            try await body(test)
        }
    }

    @Test("A transaction commits as a whole and returns the result of its body")
    func commits() async throws {
        try await withTable { test in
            let sum = try await test.pool.transaction { transaction in
                _ = try await transaction.execute("INSERT INTO t VALUES ($1)", [1])
                let results = try await transaction.pipeline([
                    ("INSERT INTO t VALUES ($1)", [2]), ("SELECT sum(n) FROM t", []),
                ])
                #expect(try await count(test) == 0, "others see nothing before the commit")
                return try results[1][0].integer(0)
            }
            #expect(sum == 3)
            #expect(try await count(test) == 2)
        }
    }

    @Test(
        "Statements that are sent with their COMMIT are stored all or not at all"
    )
    func complete() async throws {
        try await withTable { test in
            let results = try await test.pool.transaction(of: [
                ("INSERT INTO t VALUES ($1)", [1]), ("SELECT sum(n) FROM t", []),
            ])
            #expect(results.count == 2)
            #expect(try results[1][0].integer(0) == 1)
            #expect(try await count(test) == 1)
            let error = try await postgresError {
                _ = try await test.pool.transaction(of: [
                    ("INSERT INTO t VALUES (2)", []), ("INSERT INTO t VALUES (1)", []),
                    ("INSERT INTO t VALUES (3)", []),
                ])
            }
            #expect(error.sqlState == "23505")
            let refused = try await postgresError {
                _ = try await test.pool.transaction(of: [
                    ("INSERT INTO t VALUES (4)", []), ("SELECT $1::text", ["a\u{0}"]),
                ])
            }
            #expect(refused.kind == .encoding)
            #expect(try await count(test) == 1)
        }
    }

    @Test("An error of the body rolls back, and the connection is used again")
    func rollsBack() async throws {
        try await withTable { test in
            for _ in 0..<10 {
                await #expect(throws: Refusal.self) {
                    try await test.pool.transaction { transaction in
                        _ = try await transaction.execute("INSERT INTO t VALUES (1)")
                        throw Refusal()
                    }
                }
            }
            #expect(try await count(test) == 0)
            let backends = try await test.pool.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1",
                [.text(test.schema)]
            )
            #expect(try backends[0].integer(0) <= 2)
        }
    }

    @Test("A failed statement that the body ignores never leads to a partial commit")
    func swallowedError() async throws {
        try await withTable { test in
            let error = try await postgresError {
                try await test.pool.transaction { transaction in
                    _ = try await transaction.execute("INSERT INTO t VALUES (1)")
                    _ = try? await transaction.execute("INSERT INTO t VALUES (1)")
                }
            }
            #expect(error.sqlState == "23505")
            #expect(try await count(test) == 0)
        }
    }

    @Test("If the first statement fails with BEGIN, no later one runs outside of the transaction")
    func failedBegin() async throws {
        try await withTable { test in
            let error = try await postgresError {
                try await test.pool.transaction { transaction in
                    _ = try? await transaction.execute("SELECT 1/0")
                    _ = try await transaction.execute("INSERT INTO t VALUES (1)")
                }
            }
            #expect(error.sqlState == "22012")
            #expect(try await count(test) == 0)
        }
    }

    @Test("Cancelling a transaction in mid-statement rolls it back")
    func cancelled() async throws {
        try await withTable { test in
            let started = AsyncStream<Void>.makeStream()
            let task = Task(executorPreference: test.loop) {
                try await test.pool.transaction { transaction in
                    _ = try await transaction.execute("INSERT INTO t VALUES (1)")
                    started.continuation.yield()
                    _ = try await transaction.execute("SELECT pg_sleep(30)")
                }
            }
            for await _ in started.stream { break }
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            #expect(try await count(test) == 0)
            try await test.pool.transaction { transaction in
                _ = try await transaction.execute("INSERT INTO t VALUES (1)")
            }
            #expect(try await count(test) == 1)
        }
    }

    @Test("Callers that wait for a connection get it in order")
    func fairWaiting() async throws {
        try await TestPool.with({ $0.connections = 2 }) { test in
            let order = Mutex<[Int]>([])
            let answers = await test.all(40) { n in
                try await test.pool.transaction { transaction in
                    order.withLock { $0.append(n) }
                    _ = try await transaction.execute("SELECT 1")
                }
            }
            for answer in answers { try answer.get() }
            #expect(order.withLock { $0 } == Array(0..<40))
        }
    }

    @Test("Waiting for a connection is bounded in time, and a cancelled caller leaves the queue")
    func boundedWaiting() async throws {
        try await TestPool.with({
            $0.connections = 2
            $0.acquireTimeout = .seconds(1)
        }) { test in
            try await test.pool.transaction { transaction in
                _ = try await transaction.execute("SELECT 1")
                let late = try await postgresError { try await test.pool.transaction { _ in } }
                #expect(late.kind == .unavailable && late.isRetryable)
                let task = Task(executorPreference: test.loop) {
                    try await test.pool.transaction { _ in }
                }
                task.cancel()
                await #expect(throws: CancellationError.self) { try await task.value }
            }
            try await test.pool.transaction { transaction in
                _ = try await transaction.execute("SELECT 1")
            }
        }
    }

    @Test("A script runs after other statements have made room for theirs")
    func scriptAfterEvictions() async throws {
        try await TestPool.with({ $0.maximumPrepared = 2 }) { test in
            for round in 0..<20 {
                try await test.pool.transaction { transaction in
                    for number in 0..<3 {
                        _ = try await transaction.execute("SELECT \(round * 3 + number)")
                    }
                    try await transaction.script("SELECT 1; SELECT 2")
                }
            }
        }
    }

    @Test("A script of many statements runs in the transaction, and is rolled back with it")
    func scripts() async throws {
        try await TestPool.with { test in
            let script =
                "CREATE TABLE t (n int); INSERT INTO t VALUES (1); INSERT INTO t VALUES (2)"
            let error = try await postgresError {
                try await test.pool.transaction { transaction in
                    try await transaction.script(script + "; SELECT 1/0")
                }
            }
            #expect(error.sqlState == "22012")
            try await test.pool.transaction { transaction in try await transaction.script(script) }
            #expect(try await count(test) == 2)
        }
    }

    @Test("Closing waits for statements in flight")
    func closeDrains() async throws {
        try await withTable { test in
            try await test.withAnother { other in
                let started = AsyncStream<Void>.makeStream()
                let task = Task(executorPreference: test.loop) {
                    try await other.transaction { transaction in
                        _ = try await transaction.execute("INSERT INTO t VALUES (1)")
                        started.continuation.yield()
                        _ = try await transaction.execute("SELECT pg_sleep(0.2)")
                    }
                }
                for await _ in started.stream { break }
                await other.close()
                try await task.value
                let error = try await postgresError { try await other.transaction { _ in } }
                #expect(error.kind == .closed)
            }
            #expect(try await count(test) == 1)
        }
    }
}
