import JSON
import Observability
import PushCore
import PushEvents
import PushProviders
import Testing

@testable import Dispatcher
@testable import PushStorage

/// The resources that runs share, without I/O. Its recorder stores what it is given.
final class RunBench: RunRecording {
    let session = WorkSession()
    let room: SendSlots
    let inHand = WorkInHand()
    let figures = OutcomeFigures(at: .now())
    fileprivate(set) var ready: [(run: any RecordedRun, place: Int)] = []

    init(total: Int = 100) {
        session.begin(1)
        room = SendSlots(total: total, session: session) { _ in }
    }

    var services: RunServices {
        RunServices(
            session: session,
            room: room,
            inHand: inHand,
            meters: DeliveryMetrics(Metrics()),
            figures: figures,
            recorder: self
        )
    }

    func add(_ run: any RecordedRun, _ place: Int) { ready.append((run, place)) }

    /// The ended rows by target.
    var rows: [String] {
        ready.compactMap { run, place in
            guard run is RowRun, case .row(let record) = run.entry(of: place) else { return nil }
            return record.delivery.target
        }
    }

    static func health(limit: Int = 10) -> ClientHealth {
        ClientHealth(SendBudget.Client(1), backlog: ProviderBacklog(limit: limit, share: 10))
    }

    static func delivery(_ target: String, of push: String = "e", lane: Int = 0) -> Delivery {
        Delivery(
            key: DeliveryKey(day: "2027-01-15", pushID: push, target: target),
            app: "shop",
            installationID: target,
            device: DeviceTarget(provider: .apns, token: target, environment: .production),
            lane: lane,
            attempts: 0,
            unanswered: 0,
            createdAt: .now()
        )
    }
}

@DispatchLoop
@Suite("A run of the fast path, from its look-up to the ledger", .timeLimit(.minutes(1)))
struct InlineRunTests {
    private let now = Instant(seconds: 1_800_000_000)
    private let bench = RunBench()
    private let health = RunBench.health()
    private let all = InlinePushes()

    private func item(_ id: String) throws -> EventBatch.Usable {
        let text = #"{"id": "\#(id)", "app": "shop", "installations": ["a"], "data": {"a": "x"}}"#
        let record = IncomingRecord(
            topic: "push.requests",
            partition: 0,
            offset: 0,
            key: nil,
            value: Array(text.utf8)
        )
        return EventBatch.Usable(
            pushID: id,
            event: try PushEvent.decode(record, now: now, topics: KafkaTopics()),
            record: record
        )
    }

    /// Makes a run of pushes with these members, all of which are sent.
    private func run(_ pushes: [[String]]) throws -> InlineRun {
        let run = InlineRun(in: all, bench.services)
        for number in pushes.indices {
            let item = try item("e\(number)")
            run.add(item, NewPush(item, acceptedAt: now), fetchedAt: .now)
        }
        for (number, targets) in pushes.enumerated() {
            let found = targets.map { RunBench.delivery($0, of: "e\(number)") }
            run.found(number, found, at: now, hasRow: false) { _ in health }
        }
        for position in run.begin(session: 1, lookedUpAt: .now) {
            #expect(bench.room.budget.admit(.direct, health.client) == true)
            run.admitted(position)
        }
        return run
    }

    private func end(_ run: InlineRun, _ position: Int, _ decision: DeliveryEnd.Decision) {
        guard let member = run.member(at: position) else { return }
        run.ended(position, DeliveryEnd(decision, of: member.delivery, at: now))
    }

    private var places: [Int] { bench.ready.map(\.place) }

    private var slots: Int { bench.room.budget.owned }

    @Test("A push is ready once all of its members have ended, and waits for no other push")
    func allEnded() async throws {
        let run = try run([["a", "b"], ["c"]])
        end(run, 1, .settle(.delivered))
        end(run, 1, .settle(.delivered))
        #expect(places.isEmpty, "once")
        end(run, 2, .settle(.delivered))
        #expect(places == [1])
        end(run, 0, .settle(.failed))
        #expect(places == [1, 0])
        #expect(run.outcomes(of: 0) == 2 && slots == 3)
        for place in [1, 0] { run.recorded(place, .recorded(.written), at: .now) }
        run.recorded(0, .lost, at: .now)
        await run.waitUntilFinished()
        #expect(run.ends.isEmpty && slots == 0)
        run.hold()
        #expect(places == [1, 0], "once")
    }

    @Test("A push without devices is ready at once")
    func noMembers() throws {
        _ = try run([[]])
        #expect(places == [0])
    }

    @Test("A member in flight becomes a row after a time, and one that ends then ends as a row")
    func held() async throws {
        let run = try run([["a", "b", "c"]])
        let again = now.adding(milliseconds: 2000)
        end(run, 0, .retry(at: again))
        run.hold()
        #expect(places == [0])
        #expect(run.outcomes(of: 0) == 0, "a retry is no outcome")
        end(run, 1, .settle(.delivered))
        guard case .push(let sent) = run.entry(of: 0) else { return }
        #expect(sent.deliveries[0].end?.decision == .retry(at: again))
        #expect(sent.deliveries[1].end == nil && sent.deliveries[2].end == nil)
        run.recorded(0, .recorded(.written), at: .now)
        await run.waitUntilFinished()
        #expect(bench.rows == ["b"])
        #expect(slots == 2)
        end(run, 2, .settle(.delivered))
        #expect(bench.rows == ["b", "c"], "after the write, too")
        for (row, place) in bench.ready.dropFirst() {
            row.recorded(place, .recorded(.written), at: .now)
        }
        #expect(slots == 0)
    }

    @Test(
        "A row is registered as owned, with its push, before it is written as in flight (rule 65)"
    )
    func inHand() throws {
        let run = try run([["a", "b"]])
        end(run, 0, .settle(.delivered))
        run.hold()
        var remembered = 0
        run.willWrite(0) { _ in remembered += 1 }
        #expect(bench.inHand.rows.map(\.target) == ["b"] && remembered == 1)
    }

    @Test("A lost push is looked up again, and all of its slots are released (rule 12)")
    func lost() async throws {
        let run = try run([["a", "b"], ["c"]])
        end(run, 0, .settle(.delivered))
        run.hold()
        end(run, 1, .settle(.delivered))
        _ = bench.session.lose(1)
        run.drop()
        await run.waitUntilFinished()
        #expect(run.ends.map(\.end) == [.lost, .lost])
        #expect(slots == 1, "one is in flight")
        // The write may return after that.
        run.recorded(0, .recorded(.written), at: .now)
        #expect(run.ends.count == 2 && bench.rows.isEmpty)
        // Its answer is for a row of a lost session, and is not written.
        end(run, 2, .settle(.delivered))
        #expect(bench.rows == ["c"])
    }

    @Test("A copy in another batch waits for the first and ends with it (rule 2)")
    func copies() async throws {
        let first = try run([["a"]])
        let copy = InlineRun(in: all, bench.services)
        let item = try item("e0")
        copy.add(item, NewPush(item, acceptedAt: now), fetchedAt: .now)
        #expect(copy.newPushes.isEmpty)
        all.drop()
        await copy.waitUntilFinished()
        await first.waitUntilFinished()
        #expect(copy.ends.map(\.end) == [.lost] && first.ends.map(\.end) == [.lost])
        #expect(all.isEmpty)
    }

    /// Makes a run of one large push with two members that are sent.
    private func largeRun(_ id: String) throws -> InlineRun {
        let run = InlineRun(in: all, bench.services, isLarge: true)
        let item = try item(id)
        #expect(all.admitLarge(item, 1, limit: 1))
        run.add(item, NewPush(item, acceptedAt: now), fetchedAt: .now)
        let found = ["a", "b"].map { RunBench.delivery($0, of: id) }
        run.found(0, found, at: now, hasRow: false) { _ in health }
        for position in run.begin(session: 1, lookedUpAt: .now) {
            #expect(bench.room.budget.admit(.direct, health.client) == true)
            run.admitted(position)
        }
        return run
    }

    @Test(
        "A large push holds its app's share until its members have ended, also as rows (rule 14)"
    )
    func share() async throws {
        let run = try largeRun("e0")
        run.hold()
        run.recorded(0, .recorded(.written), at: .now)
        await run.waitUntilFinished()
        #expect(!all.admitLarge(try item("e1"), 1, limit: 1))
        end(run, 0, .settle(.delivered))
        #expect(all.admitLarge(try item("e2"), 1, limit: 1))
        end(run, 1, .settle(.delivered))
        #expect(!all.admitLarge(try item("e3"), 1, limit: 1), "released once")
    }

    @Test("A lost session releases the share and drops unsent members (rule 14)")
    func lostShare() throws {
        _ = try largeRun("e0")
        all.drop()
        #expect(all.admitLarge(try item("e1"), 1, limit: 1))
    }

    @Test("A copy of a large push follows the first: in flight, or to be planned (rule 2)")
    func largeCopies() async throws {
        let first = try largeRun("e0")
        #expect(all.admitLarge(try item("e0"), 1, limit: 1), "it waits for the first")
        let second = try item("e1")
        #expect(!all.admitLarge(second, 1, limit: 1))
        first.drop()
        await first.waitUntilFinished()
        #expect(!all.admitLarge(second, 1, limit: 1), "the first is not planned yet")
        all.planned([second])
        #expect(all.admitLarge(second, 1, limit: 1))
    }

    @Test(
        "An app's large pushes in flight are bounded, except its first and those of others (rule 14)"
    )
    func named() {
        var named = NamedInFlight()
        #expect(named.admit(250, of: "busy", limit: 100) == true)
        #expect(named.admit(40, of: "busy", limit: 100) == false)
        #expect(named.admit(60, of: "quiet", limit: 100) == true)
        #expect(named.admit(40, of: "quiet", limit: 100) == true)
        #expect(named.admit(33, of: "quiet", limit: 100) == false)
        #expect(named.admit(250, of: "busy", limit: .max) == true)
        named.release(250, of: "busy")
        #expect(named.admit(40, of: "busy", limit: 100) == false)
        named.release(250, of: "busy")
        #expect(named.admit(40, of: "busy", limit: 100) == true)
    }

    @Test("A push is in flight from its look-up until it is ready, so outcomes wait for it")
    func inFlight() throws {
        let run = try run([["a"], ["b"]])
        end(run, 0, .settle(.delivered))
        #expect(all.areInFlight)
        end(run, 1, .settle(.delivered))
        #expect(!all.areInFlight && !all.isEmpty)
        for place in 0..<2 { run.recorded(place, .recorded(.written), at: .now) }
        #expect(all.isEmpty)
        _ = try self.run([["a"]])
        all.drop()
        #expect(!all.areInFlight)
    }

    @Test("An ended run is freed, and an unfinished one keeps only its own push in memory")
    func memory() throws {
        weak var context: PushContext?
        let run = try run([["a"], ["b"]])
        context = run.context(at: 0)
        end(run, 0, .settle(.delivered))
        run.recorded(0, .recorded(.written), at: .now)
        #expect(context == nil)
        #expect(run.member(at: 0) == nil && run.member(at: 1) != nil)
        weak var seen: InlineRun?
        do {
            let other = try self.run([["a"]])
            seen = other
            end(other, 0, .settle(.delivered))
            other.recorded(0, .recorded(.written), at: .now)
            bench.forget()
        }
        #expect(seen == nil)
    }
}

extension RunBench {
    fileprivate func forget() { ready = [] }
}

@DispatchLoop
@Suite("Slots for a batch of events", .timeLimit(.minutes(1)))
struct PromisedRoomTests {
    @Test("Promised slots are reserved until they are taken or released")
    func promised() {
        let session = WorkSession()
        session.begin(1)
        let room = SendSlots(total: 100, session: session) { _ in }
        #expect(room.hasRoom(in: .direct, count: 80))
        room.promise(80)
        #expect(!room.hasRoom(in: .direct, count: 80))
        #expect(room.room(in: .direct) == 7)
        room.endPromise(80)
        #expect(room.room(in: .direct) == 87)
        #expect(room.hasRoom(in: .direct, count: 80))
    }

    @Test("Slots promised to large pushes delay other large ones, but not small ones (rule 40)")
    func large() {
        let session = WorkSession()
        session.begin(1)
        let room = SendSlots(total: 100, session: session) { _ in }
        room.promise(12, isLarge: true)
        #expect(!room.hasRoom(in: .direct, count: 1, isLarge: true))
        #expect(room.hasRoom(in: .direct, count: 12))
        room.promise(12)
        #expect(!room.hasRoom(in: .direct, count: 1))
        room.endPromise(12, isLarge: true)
        #expect(room.hasRoom(in: .direct, count: 12, isLarge: true))
        #expect(!room.hasRoom(in: .direct, count: 1))
        #expect(room.room(in: .direct) == 75)
    }
}
