import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Health of the services, on the page and in the command", .timeLimit(.minutes(5)))
    struct HealthTests {
        @Test(
            "Page and command show every service and an open breaker; another app's key shows no other app"
        )
        func health() async throws {
            try await ConsoleFixture.run { fixture in
                let (stack, app) = (fixture.stack, fixture.app)
                let other = try await stack.makeApp()
                try await Self.register(400, of: app, stack)
                let dispatcher = try await stack.start(
                    "carillon-dispatcher",
                    ["DISPATCH_IN_FLIGHT": "256"]
                )
                var master = try await fixture.masterBrowser(of: app)
                let signs = [
                    "<code translate=\"no\">registration</code>",
                    "<code translate=\"no\">dispatcher</code>", "Nothing needs attention.",
                ]
                let calm = try await eventually("every service on the page") {
                    let page = try await master.get("\(fixture.home)/health")
                    #expect(page.status == 200)
                    return signs.allSatisfy(page.text.contains) ? page.text : nil
                }
                #expect(!calm.contains("breaker open"))

                try await stack.simulator.setRules([["provider": "fcm", "status": 503]])
                try await stack.send([
                    "id": "sick", "source": "e2e", "app": .string(app.id),
                    "data": ["alert": "To everybody"],
                ])
                let sick = try await eventually("the breaker on the page") {
                    let page = try await master.get("\(fixture.home)/health").text
                    return page.contains("breaker open") ? page : nil
                }
                #expect(sick.contains("FCM has failed since"))
                let home = try await master.get(fixture.home).text
                #expect(home.contains("FCM has failed since"))

                let top = try await Self.top(fixture, [])
                let breakers = try #require(top["breakers"]?.array)
                #expect(breakers.map { $0["app"]?.string } == [app.id])
                #expect(breakers[0]["provider"] == "fcm")
                let services = top["services"]?.array ?? []
                let names = Set(services.compactMap { $0["service"]?.string })
                #expect(names.isSuperset(of: ["dispatcher", "registration"]))
                #expect(services.allSatisfy { $0["seen"] == true })
                #expect(try await Self.top(fixture, ["--app", other.id])["breakers"] == [])
                let text = try await fixture.carillon(["top"]).successful("top")
                #expect(text.contains("BREAKER    \(app.id) fcm"))
                #expect(!text.contains("\u{1B}"), "no control characters into a pipe")

                let device = String(format: "%024x", 400)
                try await Explainer(
                    stack: stack,
                    registration: fixture.service.url,
                    app: app
                ).expect(nil, device, "breaker", isSteady: false)

                // The other app sees the services, and nothing of this app.
                var stranger = try await fixture.masterBrowser(of: other)
                for path in ["", "/health"] {
                    let page = try await stranger.get("/console/\(other.id)\(path)").text
                    #expect(!page.contains(app.id), "\(path)")
                    #expect(!page.contains("FCM has failed"), "\(path)")
                }
                #expect(try await stranger.get("\(fixture.home)/health").status == 404)

                #expect(await dispatcher.process.stop() == .status(0))
                let left = try await stack.database.query("select service from service_instances")
                #expect(left == ["registration"], "a process that stops is not missed")
                try await Self.expectLostIsMissed(fixture, &master)
            }
        }

        /// A process that has not reported for 30 seconds is missed; the page has no reasons, the
        /// command has them.
        private static func expectLostIsMissed(
            _ fixture: ConsoleFixture,
            _ browser: inout Browser
        ) async throws {
            _ = try await fixture.stack.database.query(
                """
                insert into service_instances (id, service, host, version, seen_at, state) values
                (gen_random_uuid(), 'connection', 'node-7:1', '1', now() - interval '1 min', '{}'),
                (gen_random_uuid(), 'ingest', 'node-8:1', '1', now(),
                    '{"notReady": [{"part": "producer-0", "reason": "no broker at kafka-3"}]}')
                """
            )
            for path in ["", "/health"] {
                let page = try await browser.get(fixture.home + path).text
                #expect(page.contains("has not reported since"), "\(path)")
                #expect(page.contains("producer-0"), "\(path)")
                #expect(!page.contains("kafka-3"), "\(path): hosts are for operators")
            }
            let text = try await fixture.carillon(["top", "--once"]).successful("top")
            #expect(text.contains("NOT SEEN   connection node-7:1"))
            #expect(text.contains("no broker at kafka-3"))
        }

        private static func top(
            _ fixture: ConsoleFixture,
            _ words: [String]
        ) async throws -> JSONValue {
            let answer = try await fixture.carillon(["top", "--once", "--json"] + words)
            return try JSONValue.parse(try answer.successful("top"))
        }

        private static func register(
            _ count: Int,
            of app: Stack.App,
            _ stack: Stack
        ) async throws {
            _ = try await stack.database.query(
                """
                insert into installations (app, object_id, device_type, provider, token,
                    token_hash, token_updated_at, created_at)
                select '\(app.id)', lpad(to_hex(n), 24, '0'), 'android', 'fcm', token,
                    sha256(convert_to(token, 'UTF8')), now() - interval '1 h',
                    now() - interval '1 h'
                from (select n, encode(sha256(convert_to('\(app.id)' || n, 'UTF8')), 'hex')
                    as token from generate_series(1, \(count)) n) phones
                """
            )
        }
    }
}
