import Testing

@testable import Dispatcher

@Suite("The backlog of one provider")
struct ProviderBacklogTests {
    /// Makes a backlog of four waiting entries, with room for ten in flight.
    private func backlog() -> ProviderBacklog<Int> { ProviderBacklog(limit: 4, share: 10) }

    @Test("Waiting deliveries leave in the order in which they came")
    func order() {
        var backlog = backlog()
        for number in 0..<10_000 { backlog.add(number, at: 0) }
        var taken: [Int] = []
        while !backlog.isEmpty { taken += backlog.take(333) }
        #expect(taken == Array(0..<10_000))
        let none = backlog.take(1)
        #expect(none.isEmpty)
    }

    @Test("All deliveries may wait if Postgres is slow, and their callers wait as well")
    func slowDatabase() {
        var backlog = backlog()
        backlog.sent(10, at: 0)
        for number in 0..<4 { backlog.add(number, at: 0) }
        #expect(!backlog.isPressing)
        for _ in 0..<6 { backlog.answered(at: 1) }
        #expect(backlog.isPressing)
        #expect(backlog.admits(at: 60_000))
        let overdue = backlog.takeOverdue(at: 60_000)
        #expect(overdue.isEmpty)
    }

    @Test("A slow provider delays no other, and has no more than the limit waiting")
    func slowProvider() {
        var backlog = backlog()
        backlog.sent(10, at: 0)
        for number in 0..<3 { backlog.add(number, at: 0) }
        #expect(backlog.admits(at: 400))
        backlog.add(3, at: 400)
        #expect(!backlog.admits(at: 400))
        #expect(!backlog.isPressing)
    }

    @Test(
        "Overdue deliveries are released, and new ones do not wait until the provider may recover"
    )
    func overdue() {
        var backlog = backlog()
        backlog.sent(10, at: 0)
        for number in 0..<3 { backlog.add(number, at: 0) }
        let soon = backlog.takeOverdue(at: 400)
        #expect(soon.isEmpty)
        let late = backlog.takeOverdue(at: 600)
        #expect(late == [0, 1, 2])
        #expect(!backlog.admits(at: 601))
        let delay = backlog.delay(at: 601)
        #expect(delay >= 999)
        #expect(backlog.admits(at: 1700))
    }

    @Test("Behind a shard, deliveries keep their place while answers come, and no caller waits")
    func behindShard() {
        var backlog = backlog()
        backlog.sent(10, ofShard: true, at: 0)
        for number in 0..<4 { backlog.add(number, at: 0) }
        #expect(!backlog.isPressing)
        #expect(!backlog.admits(at: 0))
        for time in stride(from: Int64(50), through: 5000, by: 50) {
            backlog.answered(ofShard: true, at: time)
            backlog.sent(1, ofShard: true, at: time)
            let overdue = backlog.takeOverdue(at: time + 500)
            #expect(overdue.isEmpty)
        }
        let overdue = backlog.takeOverdue(at: 5501)
        #expect(overdue == [0, 1, 2, 3], "the provider is silent")
    }

    @Test("The silence of a provider begins with its first request")
    func silence() {
        var backlog = backlog()
        backlog.sent(10, ofShard: true, at: 60_000)
        backlog.add(1, at: 0)
        let early = backlog.takeOverdue(at: 60_500)
        #expect(early.isEmpty)
        let late = backlog.takeOverdue(at: 60_501)
        #expect(late == [1])
    }

    @Test("Released deliveries come due as fast as the provider answers, within a minute")
    func pace() {
        var backlog = backlog()
        backlog.sent(2000, at: 0)
        for _ in 0..<1000 { backlog.answered(at: 1000) }
        let delays = (0..<1000).map { _ in backlog.delay(at: 1000) }
        #expect(delays == delays.sorted())
        #expect(delays[0] >= 1000)
        #expect(delays[999] - delays[0] == 999)
        let longest = (0..<100_000).map { _ in backlog.delay(at: 1000) }.max() ?? 0
        #expect(longest <= 60_000)
    }
}
