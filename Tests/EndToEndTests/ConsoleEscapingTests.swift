import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Stored text on the console's pages", .serialized, .timeLimit(.minutes(5)))
    struct ConsoleEscapingTests {
        private static let hostile = ConsoleFixture.hostile

        @Test("No text of an app, a device or a person becomes an element of a page")
        func stored() async throws {
            try await ConsoleFixture.run { fixture in
                let app = fixture.app
                try await fixture.setLogin("hostile", of: app, "--title", Self.hostile)
                let names = try await store(fixture)
                // The person's name is such a text, too.
                var admin = try await fixture.operatorBrowser("admin", name: Self.hostile)
                let token = try await fixture.formToken(&admin, of: app)
                let draft = UUID().uuidString.lowercased()
                let written = try await admin.post(
                    "\(fixture.home)/send/\(draft)",
                    Self.draft.merging(["token": token, "do": "save"]) { $1 }
                )
                #expect(written.status == 303)

                try await Self.reportHostileService(fixture)
                try await Self.storeNames(&admin, fixture, token, device: names.device)
                let uploaded = try await fixture.upload(
                    &admin,
                    "csv",
                    name: Self.hostile.replacing("\"", with: "%22").replacing("</", with: "<"),
                    Array("\"\(Self.hostile.replacing("\"", with: "\"\""))\",token,os\n".utf8)
                )

                let query = Browser.escaped(Self.hostile)
                var shown: [String] = []
                var content = ConsoleFixture.Content(
                    device: names.device,
                    token: "",
                    push: names.push,
                    letter: try await Self.deadLetter(&admin, fixture),
                    identity: Self.hostile
                )
                content.job = uploaded.split(separator: "/").last.map(String.init) ?? ""
                for action in RightsTable.routes(of: fixture.service)
                where action.hasPrefix("GET /console") {
                    let pattern = String(action.dropFirst("GET ".count))
                    let path = ConsoleFixture.path(pattern, app: app.id, content)
                        .replacing(content.draft, with: draft)
                    for suffix in [
                        "",
                        "?q=\(query)&by=channel&from=\(query)&status=\(query)&after=\(query)",
                        "?q=\(query)&by=identity&next=\(query)", "?draft=\(draft)",
                        "?copy=\(names.push)", "?device=\(query)", "?count=devices",
                        "?error=\(query)&state=\(query)", "?name=\(query)",
                    ] {
                        let answer = try await admin.get(path + suffix)
                        #expect(answer.status < 500, "\(path + suffix)")
                        let type = answer.header("content-type") ?? ""
                        guard type.hasPrefix("text/html") else { continue }
                        Self.expectEscaped(answer.text, path + suffix)
                        if answer.text.contains("&lt;img src=x") { shown.append(action) }
                    }
                    let missing = try await admin.get(path + "/" + query)
                    Self.expectEscaped(missing.text, path + "/…")
                }
                // Refused forms show what was typed.
                for (path, fields) in [
                    ("/console/sign-in", ["app": Self.hostile, "key": Self.hostile]),
                    (
                        "\(fixture.home)/send/\(draft)",
                        Self.draft.merging(["token": token, "do": "review"]) { $1 }
                    ),
                    (
                        "\(fixture.home)/credentials/apns",
                        ["token": token, "topic": Self.hostile, "keyID": Self.hostile]
                    ),
                    (
                        "\(fixture.home)/credentials/wns",
                        ["token": token, "clientID": Self.hostile, "tenant": Self.hostile]
                    ),
                    (
                        "\(fixture.home)/settings",
                        ["token": token, "name": Self.hostile, "value": Self.hostile]
                    ),
                ] {
                    let answer = try await admin.post(path, fields)
                    #expect((400..<500).contains(answer.status), "\(path)")
                    Self.expectEscaped(answer.text, path)
                    #expect(answer.text.contains("&lt;img src"), "\(path)")
                }
                // The pages had the text at all.
                for action in [
                    "GET /console/sign-in", "GET /console/:app", "GET /console/:app/pushes",
                    "GET /console/:app/pushes/:id", "GET /console/:app/devices",
                    "GET /console/:app/devices/:id", "GET /console/:app/send",
                    "GET /console/:app/audit", "GET /console/:app/import",
                    "GET /console/:app/import/:job", "GET /console/:app/import/:job/stop",
                    "GET /console/:app/health",
                    "GET /console/:app/dead-letters",
                    "GET /console/:app/dead-letters/:letter",
                    "GET /console/:app/dead-letters/replay",
                    "GET /console/:app/identities/:identity",
                    "GET /console/:app/credentials", "GET /console/:app/credentials/:kind",
                    "GET /console/:app/credentials/:kind/remove",
                ] {
                    #expect(shown.contains(action), "\(action)")
                }
            }
        }

        private static let draft: [String: String] = Dictionary(
            uniqueKeysWithValues: [
                "who", "channels", "tags", "installations", "identities", "where", "f0", "o0", "v0",
                "title", "text", "sound", "badge", "collapse", "priority", "data", "when", "time",
                "expires", "language0", "title0", "text0",
            ].map { ($0, hostile) }
        )

        /// Stores what people name in the console: a test device, filters and a credential.
        private static func storeNames(
            _ browser: inout Browser,
            _ fixture: ConsoleFixture,
            _ token: String,
            device: String
        ) async throws {
            // A name has at most 80 bytes.
            let short = String(hostile.suffix(60))
            for (path, fields) in [
                ("/devices/\(device)/test", ["name": short]),
                ("/filters", ["page": "pushes", "name": short, "status": hostile, "q": hostile]),
                ("/filters", ["page": "devices", "name": short, "by": "identity", "q": hostile]),
            ] {
                let answer = try await browser.post(
                    fixture.home + path,
                    fields.merging(["token": token]) { $1 }
                )
                #expect(answer.status == 303, "\(path)")
            }
            // No form takes such a topic.
            let text = hostile.replacing("'", with: "''")
            let summary: JSONValue = ["topic": .string(hostile), "keyID": .string(hostile)]
            _ = try await fixture.stack.database.query(
                """
                insert into credentials (app, provider, name, sealed, summary)
                values ('\(fixture.app.id)', 'apns', '\(text)', '',
                    '\(summary.text.replacing("'", with: "''"))')
                """
            )
        }

        /// Stores the report of a service, and an act that charts mark, whose every text is hostile.
        private static func reportHostileService(_ fixture: ConsoleFixture) async throws {
            let text = hostile.replacing("'", with: "''")
            let reason = JSONValue.array([["part": .string(hostile), "reason": .string(hostile)]])
            let state: JSONValue = [
                "notReady": reason, "warnings": reason,
                "lag": [["group": .string(hostile), "topic": .string(hostile), "records": 1]],
            ]
            _ = try await fixture.stack.database.query(
                """
                insert into service_instances (id, service, host, version, state)
                values (gen_random_uuid(), '\(text)', '\(text)', '\(text)',
                    '\(state.text.replacing("'", with: "''"))');
                insert into audit (app, actor, action, targets, status, at)
                values ('\(fixture.app.id)', '\(text)', 'credentials set', array['\(text)'], 0,
                    now() - interval '5 min');
                insert into push_figure_minutes
                select date_trunc('minute', now()) - n * interval '1 min', 1
                from generate_series(1, 9) n
                """
            )
        }

        /// Writes a dead letter with the text everywhere, and returns its name in addresses.
        private static func deadLetter(
            _ browser: inout Browser,
            _ fixture: ConsoleFixture
        ) async throws -> String {
            let text = hostile
            try await fixture.stack.kafka.produce(
                key: text,
                headers: [
                    ("app", fixture.app.id), (text.replacing("=", with: ""), text),
                    ("error.reason", text), ("error.detail", text),
                    ("source.topic", fixture.stack.topic("push.requests")),
                    ("source.partition", text), ("source.offset", text),
                ],
                value: Array(text.utf8),
                to: fixture.stack.topic("push.dead-letters")
            )
            var reader = browser
            let page = try await eventually("the dead letter is listed") {
                let page = try await reader.get("\(fixture.home)/dead-letters").text
                return page.contains("push.dead-letters-") ? page : nil
            }
            browser = reader
            let address = PageElements(page).elements.compactMap { $0.attributes["href"] }
                .first { $0.contains("push.dead-letters-") }
            return String(try #require(address?.split(separator: "/").last))
        }

        /// Stores the text in every field that takes it.
        private func store(
            _ fixture: ConsoleFixture
        ) async throws -> (device: String, push: String) {
            let (app, hostile) = (fixture.app, JSONValue.string(Self.hostile))
            func save(_ path: String, _ body: JSONObject, _ isMaster: Bool) async throws -> String?
            {
                let answer = try await http(
                    "POST",
                    fixture.service.url + path,
                    headers: isMaster ? app.masterHeaders : app.clientHeaders,
                    body: .object(body)
                )
                #expect(answer.status < 300, "\(path): \(answer.text)")
                return answer.json?["objectId"]?.string
            }
            let device = try await save(
                "/1.1/installations",
                [
                    "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                    "apnsTopic": .string(app.bundleID), "channels": ["news"], "city": hostile,
                    "note": ["inner": hostile], "list": [hostile], "timeZone": "UTC",
                ],
                false
            )
            for (name, value) in [
                ("channels", [hostile]), ("identity", hostile), ("timeZone", hostile),
                ("locale", hostile),
                ("installationId", hostile), ("deviceType", hostile), ("apnsTopic", hostile),
            ] as [(String, JSONValue)] {
                // Some fields do not take it, which is as good.
                _ = try await http(
                    "POST",
                    fixture.service.url + "/1.1/installations",
                    headers: app.clientHeaders,
                    body: .object([
                        "deviceType": "ios", "deviceToken": .string(makeAPNsToken()), name: value,
                    ])
                )
            }
            let time = ISO8601DateFormatter().string(from: Date().addingTimeInterval(86_400))
            let push = try await save(
                "/1.1/push",
                [
                    "channels": ["news"], "push_time": .string(time),
                    "data": ["alert": ["title": hostile, "body": hostile], "code": hostile],
                ],
                true
            )
            return (try #require(device), try #require(push))
        }

        /// Parses a page, and expects only elements of the console's own.
        private static func expectEscaped(_ page: String, _ place: String) {
            for text in ["<script>", "<img", "\"'>", "'><"] {
                #expect(!page.contains(text), "\(place): \(text)")
            }
            for element in PageElements(page).elements {
                #expect(element.name != "img" && element.name != "iframe", "\(place)")
                let handlers = element.attributes.keys.filter { $0.hasPrefix("on") }
                #expect(handlers.isEmpty, "\(place): \(element.name) \(handlers)")
                if element.name == "script" {
                    let source = element.attributes["src"] ?? ""
                    #expect(source.hasPrefix("/console/assets/"), "\(place)")
                }
                for name in ["href", "src", "action", "formaction"] {
                    guard let address = element.attributes[name] else { continue }
                    #expect(
                        address.hasPrefix("/console") || address.hasPrefix("#"),
                        "\(place): \(address)"
                    )
                }
            }
        }
    }
}
