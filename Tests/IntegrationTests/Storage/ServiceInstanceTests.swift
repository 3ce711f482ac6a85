import EventLoop
import JSON
import PushCore
import ServiceKit
import ServiceShell
import Storage
import Support
import Synchronization
import Testing

@Suite(
    "Reports of the services' processes",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ServiceInstanceTests {
    private static let id = "00000000-0000-4000-8000-00000000000"

    private func instance(_ number: Int, _ service: String = "dispatcher") -> ServiceInstance {
        ServiceInstance(
            id: Self.id + "\(number)",
            service: service,
            host: "host-\(number):1",
            version: "1",
            state: ServiceState()
        )
    }

    private static func breaker(_ app: String, isSandbox: Bool = false) -> OpenBreaker {
        OpenBreaker(
            app: app,
            provider: .apns,
            isSandbox: isSandbox,
            since: Instant(milliseconds: 1_795_000_000_000),
            retryAt: Instant(milliseconds: 1_795_000_030_000)
        )
    }

    /// Makes a report older, by Postgres' clock.
    private func age(_ number: Int, by interval: String, _ fixture: StorageFixture) async throws {
        _ = try await fixture.server.query(
            """
            update service_instances set seen_at = seen_at - interval '\(interval)',
                started_at = started_at - interval '\(interval)'
            where id = '\(Self.id)\(number)'
            """
        )
    }

    @Test("A report replaces the one before, keeps the time of the start, and is read as written")
    func report() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.instances
            var written = instance(1)
            try await store.report(written)
            try await age(1, by: "20 s", fixture)
            written.state.notReady = [.init(part: "postgres", reason: "down")]
            written.state.warnings = [.init(part: "maintenance", reason: "late")]
            written.state.breakers = [Self.breaker("shop"), Self.breaker("bank", isSandbox: true)]
            written.state.lags = [.init(group: "g", topic: "t", records: 5)]
            written.state.slots = .init(inUse: 1, total: 2)
            try await store.report(written)
            let read = try #require(try await store.fleet().instances.first)
            #expect(read.state == written.state)
            #expect(read.isSeen && read.silence < .seconds(10))
            #expect(read.seenAt.milliseconds - read.startedAt.milliseconds >= 20_000)
            try await store.remove(written.id)
            #expect(try await store.fleet().instances.isEmpty)
        }
    }

    @Test("By Postgres' clock, a process is not seen after 30 seconds, and forgotten after a day")
    func expiry() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.instances
            for number in 1...3 { try await store.report(instance(number)) }
            try await age(1, by: "31 s", fixture)
            try await age(2, by: "25 h", fixture)
            #expect(try await store.fleet().instances.map(\.isSeen) == [false, true])
            // The third one has started since, in the place of the first.
            #expect(try await store.fleet().missing.isEmpty)
            try await store.report(instance(4, "ingest"))
            try await age(4, by: "31 s", fixture)
            #expect(try await store.fleet().missing.map(\.service) == ["ingest"])
            try await store.report(instance(3))
            let left = try await fixture.server.query("select host from service_instances")
            #expect(left.sorted() == ["host-1:1", "host-3:1", "host-4:1"])
        }
    }

    @Test("An open breaker is found by its app, provider and environment, while it is reported")
    func breakers() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.instances
            var written = instance(1)
            written.state.breakers = [Self.breaker("shop"), Self.breaker("bank", isSandbox: true)]
            try await store.report(written)
            func find(_ app: String, _ platform: Platform, _ isSandbox: Bool) async throws -> Bool {
                try await store.breaker(of: app, at: platform, isSandbox: isSandbox) != nil
            }
            #expect(try await find("shop", .apns, false))
            #expect(try await !find("shop", .apns, true))
            #expect(try await !find("shop", .fcm, false))
            #expect(try await find("bank", .apns, true))
            #expect(try await !find("other", .apns, false))
            let fleet = try await store.fleet()
            #expect(fleet.breakers(of: "shop") == [Self.breaker("shop")])
            #expect(fleet.breakers().count == 2)
            try await age(1, by: "31 s", fixture)
            #expect(try await !find("shop", .apns, false))
            #expect(try await store.fleet().breakers().isEmpty)
        }
    }

    @Test("A process reports itself, and a change at once; at its stop the report is removed")
    func heartbeat() async throws {
        try await StorageFixture.run { fixture in
            let open = Flag()
            let heartbeat = Heartbeat(
                fixture.database,
                in: ServiceRuntime("ingest", on: fixture.loop)
            ) { state in
                if open.isSet { state.breakers = [Self.breaker("shop")] }
            }
            let database = Task { try await fixture.database.run() }
            let running = Task(executorPreference: fixture.loop) { try await heartbeat.run() }
            let store = fixture.database.instances
            let first = try await eventually("a report") { try await store.fleet().seen.first }
            #expect(first.service == "ingest" && first.state.breakers.isEmpty)
            open.set()
            _ = try await eventually("the change, within the interval of reports") {
                let now = try await store.fleet()
                #expect(now.asOf < first.seenAt.adding(ServiceInstance.interval))
                return now.breakers().isEmpty ? nil : true
            }
            // A report that fails ends nothing, and is repeated.
            _ = try await fixture.server.query("alter table service_instances rename to away")
            _ = try await eventually("a warning") { heartbeat.warning() }
            _ = try await fixture.server.query("alter table away rename to service_instances")
            _ = try await eventually("no warning") { heartbeat.warning() == nil ? true : nil }
            running.cancel()
            try await running.value
            #expect(try await store.fleet().instances.isEmpty)
            database.cancel()
            _ = try? await database.value
        }
    }

    @Test("The outbox's depth is counted up to a limit, with the age of the first record")
    func outbox() async throws {
        try await StorageFixture.run { fixture in
            let store = fixture.database.outbox
            #expect(try await store.depth() == OutboxStore.Depth(records: 0, oldest: .zero))
            _ = try await fixture.server.query(
                """
                insert into outbox (kafka_topic, value, created_at)
                select 't', 'v', now() - interval '1 min' from generate_series(1, 10001)
                """
            )
            let depth = try await store.depth()
            #expect(depth.records == 10_000 && depth.isMore && depth.oldest >= .seconds(60))
        }
    }

    /// A switch that the test sets.
    private final class Flag: Sendable {
        private let value = Atomic(false)
        var isSet: Bool { value.load(ordering: .relaxed) }
        func set() { value.store(true, ordering: .relaxed) }
    }
}
