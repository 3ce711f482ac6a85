import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Dead letters in the console", .serialized, .timeLimit(.minutes(3)))
    struct ConsoleDeadLetterTests {
        /// A fixture with a dispatcher and a phone on the channel `news`.
        private static func run(
            _ body: (ConsoleFixture, _ phone: String) async throws -> Void
        ) async throws {
            try await ConsoleFixture.run { fixture in
                let dispatcher = try await fixture.stack.start("carillon-dispatcher")
                let content = try await fixture.content(of: fixture.app)
                try await body(fixture, content.token)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        /// Returns the addresses of the records on a list's page.
        private static func records(on page: String) -> [String] {
            PageElements(page).elements.compactMap { $0.attributes["href"] }
                .filter { $0.contains("push.dead-letters-") }
        }

        /// Returns the list's page, once it has as many records.
        private static func list(
            _ count: Int,
            _ browser: inout Browser,
            _ fixture: ConsoleFixture
        ) async throws -> String {
            var reader = browser
            let page = try await eventually("\(count) dead letters") {
                let answer = try await reader.get("\(fixture.home)/dead-letters")
                guard answer.status == 200 else {
                    throw TestFailure("dead letters: \(answer.status)")
                }
                return records(on: answer.text).count >= count ? answer.text : nil
            }
            #expect(records(on: page).count == count)
            browser = reader
            return page
        }

        /// Writes a dead letter as a service writes one.
        private static func write(
            _ value: [UInt8],
            offset: Int,
            headers: [(name: String, value: String)] = [],
            _ fixture: ConsoleFixture
        ) async throws {
            let stack = fixture.stack
            try await stack.kafka.produce(
                key: "k",
                headers: headers + [
                    ("error.reason", "unknown_app"), ("error.detail", "there was no such app"),
                    ("source.topic", stack.topic("push.requests")), ("source.partition", "0"),
                    ("source.offset", "\(offset)"),
                ],
                value: value,
                to: stack.topic("push.dead-letters")
            )
        }

        @Test("A poison record is replayed with an edit, once, and reaches the phone")
        func edited() async throws {
            try await Self.run { fixture, phone in
                let (stack, app) = (fixture.stack, fixture.app.id)
                let other = try await stack.makeApp()
                for (id, owner) in [("a", app), ("b", other.id), ("c", nil)] {
                    var poison: JSONObject = [
                        "id": .string(id), "source": "orders", "channels": ["news"],
                        "push_time": "tomorrow", "data": ["alert": .string("poison of \(id)")],
                    ]
                    poison["app"] = owner.map { .string($0) }
                    try await stack.send(.object(poison))
                }
                _ = try await stack.deadLetters(1, key: "a")
                _ = try await stack.deadLetters(1, key: "b")
                _ = try await stack.deadLetters(1, key: "c")

                var sender = try await fixture.operatorBrowser("sender")
                let list = try await Self.list(1, &sender, fixture)
                #expect(list.contains("invalid_request") && !list.contains("poison of"))
                let address = try #require(Self.records(on: list).first)
                let page = try await sender.get(address).text
                #expect(
                    page.contains("poison of a")
                        && page.contains("A field of the request is invalid.")
                )
                var viewer = try await fixture.operatorBrowser("viewer")
                let seen = try await viewer.get(address)
                #expect(seen.status == 200 && seen.text.contains("invalid_request"))
                #expect(!seen.text.contains("poison of") && !seen.text.contains("orders"))
                var stranger = try await fixture.masterBrowser(of: other)
                let own = address.replacing("/console/\(app)/", with: "/console/\(other.id)/")
                #expect(try await stranger.get(own).status == 404)

                let token = try await fixture.formToken(&sender, of: fixture.app)
                func post(_ act: String, _ value: String?) async throws -> HTTPAnswer {
                    var fields = ["token": token, "do": act]
                    fields["value"] = value
                    return try await sender.post(address, fields)
                }
                let unchanged = try await post("check", nil)
                #expect(unchanged.status == 422 && unchanged.text.contains("It would fail again."))
                let mended =
                    #"{"id":"a","source":"orders","app":"APP","channels":["news"],"data":{"alert":"mended"}}"#
                for wrong in ["{", mended.replacing("APP", with: other.id), #"{"data":{}}"#] {
                    for act in ["check", "replay"] {
                        #expect(try await post(act, wrong).status == 422, "\(act) \(wrong)")
                    }
                }
                let good = mended.replacing("APP", with: app)
                let dry = try await post("check", good)
                #expect(dry.status == 200 && dry.text.contains("It would become a push now."))
                #expect(dry.text.contains("1 device"))
                #expect(try await stack.simulator.received(for: phone).isEmpty)
                for _ in 0..<2 { #expect(try await post("replay", good).status == 303) }
                let received = try await stack.simulator.waitFor(1, for: phone)
                #expect(received.count == 1)
                let push = try await stack.finishedPush(event: "a")
                #expect(push["targeted"]?.integer == 1)
                let again = try await post("replay", good)
                #expect(again.header("location")?.contains("/pushes/") == true)
                #expect(try await stack.simulator.received(for: phone).count == 1)

                let audit = try await fixture.audit(
                    having: "POST /console/:app/dead-letters/:letter",
                    "GET /console/:app/dead-letters/:letter"
                )
                #expect(!audit.contains("GET /console/:app/dead-letters "))
            }
        }

        @Test("A replay to a type that the app has not declared is refused, with the reason")
        func undeclared() async throws {
            try await ConsoleFixture.run { fixture in
                let topic = fixture.stack.topic("ingest.Weather")
                try await fixture.stack.kafka.produce(
                    key: "k",
                    headers: [
                        ("app", fixture.app.id), ("error.reason", "unknown_type"),
                        ("error.detail", "the app has no such type"), ("source.topic", topic),
                        ("source.partition", "0"), ("source.offset", "7"),
                    ],
                    value: Array(#"{"_id":"655f5d2c8f1b2c0012345678","wind":5}"#.utf8),
                    to: fixture.stack.topic("push.dead-letters")
                )
                var sender = try await fixture.operatorBrowser("sender")
                let list = try await Self.list(1, &sender, fixture)
                let address = try #require(Self.records(on: list).first)
                let token = try await fixture.formToken(&sender, of: fixture.app)
                for act in ["check", "replay"] {
                    let answer = try await sender.post(address, ["token": token, "do": act])
                    #expect(answer.status == 422, "\(act)")
                    #expect(answer.text.contains("The app has no type Weather."), "\(act)")
                }
                let outbox = "select count(*) from outbox where kafka_topic = '\(topic)'"
                #expect(try await fixture.stack.database.query(outbox) == ["0"])
            }
        }

        @Test("Of all that match, those that succeed now are replayed, and each becomes one push")
        func all() async throws {
            try await Self.run { fixture, phone in
                let app = fixture.app.id
                func value(_ more: String) -> [UInt8] {
                    Array(#"{"app":"\#(app)","channels":["news"],\#(more)}"#.utf8)
                }
                // The second has no id: its first position is its identity.
                try await Self.write(value(#""id":"one","data":{"alert":"1"}"#), offset: 1, fixture)
                try await Self.write(value(#""data":{"alert":"2"}"#), offset: 2, fixture)
                try await Self.write(value(#""data":"none""#), offset: 3, fixture)
                var sender = try await fixture.operatorBrowser("sender")
                _ = try await Self.list(3, &sender, fixture)
                let address = "\(fixture.home)/dead-letters/replay"
                let page = try await sender.get(address + "?reason=unknown_app").text
                #expect(page.contains("Replay the 2 that would succeed"))
                let names = try #require(
                    PageElements(page).elements.first { $0.attributes["name"] == "letters" }?
                        .attributes["value"]
                )
                let token = try await fixture.formToken(&sender, of: fixture.app)
                for _ in 0..<2 {
                    let answer = try await sender.post(
                        address,
                        ["token": token, "letters": names]
                    )
                    #expect(answer.status == 303 || answer.status == 409)
                }
                _ = try await fixture.stack.simulator.waitFor(2, for: phone)
                _ = try await eventually("nothing is left to replay") {
                    let answer = try await sender.post(
                        address,
                        ["token": token, "letters": names]
                    )
                    return answer.status == 409 ? true : nil
                }
                #expect(try await fixture.stack.simulator.received(for: phone).count == 2)
                let empty = try await sender.post(address, ["token": token])
                #expect(empty.status == 409)
            }
        }

        @Test("A value that is not text is shown in hexadecimal, and its record is not lost")
        func binary() async throws {
            try await ConsoleFixture.run { fixture in
                let hostile = ConsoleFixture.hostile
                try await Self.write(
                    [0xff, 0x00, 0x3c],
                    offset: 1,
                    headers: [("app", fixture.app.id), ("x", hostile)],
                    fixture
                )
                var sender = try await fixture.operatorBrowser("sender")
                let list = try await Self.list(1, &sender, fixture)
                let page = try await sender.get(try #require(Self.records(on: list).first)).text
                #expect(page.contains("ff003c") && page.contains("&lt;img src=x"))
                #expect(!page.contains("<img"))
                #expect(page.contains("or is not text"))
            }
        }
    }
}
