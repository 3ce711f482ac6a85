import JSON
import Support
import Testing

@testable import HTTPServer

@Suite(.timeLimit(.minutes(1)))
struct RouterTests {
    private func answer(
        _ router: Router,
        _ method: HTTPMethod,
        _ target: String
    ) async throws -> (status: Int, body: String) {
        let response = await router.respond(to: try HTTPServerRequest(method, target))
        return (response.status, String(decoding: response.body, as: UTF8.self))
    }

    private func router(_ patterns: [String]) -> Router {
        var router = Router()
        for pattern in patterns {
            router.on(.get, pattern) { request in
                let values = request.pathParameters.sorted { $0.key < $1.key }
                return .text("\(pattern) " + values.map { "\($0)=\($1)" }.joined(separator: " "))
            }
        }
        return router
    }

    @Test(arguments: [
        ("/1.1/installations/abc", "/1.1/installations/:id id=abc"),
        ("/1.1/installations/abc/tags", "/1.1/installations/:id/tags id=abc"),
        ("/1.1/installations/count", "/1.1/installations/count "),
        ("/1.1/installations/count/tags", "/1.1/installations/:id/tags id=count"),
        ("/v1/projects/p/messages:send", "/v1/projects/:project/messages:send project=p"),
        ("/v1/namespaces/firebase:fetch", "/v1/namespaces/:name:fetch name=firebase"),
        ("/v1/namespaces/firebase", "/v1/namespaces/:name name=firebase"),
        ("/files/a/b%20c/", "/files/*rest rest=a/b c/"),
        ("/files/", "/files/*rest rest="),
        ("/a%2Fb", "/:one one=a/b"),
        ("/%E2%82%AC?x=1", "/:one one=€"),
    ])
    func theMostExactPatternWins(_ target: String, _ expected: String) async throws {
        let router = router([
            "/1.1/installations/:id", "/1.1/installations/count", "/1.1/installations/:id/tags",
            "/v1/projects/:project/messages:send", "/v1/namespaces/:name:fetch",
            "/v1/namespaces/:name", "/files/*rest", "/:one",
        ])
        let found = try await answer(router, .get, target)
        #expect(found == (200, expected))
    }

    @Test(arguments: ["/1.1", "/1.1/installations", "/1.1/installations/", "/nothing/here", "/"])
    func whatNoPatternHasIsNotFound(_ target: String) async throws {
        let found = try await answer(router(["/1.1/installations/:id"]), .get, target)
        #expect(found.status == 404)
        #expect(try JSONValue.parse(found.body)["status"] == 404)
    }

    /// A few routes are compared, and many are looked up.
    @Test(arguments: [1, 8, 9, 100])
    func eachOfManyLiteralsIsFound(_ count: Int) async throws {
        let router = router((0..<count).map { "/one/of-\($0)/end" })
        for number in 0..<count {
            let found = try await answer(router, .get, "/one/of-\(number)/end")
            #expect(found == (200, "/one/of-\(number)/end "))
        }
        #expect(try await answer(router, .get, "/one/of-\(count)/end").status == 404)
    }

    @Test func anotherMethodIsToldWhichAreAllowed() async throws {
        var router = Router()
        router.on(.put, "/a/:id") { _ in .empty(200) }
        router.on(.get, "/a/b") { _ in .empty(200) }
        let response = await router.respond(to: try HTTPServerRequest(.delete, "/a/b"))
        #expect(response.status == 405)
        #expect(response.headers["allow"] == "GET, HEAD, PUT")
    }

    @Test func headFallsBackToGetAndOptionsDoesNot() async throws {
        let router = router(["/a"])
        #expect(try await answer(router, .head, "/a").status == 200)
        #expect(try await answer(router, .options, "/a").status == 405)
    }

    @Test func aRouteIsTakenForItsOwnMethodOnly() async throws {
        var router = Router()
        router.on(.get, "/a") { _ in .text("get") }
        router.on(.post, "/:any") { _ in .text("post") }
        #expect(try await answer(router, .post, "/a") == (200, "post"))
        #expect(try await answer(router, .get, "/a") == (200, "get"))
    }

    @Test func whatAHandlerThrowsShowsNothing() async throws {
        var router = Router()
        router.on(.get, "/a") { _ in throw TestFailure("the password is 1234") }
        let found = try await answer(router, .get, "/a")
        #expect(found.status == 500)
        #expect(!found.body.contains("1234"))
    }

    @Test func aProblemIsAnsweredAsItSays() async throws {
        var router = Router()
        router.on(.get, "/a") { _ in
            throw HTTPProblem(status: 409, detail: "taken", headers: ["Retry-After": "3"])
        }
        let response = await router.respond(to: try HTTPServerRequest(.get, "/a"))
        #expect(response.status == 409)
        #expect(response.headers["retry-after"] == "3")
        #expect(response.headers["content-type"] == "application/problem+json")
        #expect(try JSONValue.parse(response.body)["detail"] == "taken")
    }

    @Test func aSurfaceAnswersInItsOwnProtocol() async throws {
        var router = Router()
        router.on(.get, "/a") { _ in throw TestFailure("x") }
        router.notFound = { .text("nothing at \($0.path)", status: 404) }
        router.methodNotAllowed = { _, allowed in .text("only \(allowed.count)", status: 405) }
        router.errorResponse = { _, _ in .text("E1", status: 503) }
        #expect(try await answer(router, .get, "/b") == (404, "nothing at /b"))
        #expect(try await answer(router, .post, "/a") == (405, "only 1"))
        #expect(try await answer(router, .get, "/a") == (503, "E1"))
    }

    @Test func aQueryIsTakenApart() throws {
        let request = try HTTPServerRequest(.get, "/a?x=1&y=a%26b+c&x=2&empty=&bare&&=v")
        #expect(
            request.query.map { "\($0.name)=\($0.value)" } == [
                "x=1", "y=a&b c", "x=2", "empty=", "bare=", "=v",
            ]
        )
        #expect(request.queryValue("x") == "1")
        #expect(request.queryValue("none") == nil)
    }

    @Test(arguments: ["/?a=%", "/?a=%0", "/?a=%00", "/%C3%28", "no-slash", ""])
    func aBrokenTargetIsRefused(_ target: String) {
        #expect(throws: HTTPProblem.self) { try HTTPServerRequest(.get, target) }
    }

    @Test func headersAreFoundWithoutCaseAndKeepTheirOrder() {
        var headers: HTTPHeaders = ["B": "1", "a": "2", "b": "3"]
        #expect(headers["b"] == "1")
        #expect(headers.all("B") == ["1", "3"])
        headers["B"] = "4"
        #expect(headers.map { "\($0.name)=\($0.value)" } == ["B=4", "a=2"])
        headers["A"] = nil
        #expect(headers.count == 1)
        headers.add("Connection", "keep-alive, Close")
        #expect(headers.hasToken("close", in: "connection"))
        #expect(!headers.hasToken("clos", in: "connection"))
    }
}
