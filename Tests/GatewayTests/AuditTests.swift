import JSON
import Testing

@testable import Gateway

@Suite("Audit entries of a batch", .timeLimit(.minutes(1)))
struct AuditTests {
    @Test("An entry has the number of items for each route, within a bound")
    func batchesAreCounted() {
        var actions = BatchedActions()
        #expect(actions.json == [:])
        for _ in 0..<3 { actions.add("DELETE /1.1/users/:id") }
        actions.add("POST /1.1/push")
        #expect(actions.json["items"]?["DELETE /1.1/users/:id"] == 3)
        #expect(actions.json["items"]?["POST /1.1/push"] == 1)
        for number in 0..<1000 { actions.add("GET /\(number)") }
        actions.add("POST /1.1/push")
        let items = actions.json["items"]?.object ?? [:]
        #expect(items.count == BatchedActions.maximumActions + 1)
        #expect(items["POST /1.1/push"] == 2)
        #expect(items.values.compactMap(\.integer).reduce(0, +) == 1005)
    }
}
