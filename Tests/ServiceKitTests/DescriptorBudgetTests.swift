import Testing

@testable import ServiceKit

@Suite("Descriptor budget", .timeLimit(.minutes(1)))
struct DescriptorBudgetTests {
    @Test(
        "All listeners together leave the service its reserve, whatever the limit is",
        arguments: [0, 1, 40, 64, 256, 512, 1024, 4096, 20_000, 65_536, 1_048_576, Int(Int32.max)]
    )
    func reserve(total: Int) {
        let budget = DescriptorBudget(total: total)
        let service = budget.connections(for: .service(), wanted: 1_000_000)
        let operations = budget.connections(for: .operations, wanted: 10_000)
        #expect(service >= 1 && operations >= 1)
        #expect(operations <= max(1, budget.reserve / 4))
        guard total > 1 else { return }
        #expect(service + budget.reserve <= total)
        let shares = 3 * budget.connections(for: .service(share: 3), wanted: 1_000_000)
        #expect(shares <= max(3, total - budget.reserve))
    }

    @Test("With many descriptors, a listener gets the number that was asked for")
    func many() {
        let budget = DescriptorBudget(total: 1_048_576)
        #expect(budget.connections(for: .service(), wanted: 65_536) == 65_536)
        #expect(budget.connections(for: .service(share: 4), wanted: 10_000) == 10_000)
    }

    @Test(
        "With usual limits, listeners get the rest beyond the reserve",
        arguments: [(256, 128), (1024, 768), (20_000, 15_904)]
    )
    func usual(total: Int, left: Int) {
        let budget = DescriptorBudget(total: total)
        #expect(budget.connections(for: .service(), wanted: 65_536) == left)
    }
}
