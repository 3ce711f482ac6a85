internal import EventLoop
internal import JSON
internal import Postgres

/// Runs one round of the Postgres module, on tables that `deploy/bench` has made: upserts of one
/// row each by this many callers over one connection, or COPY from a table to values. Or prints the
/// row's text, for pgbench to write the same.
func measurePostgres(_ arguments: [String], server: String?) async throws -> String {
    if arguments == ["body"] { return body }
    guard let server else { throw BenchmarkError("DATABASE_URL is not set") }
    let loop = try EventLoop(name: "bench")
    // With two, one is shared and the other is used by a COPY.
    let pool = PostgresPool(PostgresConfiguration(uri: server, connections: 2), on: loop)
    let outcome: Result<Double, any Error>
    do {
        switch (arguments.first, arguments.dropFirst().compactMap { Int($0) }) {
        case ("upsert", let numbers) where numbers.count == 2 && numbers[0] > 0:
            let (callers, count) = (numbers[0], numbers[1])
            outcome = .success(try await upserts(count, by: callers, through: pool, on: loop))
        case ("copy", []): outcome = .success(try await copiedRows(through: pool, on: loop))
        default:
            throw BenchmarkError(
                "usage: carillon-bench postgres upsert CALLERS COUNT | copy | body"
            )
        }
    } catch {
        outcome = .failure(error)
    }
    await pool.close()
    await loop.stop()
    let figures: JSONValue = ["per_second": .double(try outcome.get())]
    return figures.text
}

/// 300 bytes of JSON, as text: pgbench also sends a prepared text.
private let body: String = {
    var object: JSONObject = [
        "deviceType": "ios", "timeZone": "Europe/Zurich", "locale": "de-CH", "badge": 3,
        "channels": ["news", "weather", "sport"], "valid": true,
        "deviceToken": .string(String(repeating: "0a1b2c3d", count: 8)), "padding": "",
    ]
    let missing = 300 - JSONValue.object(object).bytes.count
    object["padding"] = .string(String(repeating: "x", count: missing))
    return JSONValue.object(object).text
}()

/// The same random keys as pgbench's.
private let keys = 1...10_000

/// Needs no system call per number, like pgbench's: xorshift64*.
private struct Numbers: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed | 1 }

    mutating func next() -> UInt64 {
        state ^= state >> 12
        state ^= state << 25
        state ^= state >> 27
        return state &* 0x2545_F491_4F6C_DD1D
    }
}

private func upserts(
    _ count: Int,
    by callers: Int,
    through pool: PostgresPool,
    on loop: EventLoop
) async throws -> Double {
    let sql = """
        INSERT INTO bench_upsert VALUES ($1, $2)
        ON CONFLICT (id) DO UPDATE SET body = excluded.body
        """
    func call(_ times: Int) -> Task<Void, any Error> {
        Task(executorPreference: loop) {
            var numbers = Numbers(seed: .random(in: .min ... .max))
            for _ in 0..<times {
                let key = Int.random(in: keys, using: &numbers)
                _ = try await pool.execute(sql, [.integer(key), .text(body)])
            }
        }
    }
    // As in pgbench, the connection is made and the statement prepared before the clock starts.
    try await call(10).value
    return try await perSecond(count / callers * callers) {
        let tasks = (0..<callers).map { _ in call(count / callers) }
        for task in tasks { try await task.value }
    }
}

/// Reads every value of every row, so that all bytes are decoded.
private func copiedRows(through pool: PostgresPool, on loop: EventLoop) async throws -> Double {
    func copy(_ query: String) -> Task<Int, any Error> {
        Task(executorPreference: loop) {
            try await pool.copyOut(query) { rows in
                for row in rows {
                    let (id, isValid) = (try row.integer(0), try row.boolean(2))
                    let (token, time) = (try row.text(1), try row.timestampMicroseconds(3))
                    guard token.utf8.count == 64, (id % 7 > 0) == isValid, time > 0 else {
                        throw BenchmarkError("the rows are not those that were stored")
                    }
                }
            }
        }
    }
    // psql, too, is connected before its clock starts.
    let count = try await copy("SELECT id, token, valid, updated_at FROM bench_copy LIMIT 1").value
    guard count == 1 else { throw BenchmarkError("there are no rows to copy") }
    var rows = 0
    let time = try await ContinuousClock().measure {
        rows = try await copy("SELECT id, token, valid, updated_at FROM bench_copy").value
    }
    return Double(rows) / (time / .seconds(1))
}

private func perSecond(_ count: Int, _ body: () async throws -> Void) async throws -> Double {
    let time = try await ContinuousClock().measure { try await body() }
    return Double(count) / (time / .seconds(1))
}
