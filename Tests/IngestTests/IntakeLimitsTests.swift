import Testing

@testable import Ingest

@Suite(.timeLimit(.minutes(1)))
struct IntakeLimitsTests {
    // MARK: Quota

    @Test("A minute's quota passes at once, also in one batch, and an excess is charged later")
    func quota() {
        let quota = ObjectQuota()
        let start = ContinuousClock.now
        #expect(quota.charge("shop", 90, limit: 60, now: start) == nil)
        #expect(quota.charge("shop", 1, limit: 60, now: start) == 31)
        #expect(quota.charge("other", 1, limit: 60, now: start) == nil)
        #expect(quota.charge("shop", 1, limit: 60, now: start + .seconds(30)) == 1)
        #expect(quota.charge("shop", 1000, limit: 60, now: start + .seconds(31)) == nil)
        #expect(quota.charge("shop", 1, limit: 60, now: start + .seconds(31)) == 61)
        #expect(quota.charge("shop", 1, limit: 0, now: start) == nil)
    }

    @Test("Only one of several concurrent batches may exceed the quota")
    func together() {
        let quota = ObjectQuota()
        let now = ContinuousClock.now
        // Each is charged when it arrives, then each when its objects are counted.
        let came = (0..<64).count { _ in quota.charge("shop", 1, limit: 60, now: now) == nil }
        #expect(came == 60)
        var taken = 0
        for _ in 0..<came {
            if quota.charge("shop", 110, insteadOf: 1, limit: 60, now: now) == nil {
                taken += 1
            } else {
                #expect(quota.charge("shop", 0, insteadOf: 1, limit: 60, now: now) == nil)
            }
        }
        #expect(taken == 1)
        #expect(quota.charge("shop", 1, limit: 60, now: now + .seconds(1)) == 1)
        #expect(quota.charge("shop", 1, limit: 60, now: now + .seconds(2)) == nil)
    }

    @Test("A refund restores the quota, up to a minute's amount")
    func givenBack() {
        let quota = ObjectQuota()
        let now = ContinuousClock.now
        #expect(quota.charge("shop", 60, limit: 60, now: now) == nil)
        #expect(quota.charge("shop", 1, limit: 60, now: now) == 1)
        #expect(quota.charge("shop", 0, insteadOf: 60, limit: 60, now: now) == nil)
        #expect(quota.charge("shop", 0, insteadOf: 60, limit: 60, now: now) == nil)
        #expect(quota.charge("shop", 60, limit: 60, now: now) == nil)
        #expect(quota.charge("shop", 1, limit: 60, now: now) == 1)
    }

    // MARK: Memory

    @Test("The memory of requests is bounded, but a single one is always admitted")
    func held() {
        let held = HeldBytes(limit: 100)
        #expect(held.change("a", from: 0, to: 500))
        #expect(held.isFull)
        #expect(!held.change("b", from: 0, to: 1))
        #expect(held.change("a", from: 500, to: 90))
        #expect(held.change("b", from: 0, to: 10))
        #expect(!held.change("c", from: 0, to: 1))
        #expect(held.change("a", from: 90, to: 0))
        #expect(held.change("b", from: 10, to: 0))
        #expect(held.count == 0)
    }

    @Test("The next app gets some memory, however much one app holds", arguments: 1...20)
    func shares(_ greedy: Int) {
        let held = HeldBytes(limit: 1_000_000)
        var isLetIn = true
        while isLetIn {
            isLetIn = false
            for app in 0..<greedy {
                if held.change("greedy \(app)", from: 0, to: 100) { isLetIn = true }
            }
        }
        #expect(held.count <= 1_000_000)
        #expect(held.change("honest", from: 0, to: 1_000_000 / (4 * greedy + 1) - 200))
    }

    @Test("A request releases its memory at its end, however it ends")
    func share() throws {
        let held = HeldBytes(limit: 1 << 20)
        do {
            let share = HeldShare(of: held, for: "a")
            try share.hold(1000)
            try share.hold(500)
            #expect((500...10_000).contains(held.count))
            let other = HeldShare(of: held, for: "a")
            #expect(throws: IntakeRefusal.unavailable) { try other.hold(2 << 20) }
        }
        #expect(held.count == 0)
    }
}
