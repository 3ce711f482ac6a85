import Testing

@testable import HTTPTransport

@Suite("Deadlines on a wheel", .timeLimit(.minutes(1))) struct DeadlineWheels {
    @Test("Each is told once, at its tick, and none that was taken away")
    func deadlines() {
        var wheel = DeadlineWheel(buckets: 4)
        // 1, 5 and 9 share a bucket.
        for due in [1, 2, 5, 9] { wheel.add(due, due: Int64(due)) }
        #expect(wheel.count == 4)
        #expect(wheel.advance(to: 1) == [1])
        #expect(wheel.advance(to: 1).isEmpty)
        wheel.remove(5)
        wheel.remove(5)
        #expect(wheel.advance(to: 8) == [2])
        #expect(wheel.advance(to: 9) == [9])
        #expect(wheel.count == 0)
    }

    @Test("After a long sleep all that is due comes at once, and nothing else")
    func sleep() {
        var wheel = DeadlineWheel(buckets: 8)
        for number in 0..<100 { wheel.add(number, due: Int64(number)) }
        #expect(Set(wheel.advance(to: 89)) == Set(0..<90))
        #expect(wheel.count == 10)
        // What is late already is due at the next tick.
        wheel.add(200, due: 3)
        #expect(Set(wheel.advance(to: 90)) == [90, 200])
    }

    @Test("A number may come again")
    func again() {
        var wheel = DeadlineWheel(buckets: 8)
        wheel.add(0, due: 3)
        wheel.remove(0)
        wheel.add(0, due: 5)
        #expect(wheel.advance(to: 4).isEmpty)
        #expect(wheel.advance(to: 5) == [0])
    }
}

@Suite("What a pool decides", .timeLimit(.minutes(1))) struct PoolRules {
    private func rule(_ change: (inout ConnectionRule.Limits) -> Void = { _ in }) -> ConnectionRule
    {
        var limits = ConnectionRule.Limits()
        change(&limits)
        var rule = ConnectionRule(limits)
        rule.opened(at: 0)
        return rule
    }

    @Test("With a token one request goes ahead, until an answer shows that the token was taken")
    func proof() {
        var rule = rule { $0.provesFirst = true }
        #expect(rule.capacity(free: 1000, open: 0) == 1)
        rule.sent(at: 10)
        #expect(rule.capacity(free: 999, open: 1) == 0)
        rule.answered(status: 403, at: 20)
        #expect(rule.capacity(free: 1000, open: 0) == 1)
        rule.answered(status: 410, at: 30)
        #expect(rule.capacity(free: 1000, open: 0) == 1000)
        #expect(self.rule().capacity(free: 7, open: 0) == 7)
    }

    @Test("A first request without an answer does not hold up the others for ever")
    func patience() {
        var rule = rule { $0.provesFirst = true }
        rule.sent(at: 10)
        #expect(rule.check(at: 1000, hasSettings: true, awaited: 1) == .none)
        #expect(rule.capacity(free: 9, open: 1) == 0)
        _ = rule.check(at: 2010, hasSettings: true, awaited: 1)
        #expect(rule.capacity(free: 9, open: 1) == 9)
    }

    @Test("A silent peer is pinged, and given up when it stays silent")
    func ping() {
        var rule = rule()
        #expect(rule.check(at: 4999, hasSettings: true, awaited: 1) == .none)
        #expect(rule.check(at: 5000, hasSettings: true, awaited: 1) == .ping)
        #expect(rule.check(at: 5001, hasSettings: true, awaited: 1) == .none)
        rule.heard(at: 6000)
        #expect(rule.check(at: 10_500, hasSettings: true, awaited: 1) == .none)
        #expect(rule.check(at: 11_000, hasSettings: true, awaited: 1) == .ping)
        #expect(rule.check(at: 16_000, hasSettings: true, awaited: 1) == .giveUp)
    }

    @Test("What has nothing left to do is closed, and given up where it cannot be")
    func cannotClose() {
        var rule = rule()
        rule.retire()
        #expect(rule.check(at: 100, hasSettings: true, awaited: 1) == .none)
        #expect(rule.check(at: 200, hasSettings: true, awaited: 0) == .retire)
        rule.heard(at: 5000)
        #expect(rule.check(at: 5199, hasSettings: true, awaited: 0) == .retire)
        #expect(rule.check(at: 5200, hasSettings: true, awaited: 0) == .giveUp)
        var stuck = self.rule()
        #expect(stuck.check(at: 9, hasSettings: true, awaited: 0) == .none)
        #expect(stuck.check(at: 9, hasSettings: true, awaited: 0, isCongested: true) == .retire)
    }

    @Test("No SETTINGS in time, and it is given up")
    func settings() {
        var rule = rule()
        #expect(rule.check(at: 9999, hasSettings: false, awaited: 0) == .none)
        #expect(rule.check(at: 10_000, hasSettings: false, awaited: 0) == .giveUp)
    }

    @Test("Idle or old, it takes nothing new")
    func age() {
        var rule = rule()
        #expect(rule.check(at: 599_999, hasSettings: true, awaited: 0) == .none)
        #expect(rule.check(at: 600_000, hasSettings: true, awaited: 0) == .retire)
        let old: Int64 = 6 * 3_600_000
        rule.heard(at: old)
        #expect(rule.check(at: old, hasSettings: true, awaited: 3) == .retire)
        rule.retire()
        #expect(rule.capacity(free: 9, open: 3) == 0)
        #expect(rule.check(at: old + 1, hasSettings: true, awaited: 3) == .none)
    }

    @Test("A request out of time discredits only a connection that answered nothing since")
    func wedged() {
        var rule = rule()
        rule.answered(status: 200, at: 100)
        rule.timedOut(sentAt: 50)
        #expect(!rule.isRetiring)
        rule.timedOut(sentAt: 101)
        #expect(rule.isRetiring)
    }

    @Test("Failures back off up to a bound, one success forgets them")
    func backOff() {
        var rule = ReconnectRule()
        #expect(rule.wait(at: 0) == 0)
        var waits: [Int64] = []
        for _ in 0..<20 {
            rule.failed(at: 1000, jitter: 0.5)
            waits.append(rule.wait(at: 1000))
        }
        #expect(waits.prefix(3) == [250, 500, 1000])
        #expect(waits.max() == ReconnectRule.longestMilliseconds)
        rule.failed(at: 1000, jitter: 1)
        #expect(rule.wait(at: 1000) == 12_500)
        rule.succeeded()
        #expect(rule.wait(at: 1000) == 0 && rule.failures == 0)
    }

    @Test("Connections are opened as load needs, one at a time where the last attempt failed")
    func growth() {
        func toOpen(_ rule: ReconnectRule, _ requests: Int, _ usable: Int, _ busy: Bool) -> Int {
            rule.toOpen(
                requests: requests,
                waiting: requests,
                streams: 100,
                usable: usable,
                isConnecting: busy,
                limit: 4
            )
        }
        var rule = ReconnectRule()
        #expect(toOpen(rule, 0, 0, false) == 0)
        #expect(toOpen(rule, 1, 0, false) == 1)
        #expect(toOpen(rule, 1, 1, false) == 0)
        #expect(toOpen(rule, 101, 1, false) == 1)
        #expect(toOpen(rule, 10_000, 1, true) == 3)
        #expect(toOpen(rule, 10_000, 4, false) == 0)
        rule.failed(at: 0, jitter: 0)
        #expect(toOpen(rule, 10_000, 0, false) == 1)
        #expect(toOpen(rule, 10_000, 1, true) == 0)
        #expect(toOpen(rule, 10_000, 1, false) == 1)
    }

    @Test("Connections are replaced in a burst, then one a second")
    func replacement() {
        var rule = ReplacementRule(burst: 2)
        #expect(rule.admits(at: 0) && rule.admits(at: 0) && !rule.admits(at: 500))
        #expect(rule.admits(at: 1000) && !rule.admits(at: 1001))
    }
}
