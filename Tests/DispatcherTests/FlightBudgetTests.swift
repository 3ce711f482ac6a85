import Testing

@testable import Dispatcher

@Suite("What may be in flight", .timeLimit(.minutes(1)))
struct FlightBudgetTests {
    private let shop = FlightBudget.Client(app: "shop", provider: "apns")
    private let news = FlightBudget.Client(app: "news", provider: "fcm")

    @Test("memory is bounded: no more than the total is ever owned")
    func total() {
        var budget = FlightBudget(total: 16)
        var admitted = 0
        for index in 0..<1000 {
            let client = index.isMultiple(of: 2) ? shop : news
            if budget.admit(index.isMultiple(of: 3) ? .broadcast : .direct, client) {
                admitted += 1
            }
        }
        #expect(admitted == 16)
        #expect(budget.owned == 16)
        #expect(budget.room(in: .direct) == 0)
    }

    @Test("a broadcast leaves room for single devices")
    func broadcastLeavesRoom() {
        var budget = FlightBudget(total: 100)
        while budget.admit(.broadcast, shop) {}
        #expect(budget.owned == 25)
        #expect(budget.admit(.direct, shop) == true)
    }

    @Test("single devices leave room for a broadcast, and one provider for the others")
    func directLeavesRoom() {
        var budget = FlightBudget(total: 100)
        while budget.admit(.direct, shop) {}
        #expect(budget.owned(in: .direct) == 50)
        while budget.admit(.direct, news) {}
        #expect(budget.owned(in: .direct) == 87)
        #expect(budget.admit(.broadcast, shop) == true)
    }

    @Test("what is released may be used again, by whoever comes first")
    func release() {
        var budget = FlightBudget(total: 4)
        #expect(budget.admit(.direct, shop) == true)
        #expect(budget.admit(.direct, shop) == true)
        #expect(budget.admit(.direct, shop) == false)
        budget.release(.direct, shop)
        #expect(budget.admit(.direct, shop) == true)
        #expect(budget.admit(.direct, news) == true)
        budget.release(.direct, news)
        budget.release(.direct, shop)
        budget.release(.direct, shop)
        #expect(budget.owned == 0)
    }

    @Test("even one slot serves both lanes in turn", arguments: Lane.allCases)
    func one(lane: Lane) {
        var budget = FlightBudget(total: 1)
        #expect(budget.room(in: lane) == 1)
        #expect(budget.admit(lane, shop) == true)
        #expect(budget.admit(.direct, news) == false)
        #expect(budget.admit(.broadcast, news) == false)
        budget.release(lane, shop)
        #expect(budget.admit(.broadcast, news) == true)
    }
}
