import Cryptography
import Foundation
import HTTPServer
import JSON
import Support
import Testing

/// A registration service with the console, an issuer, and an app with a login of operators.
struct ConsoleFixture {
    static let origin = "https://push.example.com"
    /// A text that would become elements and run, if a page did not escape it.
    static let hostile = #"<script>alert(1)</script>"'><img src=x onerror=alert(2)>"#
    /// A value in a push's payload that no viewer sees.
    static let secret = "payload-s3cret"

    let stack: Stack
    let issuer: ConsoleIssuer
    let service: Stack.Service
    let app: Stack.App
    /// The command's environment, with which it reaches the issuer.
    let environment: [String: String]

    static func run(
        _ variables: [String: String] = [:],
        _ body: (ConsoleFixture) async throws -> Void
    ) async throws {
        let issuer = try ConsoleIssuer()
        try await withLocalServer { request in
            try issuer.answer(request)
        } _: { server, _ in
            issuer.origin = server.origin
            try await Stack.with { stack in
                let own = [
                    "JWKS_HOSTS": "localhost:\(server.port)", "PROVIDER_CA_FILE": server.caFile,
                    "CONSOLE_URL": origin, "LOG_LEVEL": "debug",
                    "RATE_LIMIT_FAILURES_PER_ADDRESS": "0",
                ].merging(variables) { $1 }
                let app = try await stack.makeApp()
                let fixture = ConsoleFixture(
                    stack: stack,
                    issuer: issuer,
                    service: try await stack.start("carillon-registration", own),
                    app: app,
                    environment: stack.environment.merging(own) { $1 }
                )
                try await fixture.setLogin("staff", of: app)
                try await body(fixture)
                #expect(await fixture.service.process.stop() == .status(0))
            }
        }
    }

    var home: String { "/console/\(app.id)" }

    // MARK: Commands

    @discardableResult
    func carillon(_ words: [String], input: String = "") async throws -> ProgramAnswer {
        try await Support.run(
            Stack.executable("carillon"),
            words,
            environment: environment,
            input: Array(input.utf8)
        )
    }

    @discardableResult
    func setLogin(_ name: String, of app: Stack.App, _ more: String...) async throws -> JSONValue {
        let words = [
            "console", "login", "set", app.id, name, "--issuer", issuer.origin, "--client-id",
            ConsoleIssuer.clientID, "--client-secret-file", "/dev/stdin", "--json",
        ]
        let answer = try await carillon(words + more, input: ConsoleIssuer.clientSecret + "\n")
        return try JSONValue.parse(try answer.successful("console login set"))
    }

    /// Returns the audit of the app as the command prints it, once it has these texts.
    func audit(having texts: String...) async throws -> String {
        try await eventually("the audit has \(texts)") {
            let audit = try await carillon(["audit", app.id]).successful("audit")
            return texts.allSatisfy(audit.contains) ? audit : nil
        }
    }

    // MARK: Sign-in

    /// Begins a sign-in and returns the issuer's address to which it leads.
    func begin(
        _ browser: inout Browser,
        login: String = "staff",
        query: String = ""
    ) async throws -> String {
        let answer = try await browser.get("/console/sign-in/\(login)\(query)")
        #expect(answer.status == 303)
        let address = try #require(answer.header("location"))
        #expect(address.hasPrefix(issuer.origin + "/authorize?"))
        return address
    }

    /// Returns from the issuer as this person.
    func finish(
        _ browser: inout Browser,
        _ address: String,
        as claims: JSONObject,
        login: String = "staff"
    ) async throws -> HTTPAnswer {
        let code = try issuer.code(at: address, for: claims)
        let state = try ConsoleIssuer.query(of: address)["state"] ?? ""
        return try await browser.get("/console/sign-in/\(login)/return?code=\(code)&state=\(state)")
    }

    static func claims(_ role: String, _ name: String = "ann@example.com") -> JSONObject {
        ["carillon_role": .string(role), "email": .string(name), "email_verified": true]
    }

    /// Returns a browser with an operator's session.
    func operatorBrowser(
        _ role: String,
        name: String = "ann@example.com",
        login: String = "staff"
    ) async throws -> Browser {
        var browser = Browser(service.url)
        let address = try await begin(&browser, login: login)
        let claims = Self.claims(role, name)
        let answer = try await finish(&browser, address, as: claims, login: login)
        #expect(answer.status == 303)
        return browser
    }

    /// Returns a browser with a session by the master key.
    func masterBrowser(of app: Stack.App) async throws -> Browser {
        var browser = Browser(service.url)
        let answer = try await browser.post(
            "/console/sign-in",
            ["app": app.id, "key": app.masterKey]
        )
        #expect(answer.status == 303 && answer.header("location") == "/console/\(app.id)")
        return browser
    }

    /// Returns the token of a session's forms.
    func formToken(_ browser: inout Browser, of app: Stack.App) async throws -> String {
        let page = try await browser.get("/console/\(app.id)")
        return try #require(
            PageElements(page.text).elements
                .first { $0.name == "input" && $0.attributes["name"] == "token" }?
                .attributes["value"]
        )
    }

    // MARK: Content

    /// A phone, a scheduled push and a draft's id of one app.
    struct Content {
        let device: String
        let token: String
        let push: String
        let draft = UUID().uuidString.lowercased()
        var job = "none"
        /// The name of a dead letter, and an identity, in addresses.
        var letter = "none"
        var identity = "none"
    }

    func content(of app: Stack.App) async throws -> Content {
        let token = makeAPNsToken()
        let device = try await http(
            "POST",
            service.url + "/1.1/installations",
            headers: app.clientHeaders,
            body: [
                "deviceType": "ios", "deviceToken": .string(token),
                "apnsTopic": .string(app.bundleID), "channels": ["news"],
            ]
        )
        let time = ISO8601DateFormatter().string(from: Date().addingTimeInterval(86_400))
        let push = try await http(
            "POST",
            service.url + "/1.1/push",
            headers: app.masterHeaders,
            body: [
                "channels": ["news"], "push_time": .string(time),
                "data": ["alert": "hello", "code": .string(Self.secret)],
            ]
        )
        return Content(
            device: try #require(device.json?["objectId"]?.string),
            token: token,
            push: try #require(push.json?["objectId"]?.string)
        )
    }

    /// Fills a route's pattern with what is there.
    static func path(_ pattern: String, app: String, _ content: Content) -> String {
        let segments = pattern.split(separator: "/").map(String.init)
        return segments.enumerated().map { index, segment in
            switch segment {
            case ":app": "/" + app
            case ":draft": "/" + content.draft
            case ":job": "/" + content.job
            case ":login": "/staff"
            case ":kind": "/apns"
            case ":letter": "/" + content.letter
            case ":identity" where segments[index - 1] == "identities":
                "/" + Browser.escaped(content.identity)
            case ":id" where segments[index - 1] == "devices": "/" + content.device
            case ":id" where segments[index - 1] == "pushes": "/" + content.push
            case _ where segment.hasPrefix(":") || segment.hasPrefix("*"): "/none"
            default: "/" + segment
            }
        }.joined()
    }
}
