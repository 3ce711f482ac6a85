import PushCore
import PushStorage
import Synchronization
import Testing

@testable import Dispatcher

@DispatchLoop
@Suite("The session under which this process works", .timeLimit(.minutes(1)))
struct WorkSessionTests {
    @Test("Only the current session can be lost, and only once")
    func lost() {
        let session = WorkSession()
        #expect(session.current == nil && session.working == nil)
        session.begin(7)
        #expect(session.isCurrent(7) && session.working == 7)
        #expect(!session.lose(6))
        #expect(session.lose(7))
        #expect(!session.lose(7))
        #expect(!session.isCurrent(7) && session.current == nil)
    }

    @Test("After a stop nothing is claimed, and sent deliveries are recorded")
    func stopping() {
        let session = WorkSession()
        let limit = ContinuousClock.now + .seconds(3)
        session.begin(7)
        #expect(session.stop(at: limit))
        #expect(!session.stop(at: limit + .seconds(9)))
        #expect(session.stopsAt == limit)
        #expect(session.working == nil && session.current == 7)
        #expect(!session.hasEnded)
        session.end()
        #expect(session.hasEnded)
    }
}

@DispatchLoop
@Suite("Rows that this process works on", .timeLimit(.minutes(1)))
struct WorkInHandTests {
    private func key(_ target: String) -> DeliveryKey {
        DeliveryKey(day: "2026-11-21", pushID: "p", target: target)
    }

    @Test("A row without a task is a stray at the second look, and one with a task never is")
    func strays() {
        let inHand = WorkInHand()
        inHand.take(key("a"))
        inHand.lookForStrays()
        #expect(inHand.isLookWanted)
        #expect(inHand.strays(among: [key("a"), key("b")]).isEmpty)
        #expect(inHand.strays(among: [key("a"), key("b")]) == [key("b")])
        #expect(!inHand.isLookWanted)
        inHand.leave(key("a"))
        #expect(inHand.strays(among: [key("a")]).isEmpty)
        #expect(inHand.strays(among: [key("a")]) == [key("a")])
    }

    @Test("The rows of a lost session are forgotten, and plans in progress are not")
    func lost() {
        let inHand = WorkInHand()
        inHand.take(key("a"))
        inHand.begins(planning: "p")
        inHand.lookForStrays()
        inHand.drop()
        #expect(inHand.rows.isEmpty && !inHand.isLookWanted)
        _ = inHand.strayPlans(among: ["p", "q"])
        #expect(inHand.strayPlans(among: ["p", "q"]) == ["q"])
        inHand.ends(planning: "p")
        _ = inHand.strayPlans(among: ["p"])
        #expect(inHand.strayPlans(among: ["p"]) == ["p"])
    }
}

@DispatchLoop
@Suite("Waiting for slots", .timeLimit(.minutes(1)))
struct SendSlotsTests {
    private let shop = SendBudget.Client(1)

    @Test("There are slots only under a session, and no claim is worthwhile while stopping")
    func session() {
        let session = WorkSession()
        let room = SendSlots(total: 64, session: session) { _ in }
        #expect(!room.hasRoom(in: .direct, count: 1))
        session.begin(1)
        #expect(room.hasRoom(in: .direct, count: 1))
        room.isPressed = { true }
        #expect(!room.hasRoom(in: .direct, count: 1))
        #expect(room.hasRoom(in: .broadcast, count: 1))
        _ = session.stop(at: .now)
        #expect(room.room(in: .broadcast) == 0)
    }

    @Test("A lane without slots is notified once when there are some")
    func wakeUp() {
        let session = WorkSession()
        session.begin(1)
        let rung = Mutex<[Lane]>([])
        let room = SendSlots(total: 64, session: session) { lane in
            rung.withLock { $0.append(lane) }
        }
        let taken = room.budget.admit(.rows, shop, atMost: 64)
        #expect(!room.isWorthClaiming(in: .broadcast))
        room.capacityAppeared()
        #expect(rung.withLock { $0 }.isEmpty)
        room.budget.release(.rows, shop, taken)
        room.capacityAppeared()
        room.capacityAppeared()
        #expect(rung.withLock { $0 } == [.broadcast])
    }

    @Test("A waiting task is woken by a free slot or by a stop", arguments: [true, false])
    func waiters(isStop: Bool) async {
        let session = WorkSession()
        session.begin(1)
        let room = SendSlots(total: 64, session: session) { _ in }
        let taken = room.budget.admit(.rows, shop, atMost: 64)
        await withCheckedContinuation { continuation in
            room.add(continuation, waitingFor: 16, in: .broadcast)
            room.wakeWaiters()
            if isStop {
                _ = session.stop(at: .now)
                room.wakeWaiters()
            } else {
                room.budget.release(.rows, shop, taken)
                room.capacityAppeared()
            }
        }
        #expect(room.budget.owned == (isStop ? taken : 0))
    }

    @Test(
        "A promise of slots that is ended twice is counted, and no other kind's promise ends by it"
    )
    func promises() {
        let session = WorkSession()
        session.begin(1)
        let room = SendSlots(total: 64, session: session) { _ in }
        let all = room.room(in: .direct)
        room.promise(8)
        room.promise(3, isLarge: true)
        room.endPromise(8)
        #expect(room.takeExcess() == 0)
        room.endPromise(8)
        #expect(room.room(in: .direct) == all - 3)
        room.endPromise(5, isLarge: true)
        #expect(room.room(in: .direct) == all)
        #expect(room.takeExcess() == 8 + 2)
        #expect(room.takeExcess() == 0)
    }
}
