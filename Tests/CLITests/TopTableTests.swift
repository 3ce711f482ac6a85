import JSON
import PushCore
import Storage
import Testing

@testable import CLI
@testable import PushStorage

@Suite("The view of carillon top", .timeLimit(.minutes(1)))
struct TopTableTests {
    private static let now = Instant(milliseconds: 1_795_000_000_000)

    private static func instance(
        _ service: String,
        _ host: String,
        silent seconds: Int = 2,
        _ change: (inout ServiceState) -> Void = { _ in }
    ) -> ServiceInstance {
        var state = ServiceState()
        change(&state)
        var instance = ServiceInstance(
            id: host,
            service: service,
            host: host,
            version: "42",
            startedAt: now.adding(milliseconds: -3_600_000),
            seenAt: now.adding(milliseconds: Int64(-1000 * seconds)),
            state: state
        )
        instance.silence = .seconds(seconds)
        return instance
    }

    private static func breaker(_ app: String) -> OpenBreaker {
        OpenBreaker(
            app: app,
            provider: .fcm,
            since: now.adding(milliseconds: -60_000),
            retryAt: now.adding(milliseconds: 4000)
        )
    }

    private static func line(_ app: String, delivered: Int) -> PushRates.Line {
        var counts = OutcomeCounts()
        counts.delivered = delivered
        counts.failed = 6
        for _ in 0..<10 { counts.latency.add(milliseconds: 100) }
        return PushRates.Line(app: app, provider: .apns, counts: counts)
    }

    private static func snapshot(app: String? = nil) -> TopSnapshot {
        let instances = [
            instance("dispatcher", "dispatcher-0:17") {
                $0.breakers = [breaker("bells"), breaker("chimes")]
                $0.slots = ServiceState.Slots(inUse: 3, total: 8192)
                $0.lags = [ServiceState.Lag(group: "g", topic: "push.requests", records: 7)]
            },
            instance("dispatcher", "dispatcher-1:17") {
                $0.breakers = [breaker("bells")]
                $0.lags = [ServiceState.Lag(group: "g", topic: "push.requests", records: 5)]
            },
            instance("ingest", "ingest-4:1") {
                $0.notReady = [.init(part: "producer-0", reason: "reaches no broker\u{1B}[2J")]
            },
            instance("registration", "registration-0:1", silent: 90),
        ]
        return TopSnapshot(
            fleet: ServiceFleet(instances, asOf: now),
            outbox: OutboxStore.Depth(records: 3, oldest: .milliseconds(120)),
            rates: PushRates(
                from: now.adding(milliseconds: -60_000),
                to: now,
                lines: [line("bells", delivered: 600), line("chimes", delivered: 60)]
            ),
            app: app
        )
    }

    @Test("Problems come first; then rates, services and lag")
    func order() throws {
        let lines = TopTable(snapshot: Self.snapshot()).lines
        #expect(lines[0].contains("2 of 4 ready   outbox 3, oldest 120 ms"))
        #expect(lines[2] == "NOT SEEN   registration registration-0:1 for 90 s")
        #expect(lines[3].hasPrefix("NOT READY  ingest ingest-4:1: producer-0: reaches no broker"))
        #expect(lines[4].hasPrefix("BREAKER    bells fcm fails since "))
        #expect(lines[4].hasSuffix(", probed in 4.0 s"))
        let text = lines.joined(separator: "\n")
        let rates = try #require(text.firstRange(of: "DELIVERED/s"))
        let services = try #require(text.firstRange(of: "IN FLIGHT"))
        let lag = try #require(text.firstRange(of: "push.requests"))
        #expect(rates.lowerBound < services.lowerBound && services.lowerBound < lag.lowerBound)
        #expect(text.contains(#/bells +apns +10\.0 +0\.1 +0 +0 +\d+ ms/#))
        #expect(text.contains("3/8192"))
        // The lag is the sum of both dispatchers'.
        #expect(text.contains(#/g +push\.requests +12/#))
    }

    @Test("No line is wider than the terminal, none is left over, and none moves the cursor")
    func fits() {
        for (columns, rows) in [(80, 24), (20, 5), (3, 1), (200, 100), (1, 1)] {
            let size = Terminal.Size(columns: columns, rows: rows)
            let lines = TopTable(snapshot: Self.snapshot()).lines(within: size, problem: "down")
            #expect(lines.count <= rows)
            #expect(lines.allSatisfy { $0.count <= columns }, "\(columns)")
            #expect(!lines.joined().contains("\u{1B}"))
        }
        let small = TopTable(snapshot: Self.snapshot()).lines(
            within: Terminal.Size(columns: 80, rows: 6),
            problem: "down"
        )
        #expect(small[0] == "cannot be read now: down")
        #expect(small[5].hasSuffix("more lines"))
    }

    @Test("With an app, the rates and breakers of others are not shown")
    func app() {
        let snapshot = Self.snapshot(app: "bells")
        let text = TopTable(snapshot: snapshot).lines.joined(separator: "\n")
        #expect(text.contains("bells") && !text.contains("chimes"))
        let breakers = snapshot.json["breakers"]?.array ?? []
        #expect(breakers.map { $0["app"] } == ["bells"])
        #expect(snapshot.json["rates"]?.array?.map { $0["app"] } == ["bells"])
    }

    @Test("The JSON has each process with its state, rates by the second, and the lag")
    func json() throws {
        let json = JSONValue.object(Self.snapshot().json)
        let services = try #require(json["services"]?.array)
        #expect(services.map { $0["ready"] } == [true, true, false, false])
        #expect(services[3]["seen"] == false)
        #expect(services[0]["slots"]?["inUse"] == 3)
        #expect(json["rates"]?[0]?["deliveredPerSecond"] == .double(10))
        #expect(json["lag"]?[0]?["records"] == 12)
        #expect(json["outbox"]?["records"] == 3)
        #expect(json["breakers"]?.array?.count == 2)
    }

    @Test("A missing process is not shown once another one of its service has started")
    func replaced() {
        var fresh = Self.instance("registration", "registration-1:1")
        fresh.startedAt = Self.now.adding(milliseconds: -10_000)
        let lost = Self.instance("registration", "registration-0:1", silent: 90)
        #expect(ServiceFleet([lost], asOf: Self.now).missing == [lost])
        let fleet = ServiceFleet([lost, fresh], asOf: Self.now)
        #expect(fleet.missing.isEmpty && fleet.shown == [fresh])
    }

    @Test(
        "A time has two digits or three, and its unit",
        arguments: [
            (0, "0 ms"), (999, "999 ms"), (1900, "1.9 s"), (42_000, "42 s"), (720_000, "12 min"),
            (10_800_000, "3 h"), (-5, "0 ms"),
        ]
    )
    func spans(milliseconds: Int, text: String) {
        #expect(TopTable.span(.milliseconds(milliseconds)) == text)
    }
}
