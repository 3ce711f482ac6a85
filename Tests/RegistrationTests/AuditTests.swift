import HTTPServer
import Testing

@testable import Registration

@Suite("Audit entries of a request", .timeLimit(.minutes(1)))
struct AuditTests {
    @Test("A call to Parse's surface is recorded as its method, class and id, whatever its path")
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
            let found = try ParseRoute.find(method, path)
            #expect(found.route.action == action)
            #expect(found.id == id)
        }
    }
}
