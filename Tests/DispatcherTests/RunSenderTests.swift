import JSON
import Kafka
import Observability
import PushCore
import PushEvents
import PushProviders
import Testing

@testable import Dispatcher
@testable import PushStorage

/// A sender, its runs and a provider without a network.
@DispatchLoop
private final class SenderBench: ClientDirectory, @preconcurrency ProviderClient {
    let session = WorkSession()
    let room: SendSlots
    let health = RunBench.health(limit: 3)
    let context: PushContext
    private(set) var sender: RunSender?

    /// Targets in flight with their answers.
    var inFlight: [(target: String, urgent: Bool, answer: (ProviderAnswer) -> Void)] = []
    var isLoaded = true
    var obstacle: String?
    var switchedOff: String?

    init(total: Int, pace: Int? = nil) throws {
        session.begin(1)
        room = SendSlots(total: total, session: session) { _ in }
        var object: JSONObject = ["id": "e", "installations": ["a"], "data": ["alert": "x"]]
        if let pace { object["pace"] = JSONValue(pace) }
        context = PushContext(
            pushID: "e",
            eventID: "e",
            source: "s",
            request: try PushRequest.parse(object, now: .now())
        )
        sender = RunSender(
            room: room,
            session: session,
            credentials: self,
            policy: OutcomePolicy(maximumAge: 86_400_000),
            clock: DatabaseClock(),
            meters: DeliveryMetrics(Metrics())
        )
    }

    func isLoaded(_ app: String) -> Bool { isLoaded }
    func client(for delivery: Delivery, apnsTopic: String?) -> CredentialCache.Choice {
        obstacle.map { .misconfigured($0) } ?? .client(self)
    }
    func switchedOff(_ provider: Platform, of app: String) -> String? { switchedOff }
    func includesPushIDs(_ app: String) -> Bool { false }

    func send(
        _ deliveries: [OutgoingNotification],
        completion: @escaping @Sendable (Int, ProviderAnswer) -> Void
    ) {
        for (index, notification) in deliveries.enumerated() {
            inFlight.append(
                (notification.target.token, notification.isUrgent, { completion(index, $0) })
            )
        }
    }
    func withdrawAll() {}
    var deliveriesInside: Int { inFlight.count }
    func close() {}
    func closeAfterLastDelivery() {}

    func answer(_ outcome: ProviderOutcome = .accepted) {
        let answers = inFlight
        inFlight = []
        for (_, _, answer) in answers { answer(ProviderAnswer(outcome)) }
    }

    func openBreaker() {
        for _ in 0..<50 { health.breakers[.production].finished(.noAnswer, now: .now()) }
    }
}

/// A run that notes how its members ended, and releases their slots at once.
private final class NotingRun: OrderedRun {
    let bench: SenderBench
    private let members: [ShardMember]
    let use: SendBudget.Use
    private let isShard: Bool
    private var slots: Set<Int> = []
    private(set) var ends: [String: DeliveryEnd] = [:]
    private(set) var released = 0
    var isDropped = false

    /// Makes a run. The sender owns the slots of a shard.
    init(_ bench: SenderBench, _ targets: [String], lane: Int = 0, isShard: Bool = false) {
        self.bench = bench
        members = targets.map { ShardMember(RunBench.delivery($0, lane: lane)) }
        let use = SendBudget.Use(Lane(rawValue: lane) ?? .direct)
        self.use = isShard && use == .rows ? .shards : use
        self.isShard = isShard
    }

    var session: Int { 1 }
    var kind: LedgerEntry.Kind { .rows }
    func member(at position: Int) -> ShardMember? { members[position] }
    func context(at position: Int) -> PushContext { bench.context }
    func health(at position: Int) -> ClientHealth { bench.health }
    func health(of platform: Platform) -> ClientHealth { bench.health }
    func other(than device: DeviceTarget, behind position: Int) -> Int? { nil }
    func admitted(_ position: Int) { slots.insert(position) }

    func ended(_ position: Int, _ end: DeliveryEnd) {
        ends[members[position].delivery.target] = end
        release(position)
        released -= 1
    }

    func release(_ position: Int) {
        released += 1
        if !isShard, slots.remove(position) != nil {
            bench.room.budget.release(use, bench.health.client)
        }
    }

    func outcomes(of place: Int) -> Int { 0 }
    func writeOutcomes(
        of place: Int,
        by writer: inout OutcomeWriter,
        to block: inout KafkaRecordBlock
    ) {}
    func entry(of place: Int) -> LedgerEntry { .row(DeliveryRecord(members[place], nil)) }
    func recorded(_ place: Int, _ end: RecordedEnd, at now: ContinuousClock.Instant) {}

    /// Targets that are due again.
    var due: [String] { ends.filter { $0.value.decision.dueAt != nil }.keys.sorted() }

    func sendAll(keepsPace: Bool = false) {
        bench.sender?.send(0..<members.count, of: self, keepsPace: keepsPace)
    }
}

/// Runs `body` with a bench, whose slots must not be released twice.
@DispatchLoop
private func on(total: Int = 100, pace: Int? = nil, _ body: (SenderBench) -> Void) throws {
    let bench = try SenderBench(total: total, pace: pace)
    body(bench)
    #expect(bench.room.budget.excess == 0)
}

@DispatchLoop
@Suite("Sending the members of runs", .timeLimit(.minutes(1)))
struct RunSenderTests {
    @Test("Members leave in one call to their client, and each ends by its answer")
    func answered() throws {
        try on { bench in
            let run = NotingRun(bench, ["a", "b"])
            run.sendAll()
            #expect(bench.inFlight.map(\.target) == ["a", "b"])
            #expect(bench.inFlight.allSatisfy { $0.urgent })
            #expect(bench.room.budget.owned(for: .direct) == 2)
            bench.answer()
            #expect(run.ends["a"]?.outcome == .delivered && run.ends["b"]?.outcome == .delivered)
            #expect(bench.room.budget.owned == 0)
        }
    }

    @Test("The order of checks is: switched off, credentials, client, breaker (rule 34)")
    func checks() throws {
        try on { bench in
            bench.openBreaker()
            bench.obstacle = "no credential"
            bench.isLoaded = false
            bench.switchedOff = "switched off"
            @DispatchLoop func end() -> DeliveryEnd? {
                let run = NotingRun(bench, ["a"])
                run.sendAll()
                return run.ends["a"]
            }
            #expect(end()?.outcome == .suppressed)
            bench.switchedOff = nil
            #expect(end()?.decision.dueAt != nil, "credentials are read first")
            bench.isLoaded = true
            let failed = end()
            #expect(failed?.outcome == .failed && failed?.reason == "no credential")
            #expect(failed?.tokenDiedAt == nil)
            bench.obstacle = nil
            #expect(end()?.decision.dueAt != nil, "the breaker is open")
            #expect(bench.inFlight.isEmpty && bench.room.budget.owned == 0)
        }
    }

    @Test("A push with a pace releases members beyond it, on their first attempt only (rule 45)")
    func pace() throws {
        try on(pace: 1) { bench in
            let first = NotingRun(bench, ["a", "b", "c"])
            first.sendAll(keepsPace: true)
            #expect(bench.inFlight.count < 3 && first.due.count == 3 - bench.inFlight.count)
            bench.answer()
            NotingRun(bench, ["a", "b", "c"]).sendAll()
            #expect(bench.inFlight.count == 3)
        }
    }

    @Test("After a stop nothing is sent, and a member is due at once")
    func stopping() throws {
        try on { bench in
            _ = bench.session.stop(at: .now)
            let run = NotingRun(bench, ["a"])
            run.sendAll()
            #expect(run.due == ["a"] && bench.inFlight.isEmpty)
        }
    }

    @Test("An answer to a dropped run releases its slot and ends no delivery")
    func dropped() throws {
        try on { bench in
            let run = NotingRun(bench, ["a"])
            run.sendAll()
            run.isDropped = true
            bench.answer()
            #expect(run.ends.isEmpty && run.released == 1)
            #expect(bench.room.budget.owned == 0)
        }
    }

    @Test("A shard stops at the first member without a slot, and skips no member")
    func noRoom() throws {
        try on(total: 10) { bench in
            let run = NotingRun(bench, (0..<9).map(String.init), lane: 1, isShard: true)
            let sent = bench.sender?.send(0..<9, of: run)
            // A broadcast may use five eighths, and one client half of all.
            #expect(sent?.done == 5 && sent?.stop == .noRoom)
            #expect(bench.inFlight.map(\.target) == ["0", "1", "2", "3", "4"])
            #expect(!bench.inFlight.contains { $0.urgent })
        }
    }

    @Test("A push that names many devices uses the slots of single devices, not of a broadcast")
    func named() throws {
        try on(total: 16) { bench in
            while bench.room.budget.admit(.shards, SendBudget.Client(99)) {}
            let run = NotingRun(bench, ["a", "b"], lane: 0, isShard: true)
            #expect(bench.sender?.send(0..<2, of: run).done == 2)
            #expect(bench.inFlight.allSatisfy { $0.urgent })
            #expect(bench.room.budget.owned(for: .direct) == 2)
        }
    }

    @Test("A shard stops at an unhealthy provider, and keeps no slot (rule 43)")
    func ill() throws {
        try on { bench in
            bench.openBreaker()
            let run = NotingRun(bench, ["a", "b"], lane: 1, isShard: true)
            let sent = bench.sender?.send(0..<2, of: run)
            #expect(sent?.done == 0)
            guard case .ill? = sent?.stop else {
                Issue.record("it waits for its provider")
                return
            }
            #expect(run.ends.isEmpty && bench.room.budget.owned == 0)
        }
    }

    @Test("A shard waits until its app's credentials are read again")
    func unready() throws {
        try on { bench in
            bench.isLoaded = false
            let run = NotingRun(bench, ["a"], lane: 1, isShard: true)
            let sent = bench.sender?.send(0..<1, of: run)
            #expect(sent?.done == 0 && sent?.stop == .unready)
            #expect(run.ends.isEmpty && bench.room.budget.owned == 0)
        }
    }
}

@DispatchLoop
@Suite("Members that wait for their provider's share", .timeLimit(.minutes(1)))
struct WaitingTests {
    @Test("Waiting members leave in order as soon as there are slots, each with its slot")
    func inOrder() throws {
        try on { bench in
            let run = NotingRun(bench, ["a", "b", "c"])
            for position in 0..<3 { bench.sender?.wait(position, of: run, .now()) }
            #expect(bench.inFlight.isEmpty && run.ends.isEmpty)
            bench.sender?.sendReady()
            #expect(bench.inFlight.map(\.target) == ["a", "b", "c"])
            #expect(bench.room.budget.owned(for: .direct) == 3)
            bench.sender?.sendReady()
            #expect(bench.inFlight.count == 3, "once")
        }
    }

    @Test("Members beyond a provider's share wait in order, over several runs")
    func beyond() throws {
        try on(total: 16) { bench in
            NotingRun(bench, (0..<8).map(String.init)).sendAll()
            NotingRun(bench, ["i"]).sendAll()
            #expect(bench.inFlight.count == 8)
            bench.answer()
            bench.sender?.sendReady()
            #expect(bench.inFlight.map(\.target) == ["i"])
        }
    }

    @Test("Members behind a shard that a silent provider holds let no caller wait (rule 41)")
    func behindShard() throws {
        try on(total: 16) { bench in
            let shard = NotingRun(bench, (0..<8).map(String.init), isShard: true)
            #expect(bench.sender?.send(0..<8, of: shard).done == 8)
            let run = NotingRun(bench, ["a", "b", "c", "d"])
            run.sendAll()
            #expect(run.due == ["d"], "the others wait here")
            #expect(bench.sender?.isPressed == false)
            #expect(bench.health.backlog.unanswered == 8)
            bench.answer()
            #expect(bench.sender?.isPressed == true, "now they wait for Postgres")
        }
    }

    @Test("A broadcast at a silent provider takes nothing from the share of single devices")
    func besideBroadcast() throws {
        try on(total: 16) { bench in
            let shard = NotingRun(bench, (0..<8).map(String.init), lane: 1, isShard: true)
            #expect(bench.sender?.send(0..<8, of: shard).done == 8)
            #expect(bench.health.backlog.unanswered == 0)
            bench.answer()
            #expect(bench.health.backlog.unanswered == 0)
        }
    }

    @Test("A row of a broadcast is rescheduled instead of waiting here")
    func broadcasts() throws {
        try on { bench in
            let run = NotingRun(bench, ["a"], lane: 1)
            bench.sender?.wait(0, of: run, .now())
            #expect(run.due == ["a"])
        }
    }

    @Test("A stop releases all, a lost session forgets them, and both free all slots")
    func ends() throws {
        try on { bench in
            let run = NotingRun(bench, ["a", "b", "c"])
            for position in 0..<2 { bench.sender?.wait(position, of: run, .now()) }
            bench.sender?.releaseWaiting()
            #expect(run.due == ["a", "b"])
            bench.sender?.wait(2, of: run, .now())
            bench.sender?.dropWaiting()
            bench.sender?.sendReady()
            #expect(bench.inFlight.isEmpty && run.due == ["a", "b"])
            #expect(bench.room.budget.owned == 0)
        }
    }
}
