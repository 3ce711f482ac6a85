import HTTPServer
import PushCore
import Testing

@testable import Simulator

@Suite("Simulator: MPNS", .timeLimit(.minutes(1)))
struct MPNSTests {
    private static let now = Instant(seconds: 1_800_000_000)

    private static func xml(_ inside: String) -> String {
        #"<wp:Notification xmlns:wp="WPNotification">\#(inside)</wp:Notification>"#
    }

    private static let toast = xml("<wp:Toast><wp:Text1>a</wp:Text1></wp:Toast>")

    private func request(
        _ path: String = "/mpns/1",
        target: String? = "toast",
        kind: String = "2",
        body: String = toast,
        type: String = "text/xml",
        certificate: String? = nil
    ) throws -> HTTPServerRequest {
        var headers: HTTPHeaders = [
            "Content-Length": "\(body.utf8.count)", "X-NotificationClass": kind,
            "Content-Type": type, "X-MessageID": "m",
        ]
        headers["X-WindowsPhone-Target"] = target
        return try HTTPServerRequest(
            .post,
            path,
            headers: headers,
            body: Array(body.utf8),
            clientCertificateSubject: certificate
        )
    }

    @Test("MPNS requires a class that matches the target, and its XML")
    func checks() throws {
        var checker = MPNSChecker()
        func status(_ request: HTTPServerRequest) -> Int { checker.check(request).status }
        #expect(try status(request()) == 200)
        #expect(try status(request(kind: "12")) == 200)
        #expect(try status(request(kind: "3")) == 400)
        #expect(try status(request(target: "token", kind: "1")) == 400)
        #expect(try status(request(target: "tile", kind: "1")) == 400)
        #expect(try status(request(target: nil, kind: "13", body: "raw", type: "a/b")) == 200)
        #expect(try status(request(type: "application/json")) == 400)
        #expect(try status(request(body: Self.xml("<wp:Toast><wp:Text3/></wp:Toast>"))) == 400)
        let tile = Self.xml("<wp:Tile><wp:Count>1</wp:Count></wp:Tile>")
        #expect(try status(request(target: "token", kind: "1", body: tile)) == 200)
        #expect(try status(request(target: nil, kind: "3", body: long)) == 400)
    }

    private let long = String(repeating: "x", count: 3073)

    @Test("A channel belongs to its certificate")
    func owner() throws {
        var checker = MPNSChecker()
        let path = "/mpns/1?owner=push.example.com"
        for (certificate, status) in [
            ("CN=push.example.com", 200), ("O=x,CN=push.example.com", 200), ("CN=other", 401),
            (nil, 401),
        ] {
            let result = checker.check(try request(path, certificate: certificate))
            #expect(result.status == status)
        }
    }

    @Test(
        "A channel answers with its state",
        arguments: [
            ("queuefull", 200, "QueueFull", "Active"), ("suppressed", 200, "Suppressed", "Active"),
            ("expired", 404, "Dropped", "Expired"), ("throttled", 406, "Dropped", "Active"),
            ("inactive", 412, "Dropped", "N/A"), ("unavailable", 503, nil, nil),
        ]
    )
    func states(state: String, status: Int, notification: String?, subscription: String?) throws {
        var checker = MPNSChecker()
        let request = try request("/mpns/1?state=\(state)")
        let result = checker.check(request)
        #expect(result.status == status)
        let answer = MPNSChecker.answer(status: status, reason: result.reason, to: request)
        #expect(answer.headers["x-notificationstatus"] == notification)
        #expect(answer.headers["x-subscriptionstatus"] == subscription)
        #expect(answer.headers["x-messageid"] == "m")
    }

    @Test("A channel without a certificate accepts 500 a day")
    func quota() throws {
        var checker = MPNSChecker()
        let request = try request()
        for _ in 0..<500 { #expect(checker.check(request, now: Self.now).status == 200) }
        #expect(checker.check(request, now: Self.now).status == 406)
        #expect(checker.check(request, isAuthenticated: true, now: Self.now).status == 200)
        let tomorrow = Self.now.adding(milliseconds: 86_400_000)
        #expect(checker.check(request, now: tomorrow).status == 200)
    }

    @Test("A repeat within the hour gets the same refusal again", arguments: [406, 412])
    func hour(status: Int) throws {
        var checker = MPNSChecker()
        let request = try request()
        checker.answered(status, to: request.rawTarget, now: Self.now)
        let soon = checker.check(request, now: Self.now.adding(milliseconds: 3_599_999))
        #expect(soon.status == status)
        #expect(soon.detail == "sent to again within the hour")
        let later = checker.check(request, now: Self.now.adding(milliseconds: 3_600_000))
        #expect(later.status == 200)
    }
}
