import Apps
import Cryptography
import EventLoop
import HTTPServer
import JSON
import Observability
import Storage
import Testing

@testable import Gateway

@Suite("Surfaces behind the gateway", .timeLimit(.minutes(1)))
struct SurfaceTests {
    /// A surface with a form of its own.
    private struct Bells: Surface {
        struct Cracked: Error {}

        let cors: CORS? = CORS("/bells/*rest", methods: "GET", headers: "X", exposed: "X-Tone")

        func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow("/bells") }

        var routes: [SurfaceRoute] {
            [
                SurfaceRoute(
                    .get,
                    "/bells/open",
                    handler: .unauthenticated { _, _ in .text("dong") }
                ),
                SurfaceRoute(
                    .get,
                    "/bells/:app/cracked/:id",
                    appName: "app",
                    handler: .unauthenticated { _, _ in throw Cracked() }
                ),
                SurfaceRoute(
                    .get,
                    "/bells/broken",
                    handler: .unauthenticated { _, _ in throw CancellationError() }
                ),
                SurfaceRoute(
                    .get,
                    "/bells/tuned",
                    handler: .unauthenticated { _, _ in
                        throw HTTPProblem(status: 415, headers: ["Accept-Encoding": "gzip"])
                    }
                ),
                SurfaceRoute(.get, "/bells/mine", for: .master) { _, _ in .text("mine") },
                SurfaceRoute(
                    .get,
                    "/bells/at-once/:what",
                    handler: .prompt { request, context in
                        switch request.pathParameters["what"] {
                        case "open": .now(.text("dong"))
                        case "later": .later { .text("dong at last") }
                        case "cracked": throw Cracked()
                        case "cracked-later": .later { throw Cracked() }
                        case "broken": throw CancellationError()
                        case "mine":
                            // The cache is empty, so this app has to be looked up.
                            try context.admitAtOnce(Proof(project: "shop", clientKey: "k")) == nil
                                ? .now(.text("nobody at once")) : .now(.text("mine"))
                        default: throw context.refusal()
                        }
                    }
                ),
            ]
        }

        func answer(to refusal: Refusal, _ request: HTTPServerRequest) -> HTTPServerResponse {
            .text("\(refusal)", status: HTTPProblem(refusal).status)
        }

        func answer(toOwn error: any Error, _ request: HTTPServerRequest) -> HTTPServerResponse? {
            error is Cracked ? .text("cracked", status: 409) : nil
        }

        func decorated(
            _ response: HTTPServerResponse,
            for request: HTTPServerRequest
        ) -> HTTPServerResponse {
            var response = response
            response.headers["X-Tone"] = "e"
            return response
        }
    }

    /// A surface without a form of its own.
    private struct Plain: Surface {
        var routes: [SurfaceRoute] {
            [SurfaceRoute(.get, "/v9/here", handler: .unauthenticated { _, _ in .text("here") })]
        }

        func owns(_ request: HTTPServerRequest) -> Bool { request.isBelow("/v9") }
    }

    private func ask(
        _ method: HTTPMethod,
        _ target: String,
        headers: HTTPHeaders = [:]
    ) async throws -> (status: Int, text: String, headers: HTTPHeaders) {
        let loop = try EventLoop(name: "door")
        let database = PushDatabase(
            DatabaseConfiguration(uri: "postgres://127.0.0.1:1/none", applicationName: "test"),
            on: loop,
            log: .disabled,
            metrics: Metrics()
        )
        let keys = try KeyRing("one:" + Base64.encode(Array(repeating: 7, count: 32)))
        let metrics = Metrics()
        let requestGuard = RequestGuard(
            RequestLimits(
                AppCache(database, keys: keys, on: loop),
                RateLimits(),
                appLimits: AppLimits(),
                metrics: metrics
            ),
            audit: AuditTrail("audit", database, on: loop, log: .disabled, metrics: metrics)
        )
        var router = Router()
        router.mount([Bells(), Plain()], behind: requestGuard)
        let request = try HTTPServerRequest(method, target, headers: headers)
        let asked = router
        let answer = await Task(executorPreference: loop) { await asked.respond(to: request) }.value
        return (answer.status, String(decoding: answer.body, as: UTF8.self), answer.headers)
    }

    @Test("Each surface refuses in its own form, and pages of other origins can read it")
    func refusals() async throws {
        let nothing = try await ask(.get, "/bells/none")
        #expect(nothing.status == 404 && nothing.text == "nothingHere")
        #expect(nothing.headers["access-control-allow-origin"] == "*")
        let other = try await ask(.delete, "/bells/open")
        #expect(other.status == 405 && other.text == "wrongMethod")
        let stranger = try await ask(.get, "/bells/mine")
        #expect(stranger.status == 401 && stranger.text == "unauthorized")
        #expect(stranger.headers["access-control-allow-origin"] == "*")
        let own = try await ask(.get, "/bells/shop/cracked/1")
        #expect(own.status == 409 && own.text == "cracked")
        let failed = try await ask(.get, "/bells/broken")
        #expect(failed.status == 500 && failed.text == "failed")
        let tuned = try await ask(.get, "/bells/tuned")
        #expect(tuned.status == 415 && tuned.headers["accept-encoding"] == "gzip")
        #expect(tuned.headers["x-tone"] == nil)
        let plain = try await ask(.get, "/v9/none")
        #expect(plain.status == 404 && plain.headers["content-type"] == "application/problem+json")
        #expect(plain.headers["access-control-allow-origin"] == nil)
        let nobodys = try await ask(.get, "/elsewhere")
        #expect(nobodys.status == 404)
    }

    @Test("The time until a refusal does not depend on why the credentials were refused")
    func refusalTime() async throws {
        let basic = "Basic " + Base64.encode(Array("no app's id:key".utf8))
        let start = ContinuousClock.now
        let stranger = try await ask(.get, "/bells/mine", headers: ["authorization": basic])
        #expect(stranger.status == 401 && stranger.text == "unauthorized")
        #expect(ContinuousClock.now - start >= .milliseconds(25))
    }

    @Test("Responses have the headers of their surface, and preflight requests are answered")
    func answers() async throws {
        let open = try await ask(.get, "/bells/open")
        #expect(open.status == 200 && open.text == "dong" && open.headers["x-tone"] == "e")
        #expect(open.headers["access-control-expose-headers"] == "X-Tone")
        let first = try await ask(.options, "/bells/anything")
        #expect(first.status == 200 && first.headers["access-control-allow-methods"] == "GET")
    }

    @Test("Immediate responses have the same refusals, errors and headers as others")
    func prompt() async throws {
        for (what, text) in [("open", "dong"), ("later", "dong at last")] {
            let answer = try await ask(.get, "/bells/at-once/\(what)")
            #expect(answer.status == 200 && answer.text == text)
            #expect(answer.headers["x-tone"] == "e")
            #expect(answer.headers["access-control-allow-origin"] == "*")
        }
        for what in ["cracked", "cracked-later"] {
            let answer = try await ask(.get, "/bells/at-once/\(what)")
            #expect(answer.status == 409 && answer.text == "cracked")
            #expect(answer.headers["access-control-allow-origin"] == "*")
        }
        let failed = try await ask(.get, "/bells/at-once/broken")
        #expect(failed.status == 500 && failed.text == "failed")
        let stranger = try await ask(.get, "/bells/at-once/none")
        #expect(stranger.status == 401 && stranger.text == "unauthorized")
        #expect(try await ask(.get, "/bells/at-once/mine").text == "nobody at once")
    }

    @Test("The app's name in a path is not a target of the request")
    func targets() throws {
        let routes = Bells().routes
        #expect(routes.map(\.targetNames) == [[], ["id"], [], [], [], ["what"]])
        #expect(routes[1].action == "GET /bells/:app/cracked/:id")
    }

    @Test("An id with a comma is one id, except when several are deleted at once")
    func commas() throws {
        for (method, targets) in [(HTTPMethod.get, ["a,b"]), (.delete, ["a", "b"])] {
            let route = SurfaceRoute(method, "/things/:id", for: .client) { _, _ in .empty(204) }
            var request = try HTTPServerRequest(method, "/things/a%2Cb")
            request.pathParameters = ["id": "a,b"]
            #expect(route.targets(in: request) == targets)
        }
    }

    @Test(
        "The base URL is that of the outer proxy, if it sends a valid one",
        arguments: [
            ([:], "http://localhost"), (["Host": "a:8080"], "http://a:8080"),
            (["Host": "a", "X-Forwarded-Proto": "HTTPS, http"], "https://a"),
            (["Host": "a", "X-Forwarded-Proto": "gopher"], "http://a"),
            (["Host": "a", "X-Forwarded-Host": "b.example, c"], "http://b.example"),
            (["Host": "a", "X-Forwarded-Host": "b/../c"], "http://a"),
            (["Host": "a", "X-Forwarded-Host": ""], "http://a"),
        ] as [(HTTPHeaders, String)]
    )
    func base(headers: HTTPHeaders, base: String) throws {
        #expect(try HTTPServerRequest(.get, "/", headers: headers).outsideBase == base)
    }
}
