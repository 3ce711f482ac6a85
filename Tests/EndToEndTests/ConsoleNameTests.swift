import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Test devices and saved filters in the console", .serialized, .timeLimit(.minutes(3)))
    struct ConsoleNameTests {
        private static func register(
            _ fixture: ConsoleFixture,
            _ fields: JSONObject = [:]
        ) async throws -> String {
            var body: JSONObject = [
                "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                "apnsTopic": .string(fixture.app.bundleID), "channels": ["news"],
            ]
            for (name, value) in fields { body[name] = value }
            let answer = try await http(
                "POST",
                fixture.service.url + "/1.1/installations",
                headers: fixture.app.clientHeaders,
                body: .object(body)
            )
            return try #require(answer.json?["objectId"]?.string)
        }

        private static func count(_ table: String, _ fixture: ConsoleFixture) async throws
            -> String?
        {
            try await fixture.stack.database.query(
                "SELECT count(*) FROM \(table) WHERE app = '\(fixture.app.id)'"
            ).first
        }

        @Test("A test goes to the chosen test devices only, and leaves its draft as it was")
        func test() async throws {
            try await ConsoleFixture.run { fixture in
                let (home, app) = (fixture.home, fixture.app)
                let phone = try await Self.register(fixture)
                let other = try await Self.register(fixture)
                var sender = try await fixture.operatorBrowser("sender")
                let token = try await fixture.formToken(&sender, of: app)
                func name(_ device: String, _ name: String) async throws -> Int {
                    try await sender.post(
                        "\(home)/devices/\(device)/test",
                        ["token": token, "name": name]
                    ).status
                }
                #expect(try await name(phone, "Ann's phone") == 303)
                #expect(try await name(other, "Ann's phone") == 409)
                #expect(try await name(other, "") == 409)
                #expect(try await name(other, "Bench") == 303)
                let list = try await sender.get("\(home)/devices").text
                #expect(list.contains("Ann&#39;s phone") && list.contains("Bench"))

                let draft = UUID().uuidString.lowercased()
                let message = [
                    "token": token, "who": "everyone", "text": "is it fine?", "when": "at",
                    "time": "2030-01-01T07:30", "do": "test",
                ]
                let none = try await sender.post("\(home)/send/\(draft)", message)
                #expect(none.status == 422 && none.text.contains("Choose a test device."))
                let begun = try await sender.post(
                    "\(home)/send/\(draft)",
                    message.merging(["test.\(phone)": "on", "test.of-another-app": "on"]) { $1 }
                )
                #expect(begun.status == 303)
                let review = try #require(begun.header("location"))
                #expect(review.hasSuffix("/review") && !review.contains(draft))
                let page = try await sender.get(review).text
                #expect(page.contains("Send to 1 device?") && page.contains("draft=\(draft)"))
                let digest = page.firstMatch(of: #/name="draft" value="([0-9a-f]{64})"/#)?.output.1
                let sent = try await sender.post(
                    review,
                    [
                        "token": token, "do": "send", "devices": "1",
                        "draft": String(try #require(digest)),
                    ]
                )
                #expect(sent.status == 303)
                let requests = try await fixture.stack.database.query(
                    "SELECT request::text FROM all_pushes WHERE event_source = 'carillon/console'"
                )
                #expect(requests.count == 1)
                #expect(requests.allSatisfy { $0.contains(phone) && !$0.contains(other) })
                #expect(requests.allSatisfy { !$0.contains("push_time") })
                let written = try await sender.get("\(home)/send?draft=\(draft)").text
                #expect(written.contains("2030-01-01T07:30"))
                _ = try await fixture.audit(having: "POST /console/:app/devices/:id/test")
            }
        }

        @Test(
            "A test device is deleted with its device, an app has at most 50, and others see none"
        )
        func bounds() async throws {
            try await ConsoleFixture.run { fixture in
                let app = fixture.app.id
                _ = try await fixture.stack.database.query(
                    """
                    INSERT INTO installations (app, object_id, device_type)
                    SELECT '\(app)', 'o' || n, 'ios' FROM generate_series(1, 51) n
                    """
                )
                _ = try await fixture.stack.database.query(
                    """
                    INSERT INTO test_devices (app, name, installation, author)
                    SELECT '\(app)', 'name ' || n, 'o' || n, 'ann' FROM generate_series(1, 50) n
                    """
                )
                var admin = try await fixture.operatorBrowser("admin")
                let token = try await fixture.formToken(&admin, of: fixture.app)
                func post(_ path: String, _ fields: [String: String] = [:]) async throws -> Int {
                    try await admin.post(
                        "\(fixture.home)/devices/\(path)",
                        fields.merging(["token": token]) { $1 }
                    ).status
                }
                #expect(try await post("o51/test", ["name": "one more"]) == 409)
                #expect(try await post("o1/test", ["name": "renamed"]) == 303)
                #expect(try await post("o2/test/remove") == 303)
                #expect(try await post("o2/test/remove") == 409)
                #expect(try await post("o1/delete") == 303)
                #expect(try await Self.count("test_devices", fixture) == "48")
                #expect(try await post("o51/test", ["name": "one more"]) == 303)
                let other = try await fixture.stack.makeApp()
                var stranger = try await fixture.masterBrowser(of: other)
                let page = try await stranger.get("/console/\(other.id)/send").text
                #expect(!page.contains("one more"))
            }
        }

        @Test(
            "A saved filter is a link for all; a filter by a device's secret is not saved or not shown"
        )
        func filters() async throws {
            try await ConsoleFixture.run { fixture in
                let home = fixture.home
                var sender = try await fixture.operatorBrowser("sender")
                var viewer = try await fixture.operatorBrowser("viewer", name: "vi@example.com")
                let token = try await fixture.formToken(&sender, of: fixture.app)
                func save(_ fields: [String: String]) async throws -> Int {
                    try await sender.post(
                        "\(home)/filters",
                        fields.merging(["token": token]) { $1 }
                    ).status
                }
                let form = try await sender.get("\(home)/pushes?status=failed").text
                #expect(form.contains("Save this filter"))
                #expect(
                    try await !viewer.get("\(home)/pushes?status=failed").text.contains("Save this")
                )
                #expect(
                    try await save(["page": "pushes", "name": "Broken ones", "status": "failed"])
                        == 303
                )
                for (by, name) in [("channel", "News"), ("id", "By id"), ("field", "By field")] {
                    let fields = ["page": "devices", "name": name, "by": by, "q": "x = y"]
                    #expect(try await save(fields) == 303)
                }
                let secret = ["page": "devices", "name": "t", "by": "token", "q": "abc"]
                #expect(try await save(secret) == 400)
                #expect(try await save(["page": "devices", "name": "t"]) == 400)
                #expect(try await save(["page": "audit", "name": "t", "q": "a"]) == 400)
                #expect(try await save(["page": "pushes", "name": "", "q": "a"]) == 409)

                let pushes = try await viewer.get("\(home)/pushes").text
                #expect(pushes.contains("Broken ones") && pushes.contains("/pushes?status=failed"))
                let devices = try await viewer.get("\(home)/devices").text
                #expect(devices.contains("News"))
                #expect(!devices.contains("By id") && !devices.contains("By field"))
                let all = try await sender.get("\(home)/devices").text
                #expect(all.contains("By id") && all.contains("By field"))

                let removal = ["token": token, "page": "pushes", "name": "Broken ones"]
                #expect(try await sender.post("\(home)/filters/remove", removal).status == 303)
                #expect(try await sender.post("\(home)/filters/remove", removal).status == 409)
                #expect(try await !viewer.get("\(home)/pushes").text.contains("Broken ones"))
                _ = try await fixture.audit(
                    having: "POST /console/:app/filters ",
                    "POST /console/:app/filters/remove"
                )
                _ = try await fixture.stack.database.query(
                    """
                    INSERT INTO saved_filters (app, page, name, filter, author)
                    SELECT '\(fixture.app.id)', 'pushes', 'name ' || n, '{"q": "a"}', 'ann'
                    FROM generate_series(1, 50) n
                    """
                )
                #expect(try await save(["page": "pushes", "name": "more", "q": "a"]) == 409)
                #expect(try await save(["page": "pushes", "name": "name 1", "q": "b"]) == 303)
            }
        }

        @Test("An erasure deletes test devices and filters that name the person")
        func erasure() async throws {
            try await ConsoleFixture.run { fixture in
                let phone = try await Self.register(fixture, ["identity": "ann-4711"])
                let other = try await Self.register(fixture, ["identity": "bob-4711"])
                var sender = try await fixture.operatorBrowser("sender")
                let token = try await fixture.formToken(&sender, of: fixture.app)
                for (device, person) in [(phone, "ann-4711"), (other, "bob-4711")] {
                    for (path, fields) in [
                        ("/devices/\(device)/test", ["name": "phone of \(person)"]),
                        (
                            "/filters",
                            ["page": "devices", "name": person, "by": "identity", "q": person]
                        ),
                    ] {
                        let answer = try await sender.post(
                            fixture.home + path,
                            fields.merging(["token": token]) { $1 }
                        )
                        #expect(answer.status == 303, "\(path)")
                    }
                }
                _ = try await fixture.carillon([
                    "erase", fixture.app.id, "--identity", "ann-4711",
                ]).successful("erase")
                #expect(try await Self.count("test_devices", fixture) == "1")
                #expect(try await Self.count("saved_filters", fixture) == "1")
                let left = try await sender.get("\(fixture.home)/devices").text
                #expect(left.contains("bob-4711") && !left.contains("ann-4711"))
            }
        }

        @Test("The review warns of placeholders without a value, and of languages without a text")
        func warnings() async throws {
            try await ConsoleFixture.run { fixture in
                _ = try await Self.register(fixture, ["name": "Ann", "localeIdentifier": "en-GB"])
                for locale in ["de_DE", "fr", "de"] {
                    _ = try await Self.register(fixture, ["localeIdentifier": .string(locale)])
                }
                var sender = try await fixture.operatorBrowser("sender")
                let token = try await fixture.formToken(&sender, of: fixture.app)
                let draft = "\(fixture.home)/send/\(UUID().uuidString.lowercased())"
                func review(_ fields: [String: String]) async throws -> String {
                    let own = ["token": token, "who": "some", "channels": "news", "do": "review"]
                    let answer = try await sender.post(draft, own.merging(fields) { $1 })
                    #expect(answer.status == 303)
                    return try await sender.get(draft + "/review").text
                }
                let first = try await review(["text": "Hi {{name}} of {{cty|home}}"])
                #expect(
                    first.contains(
                        "75.0% of 4 devices have no value for {{name}}: nothing is shown in its place."
                    )
                )
                #expect(first.contains("No device that was looked at has a value for {{cty}}."))
                #expect(first.contains("50.0% of 4 devices have another one than most: en, fr."))
                let second = try await review([
                    "text": "Hi {{name|you}}", "l0": "de", "y0": "Hallo",
                ])
                #expect(second.contains("no value for {{name}}: they get “you”."))
                #expect(
                    second.contains(
                        "50.0% of 4 devices have a language without a text of its own: en, fr."
                    )
                )
                let third = try await review([
                    "text": "Hi", "l0": "de", "y0": "Hallo", "l1": "fr", "y1": "Salut",
                ])
                #expect(!third.contains("without a text of its own"))
            }
        }
    }
}
