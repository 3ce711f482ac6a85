import EventLoop
import Foundation
import Observability
import Synchronization
import Testing

@testable import Postgres

@Suite(.enabled(if: TestServer.isThere, TestServer.reason), .timeLimit(.minutes(1)))
struct PostgresFailureTests {
    private final class Tally: Sendable {
        let goOn = Atomic(true)
        let answered = Mutex<[Int]>([])
        let failures = Mutex<[any Error]>([])
    }

    @Test("Without disk space the pool is not ready, until a write of its own succeeds")
    func diskFull() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("SELECT 1")
            #expect(test.pool.notReadyReason() == nil)
            let full = "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '53100'; END $$"
            let statements: [@Sendable () async throws -> Void] = [
                { _ = try await test.pool.execute(full) },
                { try await test.pool.transaction { _ = try await $0.execute(full) } },
                { try await test.pool.transaction { try await $0.script(full) } },
            ]
            for statement in statements {
                let error = await #expect(throws: PostgresError.self) { try await statement() }
                #expect(error?.sqlState == "53100")
                #expect(error?.isRetryable == true)
                #expect(test.pool.notReadyReason()?.contains("disk is full") == true)
                // Reads still work, and do not depend on the disk.
                #expect(try await test.pool.execute("SELECT 1").rows.count == 1)
                #expect(test.pool.notReadyReason() != nil)
                while test.pool.notReadyReason() != nil {
                    try await test.loop.sleep(for: .milliseconds(10))
                }
            }
        }
    }

    @Test("Every answered write is stored when backends are killed, and failures are retryable")
    func killedUnderLoad() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute("CREATE TABLE t (n bigint)")
            let tally = Tally()
            try await test.withAnother { other in
                let writers = (0..<32).map { writer in
                    Task(executorPreference: test.loop) {
                        var n = writer << 32
                        while tally.goOn.load(ordering: .relaxed) {
                            n += 1
                            let key = n
                            do {
                                if key % 4 == 0 {
                                    try await test.pool.transaction { transaction in
                                        _ = try await transaction.execute(
                                            "INSERT INTO t VALUES ($1)",
                                            [.integer(key)]
                                        )
                                    }
                                } else {
                                    _ = try await test.pool.execute(
                                        "INSERT INTO t VALUES ($1)",
                                        [.integer(key)]
                                    )
                                }
                                tally.answered.withLock { $0.append(key) }
                            } catch { tally.failures.withLock { $0.append(error) } }
                        }
                    }
                }
                for round in 1...5 {
                    while tally.answered.withLock({ $0.count }) < round * 300 {
                        try await test.loop.sleep(for: .milliseconds(2))
                    }
                    // There is no backend while all of them reconnect.
                    while try await test.killBackends(by: other) == 0 {
                        try await test.loop.sleep(for: .milliseconds(2))
                    }
                }
                let soFar = tally.answered.withLock { $0.count }
                while tally.answered.withLock({ $0.count }) < soFar + 300 {
                    try await test.loop.sleep(for: .milliseconds(2))
                }
                tally.goOn.store(false, ordering: .relaxed)
                for writer in writers { await writer.value }
            }
            let stored = Set(
                try await test.pool.execute("SELECT n FROM t").rows.map { try $0.integer(0) }
            )
            let missing = tally.answered.withLock { $0.filter { !stored.contains($0) } }
            #expect(missing.isEmpty, "\(missing.count) answered writes are gone")
            let errors = tally.failures.withLock { $0 }
            #expect(!errors.isEmpty, "the kills hit nothing")
            for error in errors {
                let error = try #require(error as? PostgresError, "\(error)")
                #expect(error.isRetryable && error.kind == .connectionLost, "\(error)")
            }
            #expect(test.pool.notReadyReason() == nil)
        }
    }

    @Test("A killed stream is a retryable error")
    func killedStream() async throws {
        try await TestPool.with { test in
            try await test.withAnother { other in
                let error = try await postgresError {
                    _ = try await test.pool.stream(
                        "SELECT n, repeat('x', 1000) FROM generate_series(1, 1000000) n"
                    ) { _ in _ = try await test.killBackends(by: other) }
                }
                #expect(error.kind == .connectionLost && error.isRetryable)
            }
            // Its neighbours were killed too, and may report that once more.
            var answer: Int?
            while answer == nil {
                do {
                    answer = try await test.pool.execute("SELECT 1")[0].integer(0)
                } catch let error as PostgresError where error.isRetryable {}
            }
            #expect(answer == 1)
        }
    }

    @Test("The pool reports when it is not ready, and when it is ready again")
    func readiness() async throws {
        try await TestPool.with { test in
            #expect(test.pool.notReadyReason() == nil)
            try await test.withAnother { other in
                // A reconnect may be faster than a poll, so the test repeats until the loss was
                // seen.
                var wasSeen = false
                while !wasSeen {
                    _ = try await test.killBackends(by: other)
                    for _ in 0..<50 where !wasSeen {
                        wasSeen = test.pool.notReadyReason() != nil
                        if !wasSeen { await Task.yield() }
                    }
                }
                while test.pool.notReadyReason() != nil {
                    try await test.loop.sleep(for: .milliseconds(1))
                }
            }
            #expect(test.metrics.counter(.postgresReconnects).value > 0)
        }
    }

    @Test(
        "Notifications arrive in order, and the handler learns of a lost connection and continues"
    )
    func listening() async throws {
        try await TestPool.with { test in
            let (stream, continuation) = AsyncStream<String>.makeStream()
            let channel = "Room \"\(test.schema)\""
            let listener = try await test.pool.listen(channel) { continuation.yield($0) }
            var heard = stream.makeAsyncIterator()
            func notify(_ text: String) async throws {
                _ = try await test.pool.execute(
                    "SELECT pg_notify($1, $2)",
                    [.text(channel), .text(text)]
                )
            }
            for text in ["one", "two"] { try await notify(text) }
            var texts = [await heard.next(), await heard.next()]
            #expect(texts == ["one", "two"])
            try await test.withAnother { other in _ = try await test.killBackends(by: other) }
            texts = [await heard.next()]
            #expect(texts == [""], "told that something may have been missed")
            while (try? await notify("three")) == nil {}
            texts = [await heard.next()]
            #expect(texts == ["three"])
            await listener.cancel()
            try await notify("four")
            let second = try await test.pool.listen(channel) { continuation.yield("second " + $0) }
            try await notify("five")
            texts = [await heard.next()]
            #expect(texts == ["second five"])
            await second.cancel()
        }
    }

    @Test("While the process stops, unanswered statements fail as retryable before its end")
    func stopping() async throws {
        try await TestPool.with { test in
            let silent = "SELECT pg_sleep(50)"
            let pool = test.pool
            let statements: [@Sendable () async throws -> Void] = [
                { _ = try await pool.execute(silent) },
                { try await pool.transaction { _ = try await $0.execute(silent) } },
                { _ = try await pool.stream(silent) { _ in } },
            ]
            let grace = Duration.seconds(6)
            let start = ContinuousClock.now
            let errors = statements.map { statement in
                Task { try await postgresError(statement) }
            }
            try await test.withAnother { other in
                while try await other.execute(
                    "SELECT 1 FROM pg_stat_activity WHERE query = $1 AND state = 'active'",
                    [.text(silent)]
                ).count < statements.count {}
            }
            test.loop.stopClock.begin(within: grace)
            for error in errors {
                let error = try await error.value
                #expect(error.kind == .connectionLost && error.isRetryable)
            }
            #expect(.now - start < grace)
            // This server answers again, and is asked again.
            while (try? await pool.execute("SELECT 1")) == nil {
                try await test.loop.sleep(for: .milliseconds(10))
            }
        }
    }

    @Test(
        "While the process stops, only the first request waits for a server that takes no connection"
    )
    func stoppingUnconnected() async throws {
        let loop = try EventLoop(name: "postgres-test")
        let port = try await withCheckedThrowingContinuation { continuation in
            loop.execute {
                continuation.resume(
                    with: Result {
                        try TCPListener(host: "127.0.0.1", port: 0, on: loop) { _ in }.port
                    }
                )
            }
        }
        let pool = PostgresPool(
            PostgresConfiguration(uri: "postgresql://nobody@127.0.0.1:\(port)/none"),
            on: loop
        )
        loop.stopClock.begin(within: .seconds(4))
        let start = ContinuousClock.now
        let error = try await postgresError { _ = try await pool.execute("SELECT 1") }
        #expect(error.kind == .unavailable && error.isRetryable)
        #expect(.now - start < .seconds(4))
        let first = ContinuousClock.now
        for _ in 0..<100 {
            let next = try await postgresError {
                try await pool.transaction { _ = try await $0.execute("SELECT 1") }
            }
            #expect(next.kind == .unavailable)
        }
        #expect(.now - first < .seconds(1))
        await pool.close()
        await loop.stop()
    }

    @Test("A channel that the server rejects is an error, not a wait")
    func refusedChannel() async throws {
        try await TestPool.with { test in
            let error = try await postgresError { _ = try await test.pool.listen("") { _ in } }
            #expect(error.kind == .server)
        }
    }
}
