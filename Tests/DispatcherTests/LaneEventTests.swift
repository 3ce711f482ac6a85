import JSON
import Observability
import PushCore
import PushEvents
import PushProviders
import Testing

@testable import Dispatcher
@testable import PushStorage

@Suite("An event of the lane, from its look-up to the books", .timeLimit(.minutes(1)))
struct LaneEventTests {
    private let now = Instant(seconds: 1_800_000_000)

    private func event(_ id: String = "e") throws -> LaneEvent {
        let record = IncomingRecord(
            topic: "push.requests",
            partition: 0,
            offset: 0,
            key: nil,
            value: Array(
                #"{"id": "\#(id)", "app": "shop", "installations": ["a", "b"], "data": {"alert": "x"}}"#
                    .utf8
            )
        )
        let item = EventBatch.Usable(
            pushID: id,
            event: try PushEvent.decode(record, now: now, topics: KafkaTopics()),
            record: record
        )
        return LaneEvent(
            item,
            NewPush(item, acceptedAt: now),
            fetchedAt: .now,
            EventStages(Metrics())
        )
    }

    private func delivery(_ target: String) -> Delivery {
        Delivery(
            key: DeliveryKey(day: "2027-01-15", pushID: "e", target: target),
            app: "shop",
            installationID: target,
            device: DeviceTarget(provider: .apns, token: target, environment: .production),
            lane: 0,
            attempts: 0,
            unanswered: 0,
            createdAt: now
        )
    }

    private func finished(
        _ event: LaneEvent,
        _ place: Int,
        _ decision: DeliveryEnd.Decision
    ) -> OwnedDelivery {
        let health = OwnedDelivery.Health(
            FlightBudget.Client(app: "shop", provider: "apns"),
            backlog: ProviderBacklog(limit: 10, share: 10)
        )
        let owned = OwnedDelivery(
            event.members[place],
            at: place,
            of: event,
            context: event.context,
            session: 1,
            health: health
        )
        owned.end = DeliveryEnd(decision, of: owned.delivery, at: now)
        return owned
    }

    @Test("An event that is over is let go, with what ended of it")
    func letGo() throws {
        weak var seen: LaneEvent?
        do {
            let event = try event()
            seen = event
            event.found([delivery("a")], at: now, hasRow: false)
            #expect(event.begin(session: 1))
            #expect(event.takes(finished(event, 0, .settle(.delivered))))
            #expect(event.ended(.recorded(.written), at: .now).deliveries.count == 1)
        }
        #expect(seen == nil)
    }

    @Test("it is ready once all of it has ended, and written as that")
    func allEnded() throws {
        let event = try event()
        var ready = 0
        event.onReady = { _ in ready += 1 }
        event.found([delivery("a"), delivery("b")], at: now, hasRow: false)
        #expect(event.begin(session: 1))
        #expect(event.takes(finished(event, 1, .settle(.delivered))))
        #expect(!event.takes(finished(event, 1, .settle(.delivered))), "once")
        #expect(ready == 0)
        #expect(event.takes(finished(event, 0, .settle(.failed))))
        #expect(ready == 1)
        #expect(event.outcomes == 2)
        #expect(event.onTheWay.isEmpty && !event.isOpen)
        var end: LaneEnd?
        event.onEnd { end = $0 }
        let released = event.ended(.recorded(.written), at: .now)
        #expect(released.deliveries.count == 2 && released.rows.isEmpty)
        #expect(end == .written)
        #expect(event.ended(.lost, at: .now).deliveries.isEmpty, "once")
        event.hold()
        #expect(ready == 1)
    }

    @Test("to nobody it is ready at once")
    func nobody() throws {
        let event = try event()
        var ready = 0
        event.onReady = { _ in ready += 1 }
        event.found([], at: now, hasRow: false)
        #expect(!event.begin(session: 1))
        #expect(ready == 1)
    }

    @Test("held too long, what is on its way becomes a row's, and so does what ends meanwhile")
    func held() throws {
        let event = try event()
        var ready = 0
        event.onReady = { _ in ready += 1 }
        event.found([delivery("a"), delivery("b")], at: now, hasRow: false)
        _ = event.begin(session: 1)
        let again = now.adding(milliseconds: 2000)
        #expect(event.takes(finished(event, 0, .retry(at: again))))
        event.hold()
        #expect(ready == 1)
        #expect(event.outcomes == 0, "what is tried again is no outcome")
        #expect(event.onTheWay.map(\.delivery.target) == ["b"] && event.isOpen)
        guard case .push(let sent) = event.entry else { return }
        #expect(sent.deliveries[0].end?.decision == .retry(at: again))
        #expect(sent.deliveries[1].end == nil)
        // While it is written, and after it.
        #expect(event.takes(finished(event, 1, .settle(.delivered))))
        let released = event.ended(.recorded(.written), at: .now)
        #expect(released.deliveries.map(\.place) == [0] && released.rows.map(\.place) == [1])
        #expect(!event.takes(finished(event, 1, .settle(.delivered))))
    }

    @Test(
        "what is to be in flight is in hand, and its push remembered, before it is written (rule 65)"
    )
    func inHand() throws {
        let event = try event()
        event.found([delivery("a"), delivery("b")], at: now, hasRow: false)
        _ = event.begin(session: 1)
        #expect(event.takes(finished(event, 0, .settle(.delivered))))
        event.hold()
        let work = WorkInHand()
        var remembered = 0
        event.willWrite(work) { _ in remembered += 1 }
        #expect(work.rows.map(\.target) == ["b"] && remembered == 1)
    }

    @Test("lost, it is looked up again, and all that it held is free (rule 12)")
    func lost() throws {
        let event = try event()
        event.found([delivery("a"), delivery("b")], at: now, hasRow: false)
        _ = event.begin(session: 1)
        #expect(event.takes(finished(event, 0, .settle(.delivered))))
        event.hold()
        #expect(event.takes(finished(event, 1, .settle(.delivered))))
        var end: LaneEnd?
        event.onEnd { end = $0 }
        let released = event.ended(.lost, at: .now)
        #expect(released.deliveries.map(\.place) == [0, 1] && released.rows.isEmpty)
        #expect(end == .lost)
        // The write may return after that.
        #expect(event.ended(.recorded(.written), at: .now).deliveries.isEmpty)
        #expect(end == .lost)
    }

    @Test("a copy waits for the first, and is told what became of it")
    func copies() async throws {
        let lane = EventLane()
        let (first, copy) = (try event(), try event())
        let batch = LaneBatch()
        #expect(lane.enter(first) == nil)
        batch.add(first.item, in: first)
        #expect(lane.enter(copy) === first)
        batch.add(copy.item, in: first)
        #expect(!lane.isEmpty)
        first.finish(.lost)
        await batch.untilOver()
        #expect(batch.ends.map(\.end) == [.lost, .lost])
        #expect(lane.isEmpty)
        #expect(lane.enter(copy) == nil)
    }
}

@Suite("Room for a batch of events", .timeLimit(.minutes(1)))
struct PromisedRoomTests {
    @Test("what was promised is nobody else's until it is taken or given back")
    func promised() {
        let session = WorkSession()
        session.begin(1)
        let room = FlightRoom(total: 100, session: session) { _ in }
        #expect(room.hasRoom(in: .direct, count: 80))
        room.promise(80)
        #expect(!room.hasRoom(in: .direct, count: 80))
        #expect(room.room(in: .direct) == 7)
        room.keepPromise(80)
        #expect(room.room(in: .direct) == 87)
        #expect(room.hasRoom(in: .direct, count: 80))
    }
}
