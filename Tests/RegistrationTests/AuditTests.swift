import Door
import HTTPServer
import JSON
import Testing

@testable import Registration

@Suite("What the audit says of a request", .timeLimit(.minutes(1)))
struct AuditTests {
    @Test("A call to Parse's surface is its method, its class and its id, whatever its path")
    func parseActions() throws {
        for (method, path, action, id) in [
            (.get, ["classes", "_Installation"], "GET /parse/classes/_Installation", nil),
            (.post, ["installations"], "POST /parse/classes/_Installation", nil),
            (.get, ["users", "ann"], "GET /parse/classes/_User/:id", "ann"),
            (.put, ["classes", "_User", "ann"], "PUT /parse/classes/_User/:id", "ann"),
            (.delete, ["installations", "a"], "DELETE /parse/classes/_Installation/:id", "a"),
            (.get, ["classes", "_PushStatus", "p"], "GET /parse/classes/_PushStatus/:id", "p"),
            (.post, ["push"], "POST /parse/push", nil),
            (.post, ["batch"], "POST /parse/batch", nil),
        ] as [(HTTPMethod, [String], String, String?)] {
            let route = try ParseRoute(method, path)
            #expect(route.action == action)
            #expect(route.id == id)
        }
    }

    @Test("A batch is told by how many of its items went each route, and by no more than a bound")
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
