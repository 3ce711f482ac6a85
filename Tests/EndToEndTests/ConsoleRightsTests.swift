import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Access rights in the console", .serialized, .timeLimit(.minutes(5)))
    struct ConsoleRightsTests {
        @Test("Every route answers every session as rights-console.md says")
        func rights() async throws {
            try await ConsoleFixture.run { fixture in
                let other = try await fixture.stack.makeApp()
                var browsers = [Browser(fixture.service.url)]
                for role in ["viewer", "sender", "admin"] {
                    browsers.append(try await fixture.operatorBrowser(role, name: role))
                }
                browsers.append(try await fixture.masterBrowser(of: fixture.app))
                browsers.append(try await fixture.masterBrowser(of: other))
                browsers.append(try await fixture.masterBrowser(of: other))
                let own = fixture.app
                let apps = [own, own, own, own, own, other, other]
                var tokens = [""]
                for index in 1..<browsers.count {
                    tokens.append(
                        try await fixture.formToken(&browsers[index], of: apps[index])
                    )
                }
                var table = RightsTable(Self.columns, head: Self.head)
                let routes = RightsTable.routes(of: fixture.service)
                    .filter { $0.contains(" /console") }
                #expect(routes.count > 20)
                for action in routes {
                    let parts = action.split(separator: " ", maxSplits: 1).map(String.init)
                    var cells: [String] = []
                    for index in browsers.indices {
                        // Acts change what is there, so each request has content of its own.
                        let content = try await fixture.content(of: fixture.app)
                        let named = index == 6 ? other : own
                        let path = ConsoleFixture.path(parts[1], app: named.id, content)
                        // A copy, as signing out deletes the cookie.
                        var browser = browsers[index]
                        let answer =
                            parts[0] == "POST"
                            ? try await browser.post(path, ["token": tokens[index]])
                            : try await browser.get(path)
                        cells.append("\(answer.status)")
                        Self.check(answer, action, role: index, content)
                    }
                    table.add(action, cells)
                    try Self.checkRoles(action, cells)
                }
                try table.compare(with: "rights-console.md")
            }
        }

        /// Rules that hold for every route, those of later versions included.
        private static func checkRoles(_ action: String, _ cells: [String]) throws {
            guard action.contains(" /console/:app") else { return }
            #expect(cells[0] == "303", "\(action): without a session, the sign-in page comes")
            #expect(cells[5] == "404", "\(action): there is nothing for another app's session")
            if action.hasPrefix("POST ") {
                #expect(cells[1] == "403", "\(action): a viewer changes nothing")
            }
            if action.contains(":id") {
                #expect(cells[6] == "404", "\(action): another app's things are not there")
            }
            #expect(cells[3] != "403" && cells[4] == cells[3], "\(action): an admin may do all")
        }

        private static func check(
            _ answer: HTTPAnswer,
            _ action: String,
            role: Int,
            _ content: ConsoleFixture.Content
        ) {
            let text = answer.text
            // Without a role for it, a response shows nothing of the app.
            if role < 2 || role >= 5 {
                #expect(!text.contains(content.token), "\(action): a token")
                #expect(!text.contains(ConsoleFixture.secret), "\(action): a payload")
            }
            if role == 0 || role >= 5 {
                // The last column's page may repeat the id that was asked for.
                #expect(role == 6 || !text.contains(content.device), "\(action): a device")
                #expect(!text.contains("hello"), "\(action): a push's text")
            }
            guard answer.header("content-type")?.hasPrefix("text/html") == true else { return }
            let policy = answer.header("content-security-policy") ?? ""
            for part in [
                "default-src 'none'", "script-src 'self'", "frame-ancestors 'none'",
                "form-action 'self'", "base-uri 'none'",
            ] {
                #expect(policy.contains(part), "\(action): \(part)")
            }
            #expect(!policy.contains("unsafe"))
            #expect(answer.header("x-frame-options") == "DENY", "\(action)")
            #expect(answer.header("x-content-type-options") == "nosniff", "\(action)")
            #expect(answer.header("cache-control") == "no-store", "\(action)")
            #expect(answer.header("referrer-policy") == "same-origin", "\(action)")
        }

        @Test("A viewer sees no token and no payload; a sender sees both")
        func content() async throws {
            try await ConsoleFixture.run { fixture in
                let content = try await fixture.content(of: fixture.app)
                let (device, push) = (
                    "\(fixture.home)/devices/\(content.device)",
                    "\(fixture.home)/pushes/\(content.push)"
                )
                var viewer = try await fixture.operatorBrowser("viewer")
                var sender = try await fixture.operatorBrowser("sender")
                #expect(try await !viewer.get(device).text.contains(content.token))
                #expect(try await !viewer.get(push).text.contains(ConsoleFixture.secret))
                #expect(try await sender.get(device).text.contains(content.token))
                #expect(try await sender.get(push).text.contains(ConsoleFixture.secret))
            }
        }

        @Test(
            "A viewer sees no address of a device at a provider, nor its secret, and cannot guess it"
        )
        func addresses() async throws {
            try await ConsoleFixture.run { fixture in
                let secrets = ["registrationId", "subscriptionUri", "deviceUri"].map {
                    ($0, "https://secret.example/\($0)")
                }
                let own = "first-device-\(UUID().uuidString.lowercased())"
                var fields: JSONObject = [
                    "deviceType": "android", "vendor": "lc", "installationId": .string(own),
                    "channels": ["news"],
                ]
                for (name, value) in secrets { fields[name] = .string(value) }
                let saved = try await http(
                    "POST",
                    fixture.service.url + "/1.1/installations",
                    headers: fixture.app.clientHeaders,
                    body: .object(fields)
                )
                let id = try #require(saved.json?["objectId"]?.string)
                var viewer = try await fixture.operatorBrowser("viewer")
                let content = try await fixture.content(of: fixture.app)
                for path in [
                    "/devices/\(id)", "/devices", "/devices?by=channel&q=news",
                    "/explain?installation=\(id)",
                    "/explain?push=\(content.push)&installation=\(id)",
                ] {
                    let page = try await viewer.get(fixture.home + path)
                    #expect(page.status == 200, "\(path)")
                    #expect(!page.text.contains("secret.example"), "\(path)")
                    #expect(!page.text.contains(own), "\(path)")
                }
                for query in ["q=first-device", "q=\(own)", "by=token&q=\(content.token)"] {
                    let page = try await viewer.get("\(fixture.home)/devices?\(query)").text
                    #expect(page.contains("No device matches."), "\(query)")
                }
                #expect(try await viewer.get("\(fixture.home)/devices/\(own)").status == 404)
                var sender = try await fixture.operatorBrowser("sender")
                let found = try await sender.get("\(fixture.home)/devices?q=first-device").text
                #expect(found.contains(id))
            }
        }

        @Test("A form needs its own session's token and the console's own origin")
        func forgery() async throws {
            try await ConsoleFixture.run { fixture in
                let (app, home) = (fixture.app, fixture.home)
                var admin = try await fixture.operatorBrowser("admin")
                var other = try await fixture.operatorBrowser("admin", name: "other@example.com")
                let token = try await fixture.formToken(&admin, of: app)
                let foreign = try await fixture.formToken(&other, of: app)
                let host = fixture.service.url
                let content = try await fixture.content(of: app)
                let cancel = "\(home)/pushes/\(content.push)/cancel"
                for (fields, headers) in [
                    ([:], [:]), (["token": ""], [:]), (["token": foreign], [:]),
                    (["token": token], ["Origin": "https://evil.example"]),
                    (["token": token], ["Origin": "null"]),
                    (["token": token], ["Sec-Fetch-Site": "cross-site"]),
                    (["token": token], ["Sec-Fetch-Site": "same-site", "Origin": host]),
                ] as [([String: String], [String: String])] {
                    let answer = try await admin.post(cancel, fields, headers)
                    #expect(answer.status == 403, "\(fields) \(headers)")
                    #expect(answer.text.contains("not of this session"))
                }
                for path in ["/console/sign-out", "/console/sign-in", "/console/look"] {
                    let answer = try await admin.post(
                        path,
                        ["token": token, "app": app.id, "key": app.masterKey],
                        ["Origin": "https://evil.example"]
                    )
                    #expect(answer.status == 403, "\(path)")
                }
                #expect(try await admin.post("/console/sign-out", ["token": foreign]).status == 403)
                // A GET never acts, and a form of another type is not read.
                #expect(try await admin.get(cancel + "?token=" + token).status == 200)
                let json = try await http(
                    "POST",
                    host + cancel,
                    headers: ["Cookie": admin.cookieHeader],
                    body: ["token": .string(token)]
                )
                #expect(json.status == 400)
                // An altered cookie is not accepted.
                var altered = admin
                let cookie = try #require(admin.cookies["__Host-carillon"])
                let last: Character = cookie.last == "A" ? "B" : "A"
                altered.set("__Host-carillon", cookie.dropLast(2) + "\(last)A")
                #expect(try await altered.get(home).status == 303)
                let sent = try await admin.post(
                    cancel,
                    ["token": token],
                    ["Origin": host, "Sec-Fetch-Site": "same-origin"]
                )
                #expect(sent.status == 303)
                #expect(try await admin.post("/console/sign-out", ["token": token]).status == 303)
                #expect(admin.cookies["__Host-carillon"] == nil)
                _ = try await fixture.audit(having: "POST /console/sign-out")
            }
        }

        private static let columns: [RightsTable.Credential] = [
            ("none", "nothing"), ("viewer", "an operator's session, role viewer"),
            ("sender", "an operator's session, role sender"),
            ("admin", "an operator's session, role admin"),
            ("master", "a session by the master key"),
            ("other", "a session by another app's master key"),
            (
                "foreign",
                "the same, with the other app in the address, but what belongs to this app"
            ),
        ].map { RightsTable.Credential(name: $0, about: $1, headers: [:]) }

        private static let head = """
            # Who may do what in the console

            Made by the test `EndToEndTests.ConsoleRightsTests`, which asks the built registration
            service for every route of the console with every kind of session, and compares the
            answers with this file. With `CARILLON_RENEW_RIGHTS=1` it writes the file again: look at
            what changes.

            A cell is the response's status. The device, push and draft of the address belong to the
            app of columns 2 to 5. A form has its session's token and nothing else, so 400, 409 and 422
            say that the act is allowed.


            """
    }
}
