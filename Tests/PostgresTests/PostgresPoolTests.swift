import EventLoop
import Foundation
import JSON
import Observability
import Synchronization
import Testing

@testable import Postgres

@Suite(.enabled(if: TestServer.isThere, TestServer.reason), .timeLimit(.minutes(1)))
struct PostgresPoolTests {
    @Test("Every kind of value is read back unchanged")
    func roundTrip() async throws {
        try await TestPool.with { test in
            let result = try await test.pool.execute(
                """
                SELECT $1::text AS t, $2::bigint AS i, $3::float8 AS d, $4::bool AS b,
                    $5::bytea AS raw, $6::jsonb AS j, $7::uuid AS u, $8::timestamptz AS at,
                    $9::text[] AS ts, $10::int[] AS ns, $11::text AS none, $12::bytea[] AS raws
                """,
                [
                    "h\"ë\\", .integer(.min), 0.1, true, .bytes([0, 1, 255]),
                    .json(["a": [1, "x"]]), .uuid("6f1d3c6e-0000-8000-8000-0123456789ab"),
                    .timestamp(1_763_717_796_123_456), .textArray(["a", "b,\"c", ""]),
                    .integerArray([1, -2]), nil, .bytesArray([[1, 2], []]),
                ]
            )
            let row = try #require(result.first)
            #expect(try row.text("t") == "h\"ë\\")
            #expect(try row.integer("i") == .min)
            #expect(try row.double("d") == 0.1)
            #expect(try row.boolean("b"))
            #expect(try row.bytes("raw") == [0, 1, 255])
            #expect(try row.json("j") == ["a": [1, "x"]])
            #expect(try row.uuid("u") == "6f1d3c6e-0000-8000-8000-0123456789ab")
            #expect(try row.timestampMicroseconds("at") == 1_763_717_796_123_456)
            #expect(try row.textArray("ts") == ["a", "b,\"c", ""])
            #expect(try row.integerArray("ns") == [1, -2])
            #expect(try row.textOrNil("none") == nil)
            #expect(try row.text("raws") == #"{"\\x0102","\\x"}"#)
            #expect(result.columns.prefix(3) == ["t", "i", "d"])
        }
    }

    @Test(
        "Arrays of every kind, with nulls, are read back unchanged and cast to the requested type"
    )
    func arrays() async throws {
        try await TestPool.with { test in
            let uuid = "6f1d3c6e-0000-8000-8000-0123456789ab"
            let row = try await test.pool.execute(
                """
                SELECT $1::bool[]::text AS bools, $2::uuid[]::text AS uuids, $3::timestamptz[]::text AS times,
                    $4::float8[]::text AS doubles, $5::json[]::text AS json, $6::jsonb[]::text AS jsonb,
                    $7::smallint[]::text AS shorts, $8::date[]::text AS days, $9::bigint[]::text AS longs
                """,
                [
                    .booleanArray([true, nil]), .uuidArray([uuid, nil]),
                    .timestampArray([0, nil, .max, .min]), .doubleArray([0.5, nil, -.infinity]),
                    .jsonArray([["a": "\"\\"], nil]), .jsonArray([["b": 1], nil]),
                    .integerArray([1, nil, -2]), .textArray(["2026-11-26", nil]),
                    .integerArray([.min, .max]),
                ]
            ).first
            let found = try #require(row)
            #expect(try found.text("bools") == "{t,NULL}")
            #expect(try found.text("uuids") == "{\(uuid),NULL}")
            #expect(
                try found.text("times")
                    == #"{"1970-01-01 00:00:00+00",NULL,infinity,-infinity}"#
            )
            #expect(try found.text("doubles") == "{0.5,NULL,-Infinity}")
            #expect(try found.text("json") == #"{"{\"a\":\"\\\"\\\\\"}",NULL}"#)
            #expect(try found.text("jsonb") == #"{"{\"b\": 1}",NULL}"#)
            #expect(try found.text("shorts") == "{1,NULL,-2}")
            #expect(try found.text("days") == "{2026-11-26,NULL}")
            #expect(
                try found.text("longs") == "{-9223372036854775808,9223372036854775807}"
            )
        }
    }

    @Test(
        "An array can be null at one time and not at another, and numbers fit any integer array"
    )
    func nullArrays() async throws {
        try await TestPool.with { test in
            for _ in 0..<2 {
                for value in [PostgresValue.null, .integerArray([7])] {
                    let row = try await test.pool.execute(
                        "SELECT coalesce(($1::smallint[])[1], 0) AS n",
                        [value]
                    ).first
                    #expect(try row?.integer("n") == (value == .null ? 0 : 7))
                }
            }
        }
    }

    @Test("Several statements are answered in order, and the first error is thrown")
    func several() async throws {
        try await TestPool.with { test in
            let results = try await test.pool.execute((0..<3).map { ("SELECT \($0) AS n", []) })
            #expect(try results.map { try $0.rows[0].integer("n") } == [0, 1, 2])
            let error = await #expect(throws: PostgresError.self) {
                _ = try await test.pool.execute([("SELECT 1", []), ("SELECT 1 / 0", [])])
            }
            #expect(error?.sqlState == "22012")
            #expect(try await test.pool.execute([]).isEmpty)
        }
    }

    @Test("unnest takes arrays, and the number of changed rows is returned")
    func unnest() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("CREATE TABLE t (id int PRIMARY KEY, name text)")
            let inserted = try await test.pool.execute(
                "INSERT INTO t SELECT * FROM unnest($1::int[], $2::text[])",
                [.integerArray((0..<1000).map { $0 }), .textArray((0..<1000).map { "n\($0)" })]
            )
            #expect(inserted.affectedRows == 1000)
            let deleted = try await test.pool.execute("DELETE FROM t WHERE id >= $1", [900])
            #expect(deleted.affectedRows == 100)
        }
    }

    @Test("An unexpected column type is an error with the column's name and without its value")
    func decodingErrors() async throws {
        try await TestPool.with { test in
            let row = try await test.pool.execute("SELECT 'secret' AS code, null AS gone")[0]
            #expect { try row.integer("code") } throws: { error in
                "\(error)".contains("\"code\"") && "\(error)".contains("integer")
                    && !"\(error)".contains("secret")
            }
            #expect { try row.text("gone") } throws: { "\($0)".contains("\"gone\" is null") }
            #expect { try row.text("other") } throws: { "\($0)".contains("\"other\"") }
            #expect { try row.text(7) } throws: { ($0 as? PostgresError)?.kind == .decoding }
        }
    }

    @Test("The server's errors have SQLSTATE and constraint, and the connection stays usable")
    func serverErrors() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("CREATE TABLE t (token text CONSTRAINT one UNIQUE)")
            _ = try await test.pool.execute("INSERT INTO t VALUES ($1)", ["secret"])
            let unique = try await postgresError {
                _ = try await test.pool.execute("INSERT INTO t VALUES ($1)", ["secret"])
            }
            #expect(unique.sqlState == "23505" && unique.constraint == "one")
            #expect(!unique.description.contains("secret"))
            let syntax = try await postgresError { _ = try await test.pool.execute("SELEC 1") }
            #expect(syntax.sqlState == "42601" && !syntax.isRetryable)
            let data = try await postgresError {
                _ = try await test.pool.execute("SELECT $1::text::int", ["secret"])
            }
            #expect(data.sqlState == "22P02" && !data.description.contains("secret"))
            #expect(try await test.pool.execute("SELECT 1")[0].integer(0) == 1)
        }
    }

    @Test("Statements of one turn of the loop commit together")
    func oneSyncPerTurn() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("CREATE TABLE t (n int)")
            let answers = await test.all(100) { n in
                try await test.pool.execute(
                    "INSERT INTO t VALUES ($1) RETURNING pg_current_xact_id()::text",
                    [.integer(n)]
                )[0].text(0)
            }
            let transactions = try Set(answers.map { try $0.get() })
            #expect(transactions.count < 20, "\(transactions.count) transactions for 100 inserts")
        }
    }

    @Test("A failed member fails alone, and the others of its group run again and are stored")
    func innocentsSurvive() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("CREATE TABLE t (n int PRIMARY KEY)")
            _ = try await test.pool.execute("INSERT INTO t VALUES (13)")
            let answers = await test.all(64) { n in
                try await test.pool.execute("INSERT INTO t VALUES ($1)", [.integer(n)])
            }
            for (n, answer) in answers.enumerated() {
                switch answer {
                case .success: #expect(n != 13)
                case .failure(let error):
                    #expect(n == 13)
                    #expect((error as? PostgresError)?.sqlState == "23505")
                }
            }
            #expect(try await test.pool.execute("SELECT count(*) FROM t")[0].integer(0) == 64)
        }
    }

    @Test("A write is answered only when its commit has succeeded")
    func answeredWhenDurable() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute(
                "CREATE TABLE t (n int, UNIQUE (n) DEFERRABLE INITIALLY DEFERRED)"
            )
            _ = try await test.pool.execute("INSERT INTO t VALUES (13)")
            // The duplicate's INSERT itself succeeds; only the commit of its group fails.
            let answers = await test.all(32) { n in
                try await test.pool.execute("INSERT INTO t VALUES ($1)", [.integer(n)])
            }
            let failed = answers.indices.filter { (try? answers[$0].get()) == nil }
            #expect(failed == [13])
            #expect(try await test.pool.execute("SELECT count(*) FROM t")[0].integer(0) == 32)
        }
    }

    @Test("A statement is parsed once per connection, and the cache is bounded")
    func preparedOnce() async throws {
        try await TestPool.with({ $0.maximumPrepared = 8 }) { test in
            for n in 0..<20 {
                let row = try await test.pool.execute("SELECT $1::int + 1", [.integer(n)])[0]
                #expect(try row.integer(0) == n + 1)
            }
            let reused = try await test.pool.execute(
                """
                SELECT generic_plans + custom_plans FROM pg_prepared_statements
                WHERE statement = 'SELECT $1::int + 1'
                """
            )
            #expect(reused.count == 1)
            #expect(try reused[0].integer(0) == 20)
            for n in 0..<100 { _ = try await test.pool.execute("SELECT \(n)") }
            let kept = try await test.pool.execute("SELECT count(*) FROM pg_prepared_statements")
            #expect(try kept[0].integer(0) <= 9)
        }
    }

    @Test("A plan that a migration made stale is prepared again without an error")
    func stalePlan() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("CREATE TABLE t (n int)")
            _ = try await test.pool.execute("INSERT INTO t VALUES (1)")
            #expect(try await test.pool.execute("SELECT * FROM t")[0].integer("n") == 1)
            _ = try await test.pool.execute("ALTER TABLE t ADD COLUMN m text DEFAULT 'new'")
            let row = try await test.pool.execute("SELECT * FROM t")[0]
            #expect(try row.text("m") == "new")
        }
    }

    @Test("A BEGIN or COPY through execute affects other statements only for a short time")
    func misuse() async throws {
        try await TestPool.with { test in
            let begun = try await postgresError { _ = try await test.pool.execute("BEGIN") }
            #expect(begun.kind == .usage)
            let copied = try await postgresError {
                _ = try await test.pool.execute("COPY (SELECT 1) TO STDOUT")
            }
            #expect(copied.kind == .usage || copied.kind == .connectionLost)
            #expect(try await test.pool.execute("SELECT 1")[0].integer(0) == 1)
        }
    }

    @Test("A cancelled statement ends at the server, and its neighbours are not affected")
    func cancellation() async throws {
        try await TestPool.with { test in
            let sleeper = Task(executorPreference: test.loop) {
                try await test.pool.execute("SELECT pg_sleep(30)")
            }
            try await test.withAnother { other in
                while try await other.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'",
                    [.text(test.configuration.applicationName)]
                ).isEmpty {}
            }
            let neighbour = Task(executorPreference: test.loop) {
                try await test.pool.execute("SELECT 7")
            }
            sleeper.cancel()
            await #expect(throws: CancellationError.self) { try await sleeper.value }
            #expect(try await neighbour.value[0].integer(0) == 7)
        }
    }

    @Test("The server's statement and lock timeouts are set, and are retryable errors")
    func timeouts() async throws {
        try await TestPool.with({
            $0.statementTimeout = .milliseconds(200)
            $0.lockTimeout = .milliseconds(100)
        }) { test in
            let slow = try await postgresError {
                _ = try await test.pool.execute("SELECT pg_sleep(9)")
            }
            #expect(slow.sqlState == "57014" && slow.isRetryable)
            _ = try await test.pool.execute("CREATE TABLE t (n int)")
            try await test.withAnother({ $0.statementTimeout = .seconds(20) }) { other in
                try await other.transaction { transaction in
                    _ = try await transaction.execute("LOCK TABLE t")
                    let locked = try await postgresError {
                        _ = try await test.pool.execute("INSERT INTO t VALUES (1)")
                    }
                    #expect(locked.sqlState == "55P03" && locked.isRetryable)
                }
            }
        }
    }

    @Test("Statements beyond the queue's limit are refused at once with a retryable error")
    func bounded() async throws {
        try await TestPool.with({ $0.maximumPending = 10 }) { test in
            let answers = await test.all(50) { n in
                try await test.pool.execute("SELECT $1::int", [.integer(n)])
            }
            let refused = answers.compactMap { answer -> PostgresError? in
                guard case .failure(let error) = answer else { return nil }
                return error as? PostgresError
            }
            #expect(refused.count == 40)
            #expect(refused.allSatisfy { $0.kind == .overloaded && $0.isRetryable })
        }
    }

    @Test("Statements are counted by outcome")
    func counted() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("SELECT 1")
            _ = try? await test.pool.execute("SELECT 1/0")
            let text = test.metrics.exposition()
            #expect(text.contains("postgres_statements_total{outcome=\"data\"} 1"))
            #expect(text.contains("postgres_connections 1"))
        }
    }
}

@Suite(.timeLimit(.minutes(1)))
struct UnreachableServerTests {
    @Test("Without a server the pool reports a retryable error that has no secrets")
    func unreachable() async throws {
        let loop = try EventLoop(name: "postgres-test")
        var configuration = PostgresConfiguration(
            uri: "postgresql://someone:hunter2@127.0.0.1:1/none"
        )
        configuration.acquireTimeout = .milliseconds(300)
        let pool = PostgresPool(configuration, on: loop)
        #expect(pool.notReadyReason() == "postgres: not started")
        let error = try await postgresError { _ = try await pool.execute("SELECT 1") }
        #expect(error.kind == .unavailable && error.isRetryable)
        #expect(pool.notReadyReason() == "cannot connect to Postgres: connection refused")
        let waiting = try await postgresError { try await pool.transaction { _ in } }
        #expect(waiting.kind == .unavailable)
        for text in ["\(error)", "\(waiting)"] { #expect(!text.contains("hunter2")) }
        await pool.close()
        #expect(pool.notReadyReason() == "postgres: closed")
        let closed = try await postgresError { _ = try await pool.execute("SELECT 1") }
        #expect(closed.kind == .closed)
        await loop.stop()
    }

    @Test("An invalid URI is an error that does not contain the URI")
    func badURI() async throws {
        let loop = try EventLoop(name: "postgres-test")
        var configuration = PostgresConfiguration(uri: "postgresql://u:hunter2@h:nan/db?x=y")
        configuration.acquireTimeout = .milliseconds(300)
        let pool = PostgresPool(configuration, on: loop)
        let error = try await postgresError { _ = try await pool.execute("SELECT 1") }
        #expect(!"\(error)".contains("hunter2"))
        await pool.close()
        await loop.stop()
    }
}

extension TestPool {
    /// Runs `count` calls at once on the loop and returns their results.
    func all<Value: Sendable>(
        _ count: Int,
        _ body: @escaping @Sendable (Int) async throws -> Value
    ) async -> [Result<Value, any Error>] {
        let loop = loop
        let tasks = await Task(executorPreference: loop) {
            (0..<count).map { n in Task(executorPreference: loop) { try await body(n) } }
        }.value
        var results: [Result<Value, any Error>] = []
        for task in tasks { results.append(await task.result) }
        return results
    }
}
