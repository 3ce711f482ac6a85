import EventLoop
import Foundation
import JSON
import Synchronization
import Testing

@testable import Postgres

@Suite(.serialized, .enabled(if: TestServer.isThere, TestServer.reason), .timeLimit(.minutes(2)))
struct PostgresBulkTests {
    struct Enough: Error {}

    /// Returns the resident memory of this process, in bytes.
    private func residentBytes() throws -> Int {
        let text = try String(contentsOfFile: "/proc/self/statm", encoding: .utf8)
        let pages = try #require(text.split(separator: " ").dropFirst().first.flatMap { Int($0) })
        return pages * Int(sysconf(Int32(_SC_PAGESIZE)))
    }

    private static let rows = 500_000
    /// 500,000 rows of 300 bytes: 150 MB, if they were all in memory.
    private static let query = "SELECT n, repeat('x', 300) AS pad FROM generate_series(1, 500000) n"

    @Test("500,000 rows stream through in bounded memory, in order")
    func stream() async throws {
        try await TestPool.with { test in
            let before = try residentBytes()
            let sum = Mutex((expected: 1, inOrder: true))
            let count = try await test.pool.stream(Self.query, batch: 1000) { rows in
                for row in rows {
                    let n = try row.integer("n")
                    sum.withLock {
                        $0.inOrder = $0.inOrder && n == $0.expected
                        $0.expected += 1
                    }
                }
            }
            #expect(count == Self.rows)
            #expect(sum.withLock { $0.inOrder })
            let grown = try residentBytes() - before
            #expect(grown < 60 << 20, "grown by \(grown >> 20) MiB")
        }
    }

    @Test("500,000 rows are copied out in binary in bounded memory")
    func copyOut() async throws {
        try await TestPool.with { test in
            let before = try residentBytes()
            let sum = Mutex(0)
            let count = try await test.pool.copyOut(Self.query, columns: ["n", "pad"]) { rows in
                let part = try rows.reduce(0) { try $0 + $1.integer("n") }
                sum.withLock { $0 += part }
            }
            #expect(count == Self.rows)
            #expect(sum.withLock { $0 } == Self.rows * (Self.rows + 1) / 2)
            let grown = try residentBytes() - before
            #expect(grown < 60 << 20, "grown by \(grown >> 20) MiB")
        }
    }

    @Test("A slow reader slows the server down instead of filling our memory")
    func backPressure() async throws {
        try await TestPool.with { test in
            let seen = Mutex(0)
            let before = try residentBytes()
            await #expect(throws: Enough.self) {
                _ = try await test.pool.stream(Self.query, batch: 100) { rows in
                    try await test.loop.sleep(for: .milliseconds(20))
                    seen.withLock { $0 += rows.count }
                    if seen.withLock({ $0 }) >= 1000 { throw Enough() }
                }
            }
            #expect(seen.withLock { $0 } == 1000)
            let grown = try residentBytes() - before
            #expect(grown < 30 << 20, "grown by \(grown >> 20) MiB")
            // The connection was cleaned up and not replaced.
            #expect(try await test.pool.stream("SELECT 1") { _ in } == 1)
        }
    }

    @Test("A stream takes parameters, an empty result and an error in mid-stream")
    func streamEdges() async throws {
        try await TestPool.with { test in
            let count = try await test.pool.stream(
                "SELECT n FROM generate_series(1, $1::int) n",
                [2500],
                batch: 1000
            ) { rows in #expect(rows.count == 1000 || rows.count == 500) }
            #expect(count == 2500)
            #expect(try await test.pool.stream("SELECT 1 WHERE false") { _ in } == 0)
            let error = try await postgresError {
                _ = try await test.pool.stream(
                    "SELECT 1 / (3000 - n) FROM generate_series(1, 5000) n"
                ) {
                    _ in
                }
            }
            #expect(error.sqlState == "22012")
            #expect(try await test.pool.stream("SELECT 1") { _ in } == 1)
        }
    }

    @Test("A cancelled stream ends at once and its connection is used again")
    func cancelledStream() async throws {
        try await TestPool.with({ $0.connections = 2 }) { test in
            let started = AsyncStream<Void>.makeStream()
            let task = Task(executorPreference: test.loop) {
                try await test.pool.stream(
                    "SELECT 1 UNION ALL SELECT pg_sleep(30)::text::int",
                    batch: 1
                ) { _ in started.continuation.yield() }
            }
            let sleeper = Task(executorPreference: test.loop) {
                try await test.until(
                    "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = $1 AND wait_event = 'PgSleep'",
                    [.text(test.schema)]
                )
            }
            try await sleeper.value
            task.cancel()
            await #expect(throws: CancellationError.self) { try await task.value }
            #expect(try await test.pool.stream("SELECT 1") { _ in } == 1)
        }
    }

    @Test("COPY moves every type and NULL in and out, all or nothing")
    func copyIn() async throws {
        try await TestPool.with { test in
            _ = try await test.pool.execute(
                """
                CREATE TABLE "T" (a smallint, b int, c bigint, d float8, e bool, f text, g bytea,
                    h jsonb, i uuid, j timestamptz, k text[], l date)
                """
            )
            let columns = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"]
            let row: [PostgresValue] = [
                1, 2, 3, 0.5, true, "text", .bytes([0, 255]), .json(["x": 1]),
                .uuid("6f1d3c6e-0000-8000-8000-0123456789ab"), .timestamp(1_763_717_796_123_456),
                .textArray(["a", nil]), .timestamp(1_763_683_200_000_000),
            ]
            let left = Mutex(20)
            let copied = try await test.pool.copyIn(
                table: "\(test.schema).T",
                columns: columns
            ) {
                let isMore = left.withLock { count in
                    count -= 1
                    return count >= 0
                }
                if !isMore { return nil }
                return Array(repeating: row, count: 500) + [Array(repeating: .null, count: 12)]
            }
            #expect(copied == 20 * 501)
            let read = try await test.pool.execute(
                "SELECT * FROM \"T\" WHERE a IS NOT NULL LIMIT 1"
            )[0]
            #expect(try read.double("d") == 0.5)
            #expect(try read.bytes("g") == [0, 255])
            #expect(try read.json("h") == ["x": 1])
            #expect(try read.timestampMicroseconds("j") == 1_763_717_796_123_456)
            #expect(try read.text("k") == "{a,NULL}")
            #expect(try read.text("l") == "2025-11-21")
            _ = try await test.pool.copyOut("SELECT c, i, j, e, h FROM \"T\" WHERE a = 1 LIMIT 1") {
                rows in
                let first = try rows[0].integer(0)
                #expect(first == 3)
                #expect(try rows[0].uuid(1) == "6f1d3c6e-0000-8000-8000-0123456789ab")
                #expect(try rows[0].timestampMicroseconds(2) == 1_763_717_796_123_456)
                #expect(try rows[0].boolean(3))
                #expect(try rows[0].json(4) == ["x": 1])
            }

            let misfit = try await postgresError {
                _ = try await test.pool.copyIn(table: "T", columns: ["a"]) { [[1], [70_000]] }
            }
            #expect(misfit.kind == .encoding && misfit.description.contains("\"a\""))
            let count = try await test.pool.execute("SELECT count(*) FROM \"T\"")
            #expect(try count[0].integer(0) == 20 * 501)
        }
    }

    @Test("A stream or COPY fails with a retryable error when the server stops answering")
    func silence() async throws {
        try await TestPool.with({ $0.streamIdleTimeout = .milliseconds(300) }) { test in
            let silent = "SELECT pg_sleep(20)"
            let stream = try await postgresError { _ = try await test.pool.stream(silent) { _ in } }
            #expect(stream.kind == .connectionLost && stream.isRetryable)
            let copy = try await postgresError { _ = try await test.pool.copyOut(silent) { _ in } }
            #expect(copy.kind == .connectionLost && copy.isRetryable)
            // Both statements were also cancelled on the server.
            try await test.until(
                "SELECT count(*) = 0 FROM pg_stat_activity WHERE query = $1 AND state = 'active'",
                [.text(silent)]
            )
            _ = try await test.pool.execute("CREATE TABLE t (n int)")
            try await test.pool.transaction { transaction in
                _ = try await transaction.execute("LOCK TABLE t")
                let blocked = try await postgresError {
                    _ = try await test.pool.copyIn(table: "t", columns: ["n"]) { nil }
                }
                #expect(blocked.kind == .connectionLost && blocked.isRetryable)
            }
        }
    }

    @Test("A slow reader does not count as a silent server")
    func slowReader() async throws {
        try await TestPool.with({ $0.streamIdleTimeout = .milliseconds(300) }) { test in
            let count = try await test.pool.stream(
                "SELECT n FROM generate_series(1, 2000) n",
                batch: 1000
            ) { _ in try await test.loop.sleep(for: .milliseconds(700)) }
            #expect(count == 2000)
        }
    }
}
