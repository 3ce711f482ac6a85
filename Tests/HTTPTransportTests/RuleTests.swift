import Testing

@testable import HTTPTransport

@Suite("Policies of a pool", .timeLimit(.minutes(1))) struct PoolRules {
    private func rule(_ change: (inout ConnectionPolicy.Limits) -> Void = { _ in })
        -> ConnectionPolicy
    {
        var limits = ConnectionPolicy.Limits()
        change(&limits)
        var rule = ConnectionPolicy(limits)
        rule.opened(at: 0)
        return rule
    }

    @Test("With a token one request goes ahead, until a response shows that the token is accepted")
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

    @Test("A first request without a response delays the others for a bounded time")
    func patience() {
        var rule = rule { $0.provesFirst = true }
        rule.sent(at: 10)
        #expect(rule.check(at: 1000, hasSettings: true, awaited: 1) == .none)
        #expect(rule.capacity(free: 9, open: 1) == 0)
        _ = rule.check(at: 2010, hasSettings: true, awaited: 1)
        #expect(rule.capacity(free: 9, open: 1) == 9)
    }

    @Test("A silent peer gets a PING, and is closed if it stays silent")
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

    @Test("A connection without work is closed, and abandoned if it cannot be closed")
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

    @Test("A connection without SETTINGS in time is closed")
    func settings() {
        var rule = rule()
        #expect(rule.check(at: 3999, hasSettings: false, awaited: 0) == .none)
        #expect(rule.check(at: 4000, hasSettings: false, awaited: 0) == .giveUp)
    }

    @Test("An idle or old connection gets no new requests")
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

    @Test("An expired request discredits only a connection without a response since")
    func wedged() {
        var rule = rule()
        rule.answered(status: 200, at: 100)
        rule.timedOut(sentAt: 50)
        #expect(!rule.isRetiring)
        rule.timedOut(sentAt: 101)
        #expect(rule.isRetiring)
    }

    @Test("Failures back off up to a bound, and one success resets the backoff")
    func backOff() {
        var rule = ReconnectPolicy()
        #expect(rule.wait(at: 0) == 0)
        var waits: [Int64] = []
        for _ in 0..<20 {
            rule.failed(at: 1000, jitter: 0.5)
            waits.append(rule.wait(at: 1000))
        }
        #expect(waits.prefix(3) == [250, 500, 1000])
        #expect(waits.max() == ReconnectPolicy.longestMilliseconds)
        rule.failed(at: 1000, jitter: 1)
        #expect(rule.wait(at: 1000) == 12_500)
        rule.succeeded()
        #expect(rule.wait(at: 1000) == 0 && rule.failures == 0)
    }

    @Test("Connections that all end early are opened at a lower rate, until one lasts")
    func earlyEnds() {
        var rule = ReconnectPolicy(forgives: 3)
        for _ in 0..<3 { rule.endedEarly(at: 0, jitter: 0.5) }
        #expect(rule.wait(at: 0) == 0 && rule.earlyEnds == 0)
        var waits: [Int64] = []
        for _ in 0..<10 {
            rule.endedEarly(at: 0, jitter: 0.5)
            // Each of them answers before it ends.
            rule.succeeded()
            waits.append(rule.wait(at: 0))
        }
        #expect(waits.prefix(4) == [250, 500, 1000, 2000])
        #expect(waits.last == ReconnectPolicy.longestMilliseconds)
        // They are opened one at a time.
        let open = rule.toOpen(
            requests: 1000,
            waiting: 1000,
            streams: 10,
            usable: 0,
            isConnecting: false,
            limit: 4
        )
        #expect(open == 1)
        rule.lasted()
        #expect(rule.wait(at: 0) == 0 && rule.earlyEnds == 0)
        // An occasional early end is allowed again.
        rule.endedEarly(at: 10_000, jitter: 0.5)
        #expect(rule.wait(at: 10_000) == 0)
        rule.endedEarly(at: 10_000, jitter: 0.5)
        #expect(rule.wait(at: 10_000) == 250)
    }

    @Test("An end is early after few responses in a short life, and is reported once")
    func early() {
        var few = rule()
        for time in 1...49 { few.answered(status: 200, at: Int64(time)) }
        var many = few
        many.answered(status: 200, at: 100)
        #expect(many.hasJustLasted && !few.hasJustLasted)
        #expect(few.endsEarly(at: 9999) && !few.endsEarly(at: 9999))
        #expect(many.endsEarly(at: 100) == false)
        many.answered(status: 200, at: 200)
        #expect(!many.hasJustLasted)
        var old = rule()
        old.answered(status: 200, at: 10_000)
        #expect(old.hasJustLasted && !old.endsEarly(at: 10_000))
        old.answered(status: 200, at: 10_001)
        #expect(!old.hasJustLasted)
    }

    @Test("A limit of one stream right after the first responses is not the connection's capacity")
    func believed() {
        var rule = rule { $0.provesFirst = true }
        #expect(!rule.accepts(limit: 1000))
        rule.answered(status: 403, at: 1)
        #expect(!rule.accepts(limit: 1000))
        rule.answered(status: 200, at: 2)
        #expect(rule.accepts(limit: 1000) && !rule.accepts(limit: 1))
        for time in 3...10 { rule.answered(status: 200, at: Int64(time)) }
        #expect(rule.accepts(limit: 1))
        rule.retire()
        #expect(!rule.accepts(limit: 1000))
    }

    @Test("Connections are opened as load needs, one at a time after a failed attempt")
    func growth() {
        func toOpen(_ rule: ReconnectPolicy, _ requests: Int, _ usable: Int, _ busy: Bool) -> Int {
            rule.toOpen(
                requests: requests,
                waiting: requests,
                streams: 100,
                usable: usable,
                isConnecting: busy,
                limit: 4
            )
        }
        var rule = ReconnectPolicy()
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
        var rule = ReplacementPolicy(burst: 2)
        #expect(rule.admits(at: 0) && rule.admits(at: 0) && !rule.admits(at: 500))
        #expect(rule.admits(at: 1000) && !rule.admits(at: 1001))
    }
}
