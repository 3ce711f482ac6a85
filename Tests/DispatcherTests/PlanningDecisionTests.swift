import JSON
import PushCore
import PushStorage
import Storage
import Testing

@testable import Dispatcher

private let timeout = StorageError(.database, "timeout", isRetryable: true, sqlState: "57014")
private let refusal = StorageError(.database, "internal error", sqlState: "XX000")

@Suite("Retries of slow planning in smaller steps", .timeLimit(.minutes(1)))
struct PlanningDecisionTests {
    @Test("A batch that takes too long is halved, and a single event is planned page by page")
    func halves() throws {
        var queue = PlanQueue([1, 2, 3])
        var hasAnotherWay = queue.timedOut()
        #expect(hasAnotherWay)
        #expect(queue.next?.items == [1])
        #expect(queue.next?.isInPages == false)
        hasAnotherWay = queue.timedOut()
        #expect(hasAnotherWay)
        #expect(queue.next?.items == [1])
        #expect(queue.next?.isInPages == true)
        // Now the database is slow.
        hasAnotherWay = queue.timedOut()
        #expect(!hasAnotherWay)
        queue.planned { _ in false }
        #expect(queue.next?.items == [2, 3])
        #expect(queue.next?.isInPages == false)
        queue.planned { $0 == 3 }
        #expect(queue.next?.items == [3])
        queue.planned { _ in false }
        #expect(queue.next == nil)
    }

    @Test("An invalid event is found by halves, and the others are planned")
    func refused() {
        var queue = PlanQueue([1, 2, 3, 4])
        var (planned, refused): ([Int], [Int]) = ([], [])
        while let portion = queue.next {
            if portion.items.contains(3) {
                if let item = queue.refused() { refused.append(item) }
            } else {
                planned += portion.items
                queue.planned { _ in false }
            }
        }
        #expect(planned == [1, 2, 4])
        #expect(refused == [3])
    }

    private func push(_ condition: Where? = nil) -> PlanningPush {
        let audience = PushRequest.Audience.installations(.init(condition: condition))
        return PlanningPush(id: "p", app: "a", request: PushRequest(audience: audience))
    }

    @Test(
        "An audience that takes too long is read in ever smaller pages, with backoff"
    )
    func smallerPages() {
        var retries = PlanningRetries()
        let now = ContinuousClock.now
        var sizes: [Int?] = [retries.pageSize("p")]
        for _ in 0..<5 {
            let failure = retries.add(timeout, to: push(), at: now)
            #expect(failure == nil)
            sizes.append(retries.pageSize("p"))
        }
        #expect(sizes == [nil, 200_000, 20_000, 2000, 200, 200])
        #expect(retries.backingOff(at: now) == ["p"])
        #expect(retries.backingOff(at: now + .seconds(60)).isEmpty)
        retries.planned("p")
        #expect(retries.pageSize("p") == 400)
        retries.ended("p")
        #expect(retries.pageSize("p") == nil)
    }

    @Test("A condition that the database cannot answer three times in a row ends its push")
    func conditionFails() throws {
        var retries = PlanningRetries()
        let asked = push(try Where.parse(["badge": 1]))
        let failures = (0..<3).map { _ in retries.add(timeout, to: asked, at: .now) }
        #expect(failures.prefix(2).allSatisfy { $0 == nil })
        #expect(failures.last??.hasPrefix("where: ") == true)
        // It stays until it is recorded.
        #expect(retries.failure(of: "p") != nil)
    }

    @Test("Failures that the condition did not cause are not counted against its push")
    func othersFaults() throws {
        var retries = PlanningRetries()
        let asked = push(try Where.parse(["badge": 1]))
        let lock = StorageError(.database, "a lock", isRetryable: true, sqlState: "55P03")
        for _ in 0..<5 { #expect(retries.add(lock, to: asked, at: .now) == nil) }
        #expect(retries.add(timeout, to: asked, at: .now) == nil)
    }

    @Test("A scheduled push that cannot be released is isolated, and the others are released")
    func release() {
        var retries = ReleaseRetries()
        #expect(retries.limit == 100)
        while retries.shrink() {}
        #expect(retries.limit == 1)
        let now = ContinuousClock.now
        retries.add(UnreleasablePush(id: "p", cause: timeout), at: now)
        #expect(retries.inPages == ["p"])
        #expect(retries.backingOff(at: now).isEmpty)
        retries.add(UnreleasablePush(id: "p", cause: timeout), at: now)
        #expect(retries.backingOff(at: now) == ["p"])
        #expect(retries.backingOff(at: now + .seconds(2)).isEmpty)
        retries.add(UnreleasablePush(id: "q", cause: refusal), at: now)
        #expect(retries.backingOff(at: now).contains("q"))
        retries.released(["p"], isAll: true)
        #expect(retries.inPages.isEmpty)
        #expect(retries.limit == 100)
    }
}

@Suite("The limit of concurrent plans", .timeLimit(.minutes(1)))
struct PlannerGateTests {
    @DispatchLoop
    @Test("Two portions are planned at once, and each that ends admits the next app's first")
    func gate() async {
        let gate = PlannerGate(2)
        await gate.enter("large")
        #expect(!gate.isFull)
        await gate.enter("large")
        #expect(gate.isFull)
        var (came, entered): ([String], [String]) = ([], [])
        var waiting: [String: Task<Void, Never>] = [:]
        for (name, app) in [("l1", "large"), ("l2", "large"), ("s1", "small")] {
            waiting[name] = DispatchLoop.task {
                came.append(name)
                await gate.enter(app)
                entered.append(name)
            }
            while !came.contains(name) { await Task.yield() }
        }
        #expect(entered.isEmpty)
        for name in ["l1", "s1", "l2"] {
            gate.leave()
            await waiting[name]?.value
            #expect(entered.last == name)
        }
    }
}
