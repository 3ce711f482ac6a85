import HTTPServer
import JSON
import Testing

@testable import Simulator

private struct Sender {
    static let now: Int64 = 1_800_000_000
    static let toast =
        #"<toast><visual><binding template="ToastGeneric"><text>a</text></binding></visual></toast>"#

    var checker = WNSChecker()

    init() {
        checker.add(WNSClient(clientID: "ms-app://s-1", clientSecret: "one", tenant: nil))
        checker.add(WNSClient(clientID: "app-2", clientSecret: "two+2", tenant: "tenant-2"))
    }

    private func form(_ id: String, _ secret: String, _ scope: String) throws -> HTTPServerRequest {
        let escape = { (text: String) in
            text.replacing("%", with: "%25").replacing("+", with: "%2B").replacing("/", with: "%2F")
                .replacing(":", with: "%3A")
        }
        let body =
            "grant_type=client_credentials&client_id=\(escape(id))"
            + "&client_secret=\(escape(secret))&scope=\(escape(scope))"
        return try HTTPServerRequest(
            .post,
            "/",
            headers: ["content-type": "application/x-www-form-urlencoded"],
            body: Array(body.utf8)
        )
    }

    mutating func live(_ secret: String = "one", scope: String = "notify.windows.com") throws
        -> HTTPServerResponse
    {
        checker.grantLive(
            try form("ms-app://s-1", secret, scope),
            now: Self.now,
            lifetime: 86_400
        )
    }

    mutating func entra(tenant: String = "tenant-2") throws -> HTTPServerResponse {
        checker.grantEntra(
            try form("app-2", "two+2", "https://wns.windows.com/.default"),
            tenant: tenant,
            now: Self.now,
            lifetime: 86_399
        )
    }

    mutating func accessToken() throws -> String {
        try #require(try JSONValue.parse(try live().body)["access_token"]?.string)
    }

    func check(
        _ changes: [String: String?] = [:],
        target: String = "/wns/?token=abc",
        method: HTTPMethod = .post,
        body: String = toast,
        token: String,
        now: Int64 = now
    ) throws -> CheckResult {
        var headers: HTTPHeaders = [
            "Authorization": "Bearer " + token, "Content-Type": "text/xml",
            "X-WNS-Type": "wns/toast", "Content-Length": "\(body.utf8.count)",
        ]
        for (name, value) in changes { headers[name] = value }
        return checker.check(
            try HTTPServerRequest(method, target, headers: headers, body: Array(body.utf8)),
            now: now
        )
    }
}

@Suite("Simulator: WNS", .timeLimit(.minutes(1)))
struct WNSTests {
    @Test("The live endpoint's expires_in is a number, and the Entra endpoint's a string")
    func tokenShapes() throws {
        var sender = Sender()
        let live = try JSONValue.parse(try sender.live().body)
        #expect(live["expires_in"] == 86_400)
        #expect(live["token_type"] == "bearer")
        let entra = try JSONValue.parse(try sender.entra().body)
        #expect(entra["expires_in"] == "86399")
        #expect(entra["token_type"] == "Bearer")
        #expect(entra["not_before"]?.string != nil)
    }

    @Test("A wrong secret, scope or tenant gets no token")
    func refusedTokens() throws {
        var sender = Sender()
        #expect(try sender.live("wrong").status == 400)
        #expect(try JSONValue.parse(try sender.live("wrong").body)["error"] == "invalid_client")
        #expect(try sender.live(scope: "openid").status == 400)
        #expect(try sender.entra(tenant: "tenant-3").status == 400)
    }

    @Test("A valid toast is accepted, and the entire channel is the target")
    func accepts() throws {
        var sender = Sender()
        let token = try sender.accessToken()
        let result = try sender.check(token: token)
        #expect(result.status == 200)
        #expect(result.token == "/wns/?token=abc")
    }

    @Test("An access token is required, expires, and is for its own app's channels")
    func authorization() throws {
        var sender = Sender()
        let token = try sender.accessToken()
        #expect(try sender.check(token: "forged").status == 401)
        #expect(try sender.check(token: token, now: Sender.now + 86_400).status == 401)
        let own = "/wns/x?owner=ms-app%3A%2F%2Fs-1"
        #expect(try sender.check(target: own, token: token).status == 200)
        #expect(try sender.check(target: "/wns/x?owner=app-2", token: token).status == 403)
    }

    @Test(
        "A header that WNS refuses is refused",
        arguments: [
            ["X-WNS-Type": nil], ["X-WNS-Type": "wns/other"],
            ["Content-Type": "application/octet-stream"], ["Content-Length": nil],
            ["Transfer-Encoding": "chunked"], ["X-WNS-Cache-Policy": "maybe"],
            ["X-WNS-RequestForStatus": "1"], ["X-WNS-TTL": "soon"], ["X-WNS-TTL": "0"],
            ["X-WNS-TTL": "0", "X-WNS-Cache-Policy": "cache"], ["X-WNS-Tag": "a-b"],
            ["X-WNS-Group": "12345678901234567"], ["X-WNS-PRIORITY": "5"],
            ["X-WNS-SuppressPopup": "true"],
        ] as [[String: String?]]
    )
    func headers(changes: [String: String?]) throws {
        var sender = Sender()
        let token = try sender.accessToken()
        let result = try sender.check(changes, token: token)
        #expect(result.status == 400)
        #expect(result.detail != nil)
    }

    @Test("TTL 0 goes with no-cache, and a phone may suppress its popup")
    func options() throws {
        var sender = Sender()
        let token = try sender.accessToken()
        let ttl: [String: String?] = ["X-WNS-TTL": "0", "X-WNS-Cache-Policy": "no-cache"]
        #expect(try sender.check(ttl, token: token).status == 200)
        let popup: [String: String?] = ["X-WNS-SuppressPopup": "true"]
        #expect(try sender.check(popup, target: "/wns/phone/1", token: token).status == 200)
    }

    @Test("Payloads are checked for size, XML, root and value")
    func payloads() throws {
        var sender = Sender()
        let token = try sender.accessToken()
        let long = Sender.toast + String(repeating: " ", count: 5001 - Sender.toast.utf8.count)
        #expect(try sender.check(body: long, token: token).status == 413)
        #expect(try sender.check(body: String(long.dropLast()), token: token).status == 200)
        #expect(try sender.check(body: "<toast>", token: token).status == 400)
        #expect(try sender.check(body: "<toast/>", token: token).status == 400)
        #expect(try sender.check(body: #"<badge value="1"/>"#, token: token).status == 400)
        let badge: [String: String?] = ["X-WNS-Type": "wns/badge"]
        #expect(try sender.check(badge, body: #"<badge value="7"/>"#, token: token).status == 200)
        #expect(try sender.check(badge, body: #"<badge value="?"/>"#, token: token).status == 400)
        let raw: [String: String?] = [
            "X-WNS-Type": "wns/raw", "Content-Type": "application/octet-stream",
        ]
        #expect(try sender.check(raw, body: "{}", token: token).status == 200)
        #expect(try sender.check(raw, body: "", token: token).status == 400)
        #expect(try sender.check(method: .put, token: token).status == 405)
    }

    @Test("The device's state is returned only if requested")
    func status() throws {
        let quiet = try HTTPServerRequest(.post, "/wns/1")
        #expect(
            WNSAnswer.make(status: 200, description: nil, to: quiet)
                .headers["x-wns-deviceconnectionstatus"] == nil
        )
        let asking = try HTTPServerRequest(
            .post,
            "/wns/1",
            headers: ["X-WNS-RequestForStatus": "true"]
        )
        let answer = WNSAnswer.make(status: 200, description: nil, to: asking)
        #expect(answer.headers["x-wns-deviceconnectionstatus"] == "connected")
        #expect(answer.headers["x-wns-status"] == "received")
    }
}
