import EventLoop
import PushCore
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("Rows that wait for their provider's share", .timeLimit(.minutes(1)))
struct RowBacklogsTests {
    /// Everything here is confined to a loop.
    private final class Bench: @unchecked Sendable {
        let loop: EventLoop
        let room: FlightRoom
        let backlogs: RowBacklogs
        let health = OwnedDelivery.Health(
            FlightBudget.Client(app: "shop", provider: "apns"),
            backlog: ProviderBacklog(limit: 3, share: 10)
        )
        var ready: [String] = []
        var back: [String] = []

        init(total: Int) throws {
            loop = try EventLoop(name: "backlogs")
            let session = WorkSession()
            session.begin(1)
            room = FlightRoom(total: total, session: session) { _ in }
            backlogs = RowBacklogs(room: room, clock: DatabaseClock(), loop: loop)
        }

        func start() {
            backlogs.onReady = { rows in self.ready += rows.map(\.delivery.key.target) }
            backlogs.onHandBack = { row, _, _ in self.back.append(row.delivery.key.target) }
        }

        func row(_ target: String, lane: Int = 0) -> OwnedDelivery {
            OwnedDelivery(
                ShardMember(
                    Delivery(
                        key: DeliveryKey(day: "2027-01-15", pushID: "p", target: target),
                        app: "shop",
                        installationID: target,
                        device: DeviceTarget(
                            provider: .apns,
                            token: target,
                            environment: .production
                        ),
                        lane: lane,
                        attempts: 0,
                        unanswered: 0,
                        createdAt: .now()
                    )
                ),
                context: PushContext(pushID: "p", eventID: "e", source: "s", request: nil),
                session: 1,
                health: health
            )
        }
    }

    /// Runs `body` on the loop of a bench.
    private func on(
        total: Int = 100,
        _ body: @escaping @Sendable (Bench) -> Void
    ) async throws {
        let bench = try Bench(total: total)
        await withCheckedContinuation { done in
            bench.loop.execute {
                bench.start()
                body(bench)
                done.resume()
            }
        }
        await bench.loop.stop()
    }

    @Test("they leave in their order as soon as there is room, each with its slot")
    func inOrder() async throws {
        try await on { bench in
            let now = Instant.now()
            for target in ["a", "b", "c"] { bench.backlogs.wait(bench.row(target), now) }
            #expect(bench.ready.isEmpty && bench.back.isEmpty)
            bench.backlogs.sendReady()
            #expect(bench.ready == ["a", "b", "c"])
            #expect(bench.room.budget.owned(for: .direct) == 3)
            bench.backlogs.sendReady()
            #expect(bench.ready.count == 3, "once")
        }
    }

    @Test("a row of a broadcast does not wait here: it is due later")
    func broadcasts() async throws {
        try await on { bench in
            bench.backlogs.wait(bench.row("a", lane: 1), .now())
            #expect(bench.back == ["a"])
        }
    }

    @Test("a stop hands all back, a lost session forgets them, and neither leaves a place taken")
    func ends() async throws {
        try await on { bench in
            for target in ["a", "b"] { bench.backlogs.wait(bench.row(target), .now()) }
            bench.backlogs.handBackAll()
            #expect(bench.back == ["a", "b"])
            bench.backlogs.wait(bench.row("c"), .now())
            bench.backlogs.dropAll()
            bench.backlogs.sendReady()
            #expect(bench.ready.isEmpty && bench.back == ["a", "b"])
            #expect(bench.room.budget.owned == 0)
        }
    }
}
