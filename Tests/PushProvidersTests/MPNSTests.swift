import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

private let now = Instant(seconds: 1_700_000_000)

@Suite("MPNS requests", .timeLimit(.minutes(1))) struct MPNSRendering {
    private func render(
        _ data: JSONObject?,
        change: (inout PushRequest) -> Void = { _ in }
    ) throws -> RenderedPayload {
        var request = PushRequest(audience: .installations(.init()), data: data)
        change(&request)
        return try RenderedPayload.render(request, pushID: "p", for: .mpns)
    }

    private func headers(_ payload: RenderedPayload) -> [String: String] {
        Dictionary(payload.headers.map { ($0.name, $0.value) }) { first, _ in first }
    }

    private static func xml(_ inside: String) -> String {
        #"<?xml version="1.0" encoding="utf-8"?><wp:Notification xmlns:wp="WPNotification">"#
            + inside + "</wp:Notification>"
    }

    struct Golden: CustomTestStringConvertible {
        var data: JSONObject
        var body: String
        var target: String?
        var kind: String

        var testDescription: String { body }
    }

    static let goldens = [
        Golden(
            data: ["title": "微信", "alert": "a<b & 'c'", "param": "/chat.xaml?a=1&b=2"],
            body: xml(
                "<wp:Toast><wp:Text1>微信</wp:Text1><wp:Text2>a&lt;b &amp; &apos;c&apos;</wp:Text2>"
                    + "<wp:Param>/chat.xaml?a=1&amp;b=2</wp:Param></wp:Toast>"
            ),
            target: "toast",
            kind: "2"
        ),
        Golden(
            data: [
                "alert": "top", "wp": ["alert": "phone", "wp-param": "/p"], "badge": 3, "k": "v",
                "sound": "a.caf",
            ],
            body: xml("<wp:Toast><wp:Text2>phone</wp:Text2><wp:Param>/p</wp:Param></wp:Toast>"),
            target: "toast",
            kind: "2"
        ),
        Golden(
            data: ["alert": ["title": "T", "body": "B"]],
            body: xml("<wp:Toast><wp:Text1>T</wp:Text1><wp:Text2>B</wp:Text2></wp:Toast>"),
            target: "toast",
            kind: "2"
        ),
        Golden(
            data: ["badge": 120],
            body: xml("<wp:Tile><wp:Count>99</wp:Count></wp:Tile>"),
            target: "token",
            kind: "1"
        ),
        Golden(
            data: ["CONFIG_STATE": "STALE"],
            body: #"{"CONFIG_STATE":"STALE"}"#,
            kind: "3"
        ),
        Golden(data: ["alert": "Hi", "silent": true], body: #"{"alert":"Hi"}"#, kind: "3"),
    ]

    @Test("data becomes a toast, a tile's count or raw data", arguments: goldens)
    func golden(_ golden: Golden) throws {
        let payload = try render(golden.data)
        #expect(String(decoding: payload.body, as: UTF8.self) == golden.body)
        let headers = headers(payload)
        #expect(headers["x-windowsphone-target"] == golden.target)
        #expect(headers["x-notificationclass"] == golden.kind)
        #expect(
            headers["content-type"]
                == (golden.target == nil ? "application/octet-stream" : "text/xml")
        )
        // Only a tile replaces the one before.
        #expect(payload.repeatOverwrites == (golden.target == "token"))
    }

    @Test("A push that is not urgent may wait until the phone is awake")
    func batched() throws {
        let payload = try render(["alert": "x"]) { $0.priority = .normal }
        #expect(headers(payload)["x-notificationclass"] == "12")
    }

    @Test("A payload that MPNS would refuse is refused first")
    func refused() throws {
        let long = JSONValue.string(String(repeating: "x", count: 3072))
        #expect(throws: RenderingError.self) { try render(["alert": long]) }
        let raw = JSONValue.string(String(repeating: "x", count: 1024))
        #expect(throws: RenderingError.self) { try render(["k": raw]) }
        #expect(throws: RenderingError.noContent(.mpns)) { try render(["ios": ["alert": "x"]]) }
        #expect(throws: RenderingError.noContent(.mpns)) {
            try render(nil) { $0.native.wns = ["type": "wns/raw", "body": "x"] }
        }
    }

    @Test("A phone's own values are escaped, and it gets its own language")
    func personal() throws {
        let data: JSONObject = ["alert": "Hi {{name}}", "alert-fr": "Salut {{name}}"]
        let template = try PayloadTemplate.render(
            PushRequest(audience: .installations(.init()), data: data),
            pushID: "p",
            for: .mpns,
            locale: LocaleVariants(data).choose(for: "fr-FR")
        )
        let body = try template.payload(values: ["name": "A&B"]).body
        #expect(
            String(decoding: body, as: UTF8.self).contains("<wp:Text2>Salut A&amp;B</wp:Text2>")
        )
    }

    @Test("The request goes to the entire URI, with the delivery's id")
    func make() throws {
        let request = MPNSRequest.make(
            OutgoingNotification(
                notificationID: "id",
                target: DeviceTarget(provider: .mpns, token: "http://a.notify.live.net/x?y=%2b"),
                payload: try render(["alert": "x"])
            ),
            timeout: .seconds(1)
        )
        #expect(request.method == "POST")
        #expect(request.url == "http://a.notify.live.net/x?y=%2b")
        #expect(request.headers.contains(HTTPField("x-messageid", "id")))
        #expect(!request.isRepeatable)
    }
}

@Suite("Answers of MPNS", .timeLimit(.minutes(1))) struct MPNSAnswers {
    struct Row: CustomTestStringConvertible {
        var status: Int
        var states: [String?] = [nil, nil, nil]
        var outcome: ProviderOutcome
        var holds: Duration?
        var retryAfter: String?

        var testDescription: String { "\(status) \(states)" }
    }

    private static let hour = Duration.seconds(3600)

    static let rows = [
        Row(status: 200, states: ["Received", "Connected", "Active"], outcome: .accepted),
        Row(status: 200, states: ["Received", "TempDisconnected", "Active"], outcome: .accepted),
        Row(status: 200, outcome: .accepted),
        Row(
            status: 200,
            states: ["QueueFull", "Temp Disconnected", "Active"],
            outcome: .throttled(retryAfter: .seconds(600))
        ),
        Row(
            status: 200,
            states: ["queue full", nil, nil],
            outcome: .throttled(retryAfter: .seconds(600))
        ),
        Row(status: 200, states: ["Suppressed", "Connected", "Active"], outcome: .rejected),
        Row(status: 400, states: ["N/A", "N/A", "N/A"], outcome: .rejected),
        Row(status: 401, states: ["N/A", "N/A", "N/A"], outcome: .misconfigured),
        Row(status: 403, outcome: .rejected),
        Row(
            status: 404,
            states: ["Dropped", "Disconnected", "Expired"],
            outcome: .unregistered(since: nil)
        ),
        Row(status: 404, outcome: .unregistered(since: nil)),
        Row(status: 404, states: ["N/A", "N/A", "Active"], outcome: .rejected),
        Row(status: 405, outcome: .rejected),
        Row(
            status: 406,
            states: ["Dropped", "Connected", "Active"],
            outcome: .throttled(retryAfter: hour),
            holds: hour
        ),
        Row(
            status: 406,
            states: ["Dropped", "Connected", "Active"],
            outcome: .throttled(retryAfter: .seconds(7200)),
            holds: .seconds(7200),
            retryAfter: "7200"
        ),
        Row(
            status: 412,
            states: ["Dropped", "Inactive", "N/A"],
            outcome: .throttled(retryAfter: hour),
            holds: hour,
            retryAfter: "5"
        ),
        Row(status: 500, outcome: .unavailable(retryAfter: nil)),
        Row(status: 503, outcome: .unavailable(retryAfter: .seconds(9)), retryAfter: "9"),
        Row(status: 302, outcome: .misconfigured),
    ]

    @Test("Each answer of the table has its outcome", arguments: rows)
    func row(_ row: Row) {
        let names = ["X-NotificationStatus", "x-deviceconnectionstatus", "X-SUBSCRIPTIONSTATUS"]
        var headers = [HTTPField("X-MessageID", "7")]
        for (name, state) in zip(names, row.states) {
            if let state { headers.append(HTTPField(name, state)) }
        }
        if let wait = row.retryAfter { headers.append(HTTPField("Retry-After", wait)) }
        let answer = MPNSAnswer.classify(
            HTTPResponse(status: row.status, headers: headers),
            at: now
        )
        #expect(answer.answer.outcome == row.outcome)
        #expect(answer.holdsChannel == row.holds)
        #expect(answer.answer.providerMessageID == "7")
    }

    @Test("The states are stored as the reason, as MPNS gives no other")
    func reason() {
        let answer = MPNSAnswer.classify(
            HTTPResponse(
                status: 412,
                headers: [
                    HTTPField("x-notificationstatus", "Dropped"),
                    HTTPField("x-deviceconnectionstatus", "Inactive"),
                ]
            ),
            at: now
        )
        #expect(answer.answer.reason == "Dropped, Inactive")
    }
}

@Suite("Throttling of MPNS channels", .timeLimit(.minutes(1))) struct MPNSChannelThrottleTests {
    @Test("A channel that asked for a pause gets one, for every push, until its time")
    func held() {
        var channels = MPNSChannelThrottle()
        channels.hold("a", for: .seconds(3600), now: now)
        let soon = now.adding(milliseconds: 1000)
        for isAuthenticated in [true, false] {
            #expect(
                channels.admit("a", isAuthenticated: isAuthenticated, now: soon) == .seconds(3599)
            )
        }
        #expect(channels.admit("b", isAuthenticated: true, now: soon) == nil)
        let later = now.adding(milliseconds: 3_600_000)
        #expect(channels.admit("a", isAuthenticated: true, now: later) == nil)
    }

    @Test("A channel without a certificate gets 500 a day, and one with it has no limit")
    func quota() {
        var channels = MPNSChannelThrottle()
        for _ in 0..<500 { #expect(channels.admit("a", isAuthenticated: false, now: now) == nil) }
        let wait = channels.admit("a", isAuthenticated: false, now: now)
        #expect(wait == .seconds(86_400))
        let tomorrow = now.adding(milliseconds: 86_400_000)
        #expect(channels.admit("a", isAuthenticated: false, now: tomorrow) == nil)
        for _ in 0..<600 { #expect(channels.admit("b", isAuthenticated: true, now: now) == nil) }
    }

    @Test("Counts are dropped before pauses are, and memory is bounded")
    func bounded() {
        var channels = MPNSChannelThrottle()
        channels.hold("held", for: .seconds(3600), now: now)
        for index in 0..<(MPNSChannelThrottle.maximumChannels + 10) {
            _ = channels.admit("c\(index)", isAuthenticated: false, now: now)
        }
        #expect(channels.count < MPNSChannelThrottle.maximumChannels)
        #expect(channels.admit("held", isAuthenticated: false, now: now) != nil)
    }
}
