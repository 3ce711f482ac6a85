import EventLoop
import Foundation
import Postgres
import Support
import Synchronization
import Testing

/// A server of its own is stopped, crashed and started again below a busy pool.
@Suite(
    .serialized,
    .enabled(if: PrivatePostgres.programs != nil, "no Postgres under /usr/lib/postgresql"),
    .timeLimit(.minutes(2))
)
struct PostgresRestartTests {
    /// The failures that the pool meets in turn.
    enum Blow: CaseIterable {
        case fastRestart, connectionsEnded, immediateRestart, backendCrash, killedRestart
    }

    @Test(
        "Answered writes survive 20 failures under load, errors are retryable, and the pool recovers"
    )
    func blows() async throws {
        try await RestartFixture.run { fixture in
            let load = Load(fixture)
            defer { load.stop() }
            let heard = Heard()
            let listener = try await fixture.pool.listen("blows") { heard.note($0) }
            let writers = (0..<24).map { load.start(writer: $0) } + [load.startCopies()]
            for round in 0..<20 {
                try await load.progress(by: 1000, "load before blow \(round)")
                try await fixture.suffer(Blow.allCases[round % Blow.allCases.count])
                try await load.progress(by: 300, "load after blow \(round)")
            }
            load.stop()
            for writer in writers { await writer.value }
            try await load.judge(fixture)

            // The pool has recovered: ready, with all of its connections, and subscribed.
            #expect(fixture.pool.notReadyReason() == nil)
            let backends = try await fixture.pool.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'restarts'"
            )
            #expect(try backends[0].integer(0) <= fixture.connections + 1)
            // The listener's backoff may still run: the handler learns when it is subscribed again.
            let said = TestEnvironment.unique("word")
            _ = try await eventually("the listener hears on") {
                _ = try await fixture.pool.execute("SELECT pg_notify('blows', $1)", [.text(said)])
                return heard.has(said) ? true : nil
            }
            #expect(heard.has(""), "told that something may have been missed")
            await listener.cancel()
        }
    }

    @Test(
        "Work waits while the server is unavailable, then fails retryably, and readiness says why"
    )
    func away() async throws {
        try await RestartFixture.run({ $0.acquireTimeout = .milliseconds(600) }) { fixture in
            _ = try await fixture.pool.execute("SELECT 1")
            await fixture.server.stop(.fast)
            _ = try await eventually("the pool has noticed") { fixture.pool.notReadyReason() }
            for _ in 0..<3 {
                await #expect {
                    _ = try await fixture.pool.execute("SELECT 1")
                } throws: { error in
                    let error = error as? PostgresError
                    return error?.kind == .unavailable && error?.isRetryable == true
                }
            }
            #expect(fixture.pool.notReadyReason()?.contains("connection refused") == true)
            // The request is made during the outage, and answered after it.
            let patient = PostgresPool(fixture.configuration, on: fixture.loop)
            let answer = Task(executorPreference: fixture.loop) {
                try await patient.execute("SELECT 7")[0].integer(0)
            }
            try await fixture.server.start()
            #expect(try await answer.value == 7)
            _ = try await eventually("the pool is ready") {
                fixture.pool.notReadyReason() == nil ? true : nil
            }
            await patient.close()
        }
    }

    @Test("LISTEN is resumed after each restart, and the handler is notified")
    func listening() async throws {
        try await RestartFixture.run { fixture in
            let heard = Heard()
            let listener = try await fixture.pool.listen("bells") { heard.note($0) }
            for (round, how) in PrivatePostgres.Stop.allCases.enumerated() {
                await fixture.server.stop(how)
                try await fixture.server.start()
                _ = try await eventually("told of restart \(round)") {
                    heard.count(of: "") == round + 1 ? true : nil
                }
                // A notified handler is subscribed, so it cannot miss this one.
                _ = try await fixture.pool.execute("SELECT pg_notify('bells', 'r\(round)')")
                _ = try await eventually("heard after restart \(round)") {
                    heard.has("r\(round)") ? true : nil
                }
            }
            await listener.cancel()
        }
    }
}

/// The notifications that a handler received.
private final class Heard: Sendable {
    private let words = Mutex<[String: Int]>([:])

    func note(_ word: String) { words.withLock { $0[word, default: 0] += 1 } }
    func has(_ word: String) -> Bool { count(of: word) > 0 }
    func count(of word: String) -> Int { words.withLock { $0[word] ?? 0 } }
}

/// Writers, each with its own keys, that record answers and failures.
private final class Load: Sendable {
    private let fixture: RestartFixture
    private let goesOn = Atomic(true)
    private let count = Atomic(0)
    private let answered = Mutex<[Int]>([])
    /// Pairs of writes, by one transaction or COPY: both or neither.
    private let pairs = Mutex<[Int]>([])
    private let failures = Mutex<[any Error]>([])

    init(_ fixture: RestartFixture) { self.fixture = fixture }

    func stop() { goesOn.store(false, ordering: .relaxed) }

    /// Waits until this many more writes were answered, for less time than the pool's own watchdog
    /// takes to notice a lost connection.
    func progress(by more: Int, _ what: String) async throws {
        let goal = count.load(ordering: .relaxed) + more
        _ = try await eventually(what, within: .seconds(20)) {
            count.load(ordering: .relaxed) >= goal ? true : nil
        }
    }

    private func note(_ keys: Int...) {
        answered.withLock { $0 += keys }
        count.add(keys.count, ordering: .relaxed)
    }

    func start(writer: Int) -> Task<Void, Never> {
        Task(executorPreference: fixture.loop) { [self] in
            var key = (writer + 1) << 32
            while goesOn.load(ordering: .relaxed) {
                key += 2
                do {
                    if key % 8 == 0 { try await writePair(key) } else { try await writeOne(key) }
                } catch { failures.withLock { $0.append(error) } }
            }
        }
    }

    private func writeOne(_ key: Int) async throws {
        _ = try await fixture.pool.execute("INSERT INTO t VALUES ($1)", [.integer(key)])
        note(key)
    }

    private func writePair(_ key: Int) async throws {
        pairs.withLock { $0.append(key) }
        try await fixture.pool.transaction { transaction in
            _ = try await transaction.execute("INSERT INTO t VALUES ($1)", [.integer(key)])
            _ = try await transaction.execute("INSERT INTO t VALUES ($1)", [.integer(key + 1)])
        }
        note(key, key + 1)
    }

    /// Writes rows by COPY, in pairs, and reads all of them back by a stream.
    func startCopies() -> Task<Void, Never> {
        Task(executorPreference: fixture.loop) { [self] in
            var key = 1 << 48
            while goesOn.load(ordering: .relaxed) {
                key += 2
                let first = key
                let isSent = Mutex(false)
                pairs.withLock { $0.append(first) }
                do {
                    _ = try await fixture.pool.copyIn(table: "t", columns: ["n"]) {
                        let isDone = isSent.withLock { sent in
                            defer { sent = true }
                            return sent
                        }
                        return isDone ? nil : [[.integer(first)], [.integer(first + 1)]]
                    }
                    note(first, first + 1)
                    _ = try await fixture.pool.stream("SELECT n FROM t") { _ in }
                } catch { failures.withLock { $0.append(error) } }
            }
        }
    }

    func judge(_ fixture: RestartFixture) async throws {
        let rows = try await fixture.pool.execute("SELECT n FROM t").rows
        let stored = Set(try rows.map { try $0.integer(0) })
        let missing = answered.withLock { $0.filter { !stored.contains($0) } }
        #expect(missing.isEmpty, "\(missing.count) answered writes are gone")
        let halves = pairs.withLock {
            $0.filter { stored.contains($0) != stored.contains($0 + 1) }
        }
        #expect(halves.isEmpty, "\(halves.count) transactions are there by half")
        let failures = failures.withLock { $0 }
        #expect(!failures.isEmpty, "the blows hit nothing")
        let wrong = failures.filter { ($0 as? PostgresError)?.isRetryable != true }
        #expect(wrong.isEmpty, "not retryable: \(wrong.prefix(5).map { "\($0)" })")
        print(
            "postgres: \(answered.withLock { $0.count }) writes answered,",
            "\(failures.count) failed retryably, \(stored.count) stored"
        )
    }
}

/// A private server, a pool on it, and another pool for the test's own statements.
private struct RestartFixture: Sendable {
    let server: PrivatePostgres
    let loop: EventLoop
    let pool: PostgresPool
    let configuration: PostgresConfiguration
    var connections: Int { configuration.connections }

    static func run(
        _ adjust: (inout PostgresConfiguration) -> Void = { _ in },
        _ body: (RestartFixture) async throws -> Void
    ) async throws {
        let server = try await PrivatePostgres.start()
        let loop = try EventLoop(name: "restarts")
        var configuration = PostgresConfiguration(
            uri: server.url,
            connections: 8,
            applicationName: "restarts",
            acquireTimeout: .seconds(20)
        )
        let patient = configuration
        adjust(&configuration)
        let pool = PostgresPool(configuration, on: loop)
        let fixture = RestartFixture(
            server: server,
            loop: loop,
            pool: pool,
            configuration: patient
        )
        let result: Result<Void, any Error>
        do {
            _ = try await pool.execute("CREATE TABLE t (n bigint PRIMARY KEY)")
            try await body(fixture)
            result = .success(())
        } catch {
            result = .failure(error)
        }
        await pool.close()
        await loop.stop()
        await server.remove()
        try result.get()
    }

    func suffer(_ blow: PostgresRestartTests.Blow) async throws {
        switch blow {
        case .fastRestart: try await restart(.fast)
        case .immediateRestart: try await restart(.immediate)
        case .killedRestart: try await restart(.kill)
        case .connectionsEnded:
            try await beside("SELECT pg_terminate_backend(pid) FROM pg_stat_activity")
        case .backendCrash:
            // If one backend dies, the postmaster ends all others, and recovers.
            let pid = try await beside("SELECT pid FROM pg_stat_activity")
            #expect(kill(Int32(pid), SIGKILL) == 0)
        }
    }

    private func restart(_ how: PrivatePostgres.Stop) async throws {
        await server.stop(how)
        try await server.start()
    }

    /// Returns the first column of the first row, for the backends of the pool.
    @discardableResult
    private func beside(_ sql: String) async throws -> Int {
        var configuration = configuration
        configuration.applicationName = "beside"
        let other = PostgresPool(configuration, on: loop)
        let rows = try await other.execute(
            "\(sql) WHERE application_name = 'restarts' ORDER BY backend_start"
        )
        await other.close()
        let first = try #require(rows.first)
        return try first.isNull(0) ? 0 : (try? first.integer(0)) ?? 0
    }
}
