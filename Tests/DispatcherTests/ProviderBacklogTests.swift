import PushCore
import Testing

@testable import Dispatcher

@Suite("What waits for its provider's share")
struct ProviderBacklogTests {
    private let start = Instant(milliseconds: 1_700_000_000_000)

    private func at(_ milliseconds: Int64) -> Instant { start.adding(milliseconds: milliseconds) }

    private func backlog(_ limit: Int = 4) -> ProviderBacklog<Int> { ProviderBacklog(limit: limit) }

    @Test("what waits leaves in the order in which it came")
    func order() {
        var backlog = backlog()
        for number in 0..<10_000 { backlog.add(number, now: start) }
        var taken: [Int] = []
        while !backlog.isEmpty { taken += backlog.take(333) }
        #expect(taken == Array(0..<10_000))
        let none = backlog.take(1)
        #expect(none.isEmpty)
    }

    @Test("a provider that answers takes more than the limit, and those who bring it wait")
    func healthy() {
        var backlog = backlog()
        backlog.sent(100, now: start)
        for number in 0..<4 { backlog.add(number, now: start) }
        backlog.answered(now: at(50))
        #expect(backlog.isPressing(now: at(100)))
        #expect(backlog.admits(now: at(100)))
        let overdue = backlog.takeOverdue(now: at(100))
        #expect(overdue.isEmpty)
    }

    @Test("one that owes answers and gives none holds nobody up, and takes no more than the limit")
    func hanging() {
        var backlog = backlog()
        backlog.sent(100, now: start)
        for number in 0..<3 { backlog.add(number, now: start) }
        #expect(backlog.admits(now: at(400)))
        backlog.add(3, now: at(400))
        #expect(!backlog.admits(now: at(400)))
        #expect(!backlog.isPressing(now: at(400)))
    }

    @Test("what waits too long for a provider goes back, and nothing waits until it may recover")
    func overdue() {
        var backlog = backlog()
        backlog.sent(100, now: start)
        for number in 0..<3 { backlog.add(number, now: start) }
        let soon = backlog.takeOverdue(now: at(400))
        #expect(soon.isEmpty)
        let late = backlog.takeOverdue(now: at(600))
        #expect(late == [0, 1, 2])
        #expect(!backlog.admits(now: at(601)))
        let due = backlog.dueTime(now: at(601))
        #expect(due >= at(1600))
        #expect(backlog.admits(now: at(1700)))
    }

    @Test("what waits for Postgres, and not for the provider, stays")
    func slowDatabase() {
        var backlog = backlog()
        backlog.sent(1, now: start)
        backlog.answered(now: at(1))
        backlog.add(0, now: at(1))
        let overdue = backlog.takeOverdue(now: at(60_000))
        #expect(overdue.isEmpty)
        #expect(backlog.admits(now: at(60_000)))
    }

    @Test("what is handed back comes due as fast as the provider answers, within a minute")
    func pace() {
        var backlog = backlog()
        backlog.sent(2000, now: start)
        for _ in 0..<1000 { backlog.answered(now: at(1000)) }
        let times = (0..<1000).map { _ in backlog.dueTime(now: at(1000)) }
        #expect(times == times.sorted())
        #expect(times[0] >= at(2000))
        #expect(times[999].milliseconds - times[0].milliseconds == 999)
        let latest = (0..<100_000).map { _ in backlog.dueTime(now: at(1000)) }.max() ?? start
        #expect(latest <= at(61_000))
    }
}
