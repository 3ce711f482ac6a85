import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Sign-in of operators to the console", .serialized, .timeLimit(.minutes(5)))
    struct ConsoleSignInTests {
        @Test("An operator signs in with the role of the token, acts within it, and is audited")
        func roles() async throws {
            try await ConsoleFixture.run { fixture in
                let (app, home) = (fixture.app, fixture.home)
                let content = try await fixture.content(of: app)
                var nobody = Browser(fixture.service.url)
                let signIn = try await nobody.get("/console/sign-in")
                #expect(signIn.text.contains("href=\"/console/sign-in/staff\""))

                var viewer = try await fixture.operatorBrowser("viewer", name: "vi@example.com")
                let page = try await viewer.get(home)
                #expect(page.status == 200 && page.text.contains("oidc:vi@example.com"))
                #expect(try await viewer.get(home + "/send").status == 403)

                var sender = try await fixture.operatorBrowser("sender", name: "sam@example.com")
                let token = try await fixture.formToken(&sender, of: app)
                let cancelled = try await sender.post(
                    "\(home)/pushes/\(content.push)/cancel",
                    ["token": token]
                )
                #expect(cancelled.status == 303)
                let delete = "\(home)/devices/\(content.device)/delete"
                #expect(try await sender.get(delete).status == 403)
                #expect(try await sender.post(delete, ["token": token]).status == 403)

                var admin = try await fixture.operatorBrowser("admin", name: "ada@example.com")
                let own = try await fixture.formToken(&admin, of: app)
                #expect(try await admin.post(delete, ["token": own]).status == 303)
                _ = try await fixture.audit(
                    having: "oidc:vi@example.com",
                    "oidc:sam@example.com",
                    "oidc:ada@example.com",
                    "POST /console/:app/pushes/:id/cancel",
                    "POST /console/:app/devices/:id/delete",
                    "GET /console/sign-in/:login/return",
                    "login:staff"
                )
                // Acts are audited with their author, whether refused or not.
                func acts(_ name: String, _ status: String) async throws -> Bool? {
                    let lines = try await fixture.audit(having: "oidc:" + name).split(
                        separator: "\n"
                    )
                    return lines.contains {
                        $0.contains(delete.suffix(7)) && $0.contains(name) && $0.contains(status)
                    } ? true : nil
                }
                _ = try await eventually("the refused act") {
                    try await acts("sam@example.com", "403")
                }
                _ = try await eventually("the deletion") {
                    try await acts("ada@example.com", "303")
                }
            }
        }

        @Test("A response of the issuer must be to this browser's sign-in, and for this client")
        func refused() async throws {
            try await ConsoleFixture.run { fixture in
                func expect(
                    _ answer: HTTPAnswer,
                    _ status: Int,
                    _ sentence: String,
                    sourceLocation: SourceLocation = #_sourceLocation
                ) {
                    #expect(answer.status == status, sourceLocation: sourceLocation)
                    #expect(answer.text.contains(sentence), sourceLocation: sourceLocation)
                    #expect(
                        !answer.headers.contains {
                            $0.name == "set-cookie" && $0.value.hasPrefix("__Host-carillon=")
                        },
                        sourceLocation: sourceLocation
                    )
                }
                let (viewer, url) = (ConsoleFixture.claims("viewer"), fixture.service.url)
                let lost = "not begun in this browser"
                let path = "/console/sign-in/staff/return"

                // A stolen or made-up state, and none.
                var victim = Browser(url)
                let theirs = try await fixture.begin(&victim)
                var thief = Browser(url)
                expect(try await fixture.finish(&thief, theirs, as: viewer), 400, lost)
                _ = try await fixture.begin(&thief)
                expect(try await fixture.finish(&thief, theirs, as: viewer), 400, lost)
                expect(try await thief.get(path), 400, lost)
                expect(try await thief.get(path + "?code=a&state="), 400, lost)
                // A wrong state does not end the victim's sign-in.
                expect(try await victim.get(path + "?code=a&state=b"), 400, lost)

                // A code is valid once: with the same cookie again, the issuer refuses it.
                let code = try fixture.issuer.code(at: theirs, for: viewer)
                let state = try ConsoleIssuer.query(of: theirs)["state"] ?? ""
                let flow = victim.cookies["__Host-carillon-sign-in"]
                let query = "?code=\(code)&state=\(state)"
                #expect(try await victim.get(path + query).status == 303)
                #expect(victim.cookies["__Host-carillon-sign-in"] == nil)
                expect(try await victim.get(path + query), 400, lost)
                var replay = Browser(url)
                replay.set("__Host-carillon-sign-in", flow)
                expect(try await replay.get(path + query), 401, "A code is valid once")

                // The issuer's own refusal; its text is a word, or not shown.
                var browser = Browser(url)
                for (error, shown) in [
                    ("access_denied", "access_denied"),
                    (Browser.escaped(ConsoleFixture.hostile), "error"),
                ] {
                    let address = try await fixture.begin(&browser)
                    let state = try ConsoleIssuer.query(of: address)["state"] ?? ""
                    let answer = try await browser.get("\(path)?error=\(error)&state=\(state)")
                    expect(answer, 401, "refused the sign-in: \(shown).")
                    #expect(browser.cookies["__Host-carillon-sign-in"] == nil)
                }

                // Tokens of another audience, issuer, sign-in or time, and no or an unknown role.
                let now = Int(Date().timeIntervalSince1970)
                for (changes, status, sentence) in [
                    (["aud": "other"], 401, "token is not valid"),
                    (["iss": "https://else.example"], 401, "token is not valid"),
                    (["nonce": "another"], 401, "token is not valid"),
                    (["exp": JSONValue(now - 120)], 401, "token is not valid"),
                    (["email": "\n", "sub": ""], 401, "token is not valid"),
                    (["carillon_role": "owner"], 403, "the claim carillon_role"),
                    (["carillon_role": .null], 403, "the claim carillon_role"),
                ] as [(JSONObject, Int, String)] {
                    let address = try await fixture.begin(&browser)
                    var claims = viewer
                    for (name, value) in changes { claims[name] = value }
                    expect(
                        try await fixture.finish(&browser, address, as: claims),
                        status,
                        sentence
                    )
                }
                // The audit has who was refused for a role.
                _ = try await fixture.audit(having: "oidc:ann@example.com", "403")

                let address = try await fixture.begin(&browser)
                fixture.issuer.goAway()
                expect(try await fixture.finish(&browser, address, as: viewer), 503, "issuer")
                fixture.issuer.goAway(false)
                #expect(try await browser.get("/console/sign-in/none").status == 404)
            }
        }

        @Test("A session of before is not taken over, and ends with its login")
        func sessions() async throws {
            try await ConsoleFixture.run { fixture in
                let (app, home) = (fixture.app, fixture.home)
                // Fixation: the browser has somebody else's session when the operator signs in.
                let planted = try await fixture.operatorBrowser("viewer", name: "eve@example.com")
                var browser = planted
                let address = try await fixture.begin(&browser)
                let claims = ConsoleFixture.claims("admin")
                #expect(try await fixture.finish(&browser, address, as: claims).status == 303)
                let name = "__Host-carillon"
                #expect(browser.cookies[name] != planted.cookies[name])
                #expect(try await browser.get(home).text.contains("oidc:ann@example.com"))
                var eve = planted
                #expect(try await eve.get(home).text.contains("oidc:eve@example.com"))
                var first = planted
                let theirs = try await fixture.formToken(&first, of: app)
                #expect(try await fixture.formToken(&browser, of: app) != theirs)

                // The session ends when the login is set again, and when it is removed.
                for removal in [false, true] {
                    var session = try await fixture.operatorBrowser("admin")
                    let saved = session.cookies
                    #expect(try await session.get(home).status == 200)
                    if removal {
                        let words = ["console", "login", "remove", app.id, "staff"]
                        _ = try await fixture.carillon(words).successful("console login remove")
                    } else {
                        let set = try await fixture.setLogin(
                            "staff",
                            of: app,
                            "--role",
                            "admin=admin"
                        )
                        #expect(set["replaced"] == true)
                    }
                    _ = try await eventually("the session has ended") {
                        var again = Browser(fixture.service.url)
                        for (name, value) in saved { again.set(name, value) }
                        let answer = try await again.get(home)
                        return answer.status == 303
                            && answer.header("location")?.hasPrefix("/console/sign-in") == true
                            ? true : nil
                    }
                }
                let page = try await browser.get("/console/sign-in")
                #expect(page.status == 200 && !page.text.contains("/console/sign-in/staff"))
            }
        }

        @Test("The page after the sign-in is of the app, never of another host")
        func next() async throws {
            try await ConsoleFixture.run { fixture in
                for (next, location) in [
                    ("\(fixture.home)/pushes?q=a", "\(fixture.home)/pushes?q=a"),
                    ("https://evil.example/", fixture.home), ("//evil.example", fixture.home),
                    ("/console/../../evil", fixture.home), ("/console/%2e%2e/v1", fixture.home),
                    ("/console/another/pushes", fixture.home),
                    ("javascript:alert(1)", fixture.home),
                    ("/\\evil.example", fixture.home), ("/console/\r\nX: y", fixture.home),
                ] {
                    var browser = Browser(fixture.service.url)
                    let query = "?next=" + Browser.escaped(next)
                    let address = try await fixture.begin(&browser, query: query)
                    let claims = ConsoleFixture.claims("viewer")
                    let answer = try await fixture.finish(&browser, address, as: claims)
                    #expect(answer.header("location") == location, "\(next)")
                    var key = Browser(fixture.service.url)
                    let signedIn = try await key.post(
                        "/console/sign-in" + query,
                        ["app": fixture.app.id, "key": fixture.app.masterKey]
                    )
                    #expect(signedIn.header("location") == location, "\(next)")
                }
            }
        }

        @Test(
            "Failed sign-ins of an address are limited, and a browser without state costs nothing"
        )
        func limited() async throws {
            let limits = ["RATE_LIMIT_FAILURES_PER_ADDRESS": "1", "RATE_LIMIT_BURST": "5"]
            try await ConsoleFixture.run(limits) { fixture in
                let path = "/console/sign-in/staff/return?code=a&state=b"
                var browser = Browser(fixture.service.url)
                var statuses: [Int] = []
                for _ in 0..<20 { statuses.append(try await browser.get(path).status) }
                #expect(statuses.prefix(5).allSatisfy { $0 == 400 })
                #expect(statuses.contains(429))
                #expect(Set(statuses) == [400, 429])
            }
        }

        @Test("A login is checked, kept apart from other apps, listed without its secret")
        func commands() async throws {
            try await ConsoleFixture.run { fixture in
                let app = fixture.app
                let other = try await fixture.stack.makeApp()
                func fails(_ words: String..., input: String = "") async throws -> String {
                    let answer = try await fixture.carillon(
                        ["console", "login"] + words,
                        input: input
                    )
                    #expect(answer.exit != .status(0), "\(words)")
                    return answer.errors
                }
                func set(_ app: String, _ name: String, _ more: String...) -> [String] {
                    [
                        "console", "login", "set", app, name, "--issuer", fixture.issuer.origin,
                        "--client-id", ConsoleIssuer.clientID,
                    ] + more
                }
                func refuses(_ words: [String], _ text: String) async throws {
                    let answer = try await fixture.carillon(words)
                    #expect(answer.exit != .status(0), "\(words)")
                    #expect(answer.errors.contains(text), "\(answer.errors)")
                }
                try await refuses(set(other.id, "staff"), "another app")
                try await refuses(set(app.id, "A_b"), "lower-case")
                try await refuses(set(app.id, "x", "--role", "owner=a"), "--role takes")
                try await refuses(set(app.id, "x", "--role", "admin"), "--role takes")
                try await refuses(
                    set(app.id, "x", "--role", "admin=a", "--role", "viewer=a"),
                    "twice"
                )
                try await refuses(set(app.id, "x", "--scope", "email"), "openid")
                try await refuses(set(app.id, "x", "--title", "a\nb"), "--title")
                let plain = try await fails(
                    "set",
                    app.id,
                    "x",
                    "--issuer",
                    "http://id.example",
                    "--client-id",
                    "a"
                )
                #expect(plain.contains("--issuer"))
                let elsewhere = try await fails(
                    "set",
                    app.id,
                    "x",
                    "--issuer",
                    fixture.issuer.origin + "/x",
                    "--client-id",
                    "a"
                )
                #expect(elsewhere.contains("404"))
                let slash = try await fails(
                    "set",
                    app.id,
                    "x",
                    "--issuer",
                    fixture.issuer.origin + "/",
                    "--client-id",
                    "a"
                )
                #expect(slash.contains("another issuer"))

                let listed = try await fixture.carillon(
                    ["console", "login", "list", app.id, "--json"]
                ).successful("list")
                let login = try #require(JSONValue.parse(listed)[0])
                #expect(login["name"] == "staff" && login["hasSecret"] == true)
                #expect(login["roles"]?["admin"] == "admin" && login["listed"] == true)
                #expect(!listed.contains("s3cret"))
                let stored = try await fixture.stack.database.query(
                    "SELECT encode(client_secret_sealed, 'escape') FROM console_logins"
                )
                #expect(!"\(stored)".contains("s3cret"))

                // Without a link its address works.
                try await fixture.setLogin("hidden", of: app, "--unlisted")
                var browser = Browser(fixture.service.url)
                _ = try await eventually("the login is known") {
                    let answer = try await browser.get("/console/sign-in/hidden")
                    return answer.status == 303 ? true : nil
                }
                let page = try await browser.get("/console/sign-in").text
                #expect(page.contains("/console/sign-in/staff"))
                #expect(!page.contains("/console/sign-in/hidden"))
                #expect(try await fails("remove", app.id, "none").contains("no console login"))
                #expect(try await fails("remove", other.id, "staff").contains("no console login"))
                _ = try await fixture.audit(having: "console login set", "client:console")
            }
        }
    }
}
