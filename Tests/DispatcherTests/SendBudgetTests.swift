import Testing

@testable import Dispatcher

@Suite("The budget of deliveries in flight", .timeLimit(.minutes(1)))
struct SendBudgetTests {
    private let shop = SendBudget.Client(1)
    private let news = SendBudget.Client(2)

    @Test("The number of owned slots never exceeds the total")
    func total() {
        var budget = SendBudget(total: 16)
        var admitted = 0
        for index in 0..<1000 {
            let client = SendBudget.Client(index)
            if budget.admit(index.isMultiple(of: 3) ? .shards : .direct, client) {
                admitted += 1
            }
        }
        #expect(admitted == 16)
        #expect(budget.owned == 16)
        #expect(budget.room(for: .direct) == 0)
    }

    @Test("Broadcasts leave slots for single devices and their retries")
    func broadcastLeavesRoom() {
        var budget = SendBudget(total: 100)
        #expect(budget.admit(.shards, shop, atMost: 1000) == 50)
        #expect(budget.admit(.shards, shop, atMost: 1) == 0)
        #expect(budget.admit(.shards, news, atMost: 1000) == 12)
        #expect(budget.admit(.rows, shop, atMost: 1000) == 25)
        #expect(budget.admit(.direct, shop, atMost: 1000) == 10)
        #expect(budget.admit(.direct, news, atMost: 1000) == 3)
        #expect(budget.owned == 100)
        budget.release(.shards, shop, 50)
        #expect(budget.admit(.shards, news, atMost: 1000) == 38)
    }

    @Test("A provider of one app that hangs leaves half of the broadcast slots to other apps")
    func hangingProvider() {
        var budget = SendBudget(total: 4096)
        #expect(budget.admit(.shards, shop, atMost: 10_000) == 2048)
        #expect(budget.admit(.shards, news, atMost: 512) == 512)
    }

    @Test("Single devices leave slots for a broadcast, and one provider for the others")
    func directLeavesRoom() {
        var budget = SendBudget(total: 100)
        while budget.admit(.direct, shop) {}
        #expect(budget.owned(for: .direct) == 50)
        while budget.admit(.direct, news) {}
        #expect(budget.owned(for: .direct) == 78)
        #expect(budget.admit(.shards, shop) == true)
    }

    @Test("A client with little in flight gets a slot, however many apps' providers hang")
    func manyHang() {
        var budget = SendBudget(total: 4096)
        for number in 0..<4 {
            let client = SendBudget.Client(10 + number)
            _ = budget.admit(.shards, client, atMost: 10_000)
            _ = budget.admit(.direct, client, atMost: 10_000)
            while budget.admitWaiting(client) {}
        }
        #expect(budget.admit(.direct, shop) == true)
        #expect(budget.room(for: .direct) > 0)
        // Slots of slow clients are not worth waiting for.
        #expect(budget.heldByFew > 3000)
    }

    @Test("Answered deliveries that wait for Postgres count against no client")
    func answered() {
        var budget = SendBudget(total: 4096)
        let clients = [1, 2].map(SendBudget.Client.init)
        var isFull = false
        while !isFull {
            isFull = true
            for client in clients where budget.admit(.direct, client) {
                budget.ended(client)
                isFull = false
            }
        }
        #expect(budget.room(for: .direct) == 0)
        #expect(budget.heldByFew == 0)
        budget.release(.direct, clients[0], 10)
        #expect(budget.room(for: .direct) == 10)
    }

    @Test("Released slots can be used again by any client")
    func release() {
        var budget = SendBudget(total: 4)
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

    @Test("A slot that is released twice is counted, and frees no other delivery's slot")
    func excess() {
        var budget = SendBudget(total: 64)
        for use in SendBudget.Use.allCases {
            #expect(budget.admit(use, shop) == true)
            #expect(budget.admit(use == .rows ? .direct : use, news) == true)
            budget.release(use, shop)
            budget.release(use, shop)
        }
        #expect(budget.admitWaiting(shop) == true)
        budget.releaseWaiting(shop, 3)
        #expect(budget.owned == 3)
        #expect(budget.takeExcess() == 5)
        #expect(budget.excess == 0)
    }

    @Test("A single slot serves every use in turn", arguments: SendBudget.Use.allCases)
    func one(use: SendBudget.Use) {
        var budget = SendBudget(total: 1)
        #expect(budget.room(for: use) == 1)
        #expect(budget.admit(use, shop) == true)
        for other in SendBudget.Use.allCases { #expect(budget.admit(other, news) == false) }
        budget.release(use, shop)
        #expect(budget.admit(.shards, news) == true)
    }

    @Test("A waiting delivery counts in the total, and in its client's share once it starts")
    func waiting() {
        var budget = SendBudget(total: 16)
        let client = SendBudget.Client(1)
        #expect(budget.admit(.direct, client, atMost: 16) == 8)
        // Beyond that, some of the slots are reserved for other clients.
        let admitted = (0..<4).map { _ in budget.admitWaiting(client) }
        #expect(admitted == [true, true, true, false])
        #expect(budget.owned == 11)
        #expect(budget.start(client, atMost: 6) == 0)
        budget.release(.direct, client, 2)
        #expect(budget.start(client, atMost: 6) == 2)
        #expect(budget.owned == 9)
        budget.releaseWaiting(client, 1)
        budget.release(.direct, client, 8)
        #expect(budget.owned == 0)
        #expect(budget.admit(.direct, client, atMost: 16) == 8)
    }

    @Test("A few free slots are not taken while others are in flight, except by the last members")
    func batches() {
        var budget = SendBudget(total: 4096)
        #expect(budget.admitBatch(.shards, shop, atMost: 2047) == 2047)
        #expect(
            budget.admitBatch(.shards, shop, atMost: 100) == 0,
            "one slot for a hundred members"
        )
        #expect(budget.owned(for: .shards) == 2047)
        #expect(budget.admitBatch(.shards, news, atMost: 5) == 5, "all that there are")
        budget.release(.shards, shop, 31)
        #expect(budget.admitBatch(.shards, shop, atMost: 100) == 32)
        // A client with no member in flight does not wait for those of others.
        var crowded = SendBudget(total: 4096)
        #expect(crowded.admit(.shards, shop, atMost: 2048) == 2048)
        #expect(crowded.admit(.shards, SendBudget.Client(50), atMost: 500) == 500)
        #expect(crowded.admitBatch(.shards, news, atMost: 100) == 12)
        // With no member in flight one slot is better than no slot.
        var full = SendBudget(total: 256)
        for number in 0..<223 {
            let client = SendBudget.Client(100 + number)
            #expect(full.admit(.direct, client) == true)
        }
        #expect(full.admitBatch(.shards, shop, atMost: 100) == 1)
    }
}
