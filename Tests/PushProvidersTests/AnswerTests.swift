import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

private let now = Instant(seconds: 1_700_000_000)

@Suite("APNs' answers mean what it says they do", .timeLimit(.minutes(1))) struct APNsAnswers {
    struct Row: CustomTestStringConvertible {
        var status: Int
        var reason: String
        var outcome: ProviderOutcome
        var reaction: APNsAnswer.Reaction = .none

        var testDescription: String { "\(status) \(reason)" }
    }

    static let gone = ProviderOutcome.unregistered(since: nil)
    static let later = ProviderOutcome.unavailable(retryAfter: nil)

    static let rows: [Row] =
        [
            "BadCollapseId", "BadExpirationDate", "BadMessageId", "BadPriority", "InvalidPushType",
            "DuplicateHeaders", "PayloadEmpty", "MissingDeviceToken", "SomethingNew",
        ].map { Row(status: 400, reason: $0, outcome: .rejected) }
        + [
            "BadCertificate", "BadCertificateEnvironment", "MissingProviderToken",
            "InvalidProviderToken", "BadEnvironmentKeyIdInToken", "BadEnvironmentKeyInToken",
            "Forbidden", "SomethingNew",
        ].map { Row(status: 403, reason: $0, outcome: .misconfigured) }
        + ["BadTopic", "MissingTopic", "TopicDisallowed"].map {
            Row(status: 400, reason: $0, outcome: .misconfigured)
        }
        + [
            Row(status: 400, reason: "BadDeviceToken", outcome: gone),
            Row(status: 400, reason: "DeviceTokenNotForTopic", outcome: gone),
            Row(
                status: 400,
                reason: "IdleTimeout",
                outcome: later,
                reaction: .changeConnection
            ),
            Row(
                status: 403,
                reason: "ExpiredProviderToken",
                outcome: later,
                reaction: .renewToken
            ),
            Row(
                status: 403,
                reason: "UnrelatedKeyIdInToken",
                outcome: .misconfigured,
                reaction: .changeConnectionAndRepeat
            ),
            Row(status: 404, reason: "BadPath", outcome: .rejected),
            Row(status: 405, reason: "MethodNotAllowed", outcome: .rejected),
            Row(status: 410, reason: "Unregistered", outcome: gone),
            Row(status: 410, reason: "ExpiredToken", outcome: gone),
            Row(status: 413, reason: "PayloadTooLarge", outcome: .rejected),
            Row(
                status: 429,
                reason: "TooManyProviderTokenUpdates",
                outcome: later,
                reaction: .keepToken
            ),
            Row(
                status: 429,
                reason: "TooManyRequests",
                outcome: .throttled(retryAfter: nil)
            ),
            Row(status: 500, reason: "InternalServerError", outcome: later),
            Row(
                status: 503,
                reason: "ServiceUnavailable",
                outcome: later,
                reaction: .changeConnection
            ),
            Row(status: 503, reason: "Shutdown", outcome: later, reaction: .changeConnection),
            Row(status: 302, reason: "", outcome: .misconfigured),
        ]

    @Test("Every row of the table", arguments: rows)
    func row(_ row: Row) {
        let response = HTTPResponse(
            status: row.status,
            headers: [HTTPField("apns-id", "ID")],
            body: JSONValue.object(["reason": .string(row.reason)]).bytes
        )
        let answer = APNsAnswer.classify(
            response,
            environmentIsExplicit: true,
            topicIsExplicit: true,
            at: now
        )
        #expect(answer.answer.outcome == row.outcome)
        #expect(answer.reaction == row.reaction)
        #expect(answer.answer.reason == row.reason)
        #expect(answer.answer.status == row.status)
        #expect(answer.answer.providerMessageID == "ID")
    }

    @Test("200 is accepted, and its id is told")
    func accepted() {
        let response = HTTPResponse(status: 200, headers: [HTTPField("apns-id", "ID")])
        let answer = APNsAnswer.classify(
            response,
            environmentIsExplicit: false,
            topicIsExplicit: false,
            at: now
        )
        #expect(answer.answer == ProviderAnswer(.accepted, status: 200, providerMessageID: "ID"))
    }

    @Test("BadDeviceToken blames the device only where it names its environment (promise 9)")
    func environment() {
        let response = HTTPResponse(status: 400, body: Array(#"{"reason":"BadDeviceToken"}"#.utf8))
        let answer = APNsAnswer.classify(
            response,
            environmentIsExplicit: false,
            topicIsExplicit: false,
            at: now
        )
        #expect(answer.answer.outcome == .rejected)
    }

    @Test("DeviceTokenNotForTopic blames the device only where it names its topic (promise 9)")
    func topic() {
        let body = Array(#"{"reason":"DeviceTokenNotForTopic"}"#.utf8)
        for (isExplicit, outcome) in [(true, Self.gone), (false, .rejected)] {
            let answer = APNsAnswer.classify(
                HTTPResponse(status: 400, body: body),
                environmentIsExplicit: true,
                topicIsExplicit: isExplicit,
                at: now
            )
            #expect(answer.answer.outcome == outcome)
        }
    }

    @Test("410 brings the time since when the token is dead")
    func timestamp() {
        let body = #"{"reason":"Unregistered","timestamp":1732199045123}"#
        let response = HTTPResponse(status: 410, body: Array(body.utf8))
        let answer = APNsAnswer.classify(
            response,
            environmentIsExplicit: true,
            topicIsExplicit: true,
            at: Instant(milliseconds: 1_732_199_045_123)
        )
        #expect(answer.answer.outcome == .unregistered(since: 1_732_199_045_123))
    }

    @Test(
        "A time that cannot be when the token died says nothing: dead since this answer",
        arguments: [
            "1732199045123000000", "9223372036854775807", "9300000000000000", "1e300",
            "123456789012345678901234567890", "-1", "-9223372036854775808", "0", "1732199045123.5",
            #""1732199045123""#, "null", "{}", "1790000060001",
        ]
    )
    func strangeTimestamp(_ number: String) {
        let body = #"{"reason":"Unregistered","timestamp":\#(number)}"#
        let answer = APNsAnswer.classify(
            HTTPResponse(status: 410, body: Array(body.utf8)),
            environmentIsExplicit: true,
            topicIsExplicit: true,
            at: Instant(milliseconds: 1_790_000_000_000)
        )
        #expect(answer.answer.outcome == .unregistered(since: nil))
    }

    @Test("A body that is no JSON changes nothing, and Retry-After is honoured")
    func strange() {
        let response = HTTPResponse(
            status: 503,
            headers: [HTTPField("Retry-After", "7")],
            body: Array("<html>".utf8)
        )
        let answer = APNsAnswer.classify(
            response,
            environmentIsExplicit: true,
            topicIsExplicit: true,
            at: now
        )
        #expect(answer.answer.outcome == .unavailable(retryAfter: .seconds(7)))
        #expect(answer.answer.reason == nil)
    }
}

@Suite("FCM's answers mean what it says they do", .timeLimit(.minutes(1))) struct FCMAnswers {
    struct Row: CustomTestStringConvertible {
        var http: Int
        var status: String
        var errorCode: String?
        var message = "text"
        var apns: (Int, String)?
        var outcome: ProviderOutcome
        var wantsRenewal = false

        var testDescription: String { "\(http) \(status) \(errorCode ?? "-") \(apns?.1 ?? "")" }
    }

    static let gone = ProviderOutcome.unregistered(since: nil)
    static let server = ProviderOutcome.unavailable(retryAfter: .seconds(10))
    static let quota = ProviderOutcome.unavailable(retryAfter: .seconds(60))

    static let rows = [
        Row(
            http: 400,
            status: "INVALID_ARGUMENT",
            errorCode: "INVALID_ARGUMENT",
            outcome: .rejected
        ),
        Row(
            http: 400,
            status: "INVALID_ARGUMENT",
            errorCode: "INVALID_ARGUMENT",
            message: "The registration token is not a valid FCM registration token",
            outcome: gone
        ),
        Row(
            http: 400,
            status: "INVALID_ARGUMENT",
            errorCode: "INVALID_ARGUMENT",
            message: "APNs device token is disabled.",
            apns: (410, "Unregistered"),
            outcome: gone
        ),
        Row(
            http: 400,
            status: "INVALID_ARGUMENT",
            errorCode: "INVALID_ARGUMENT",
            apns: (400, "BadDeviceToken"),
            outcome: gone
        ),
        Row(
            http: 400,
            status: "INVALID_ARGUMENT",
            errorCode: "INVALID_ARGUMENT",
            apns: (400, "DeviceTokenNotForTopic"),
            outcome: gone
        ),
        Row(
            http: 400,
            status: "INVALID_ARGUMENT",
            errorCode: "INVALID_ARGUMENT",
            apns: (400, "PayloadEmpty"),
            outcome: .rejected
        ),
        Row(
            http: 400,
            status: "INVALID_ARGUMENT",
            errorCode: nil,
            message: "The registration token is not a valid FCM registration token",
            outcome: .rejected
        ),
        Row(
            http: 401,
            status: "UNAUTHENTICATED",
            errorCode: "THIRD_PARTY_AUTH_ERROR",
            apns: (403, "InvalidProviderToken"),
            outcome: .misconfigured
        ),
        Row(
            http: 401,
            status: "UNAUTHENTICATED",
            errorCode: "APNS_AUTH_ERROR",
            outcome: .misconfigured
        ),
        Row(
            http: 401,
            status: "UNAUTHENTICATED",
            errorCode: nil,
            outcome: .misconfigured,
            wantsRenewal: true
        ),
        Row(
            http: 403,
            status: "PERMISSION_DENIED",
            errorCode: "SENDER_ID_MISMATCH",
            outcome: gone
        ),
        Row(http: 403, status: "PERMISSION_DENIED", errorCode: nil, outcome: .misconfigured),
        Row(http: 404, status: "NOT_FOUND", errorCode: "UNREGISTERED", outcome: gone),
        Row(http: 404, status: "NOT_FOUND", errorCode: nil, outcome: .misconfigured),
        Row(http: 429, status: "RESOURCE_EXHAUSTED", errorCode: "QUOTA_EXCEEDED", outcome: quota),
        Row(http: 500, status: "INTERNAL", errorCode: "INTERNAL", outcome: server),
        Row(http: 503, status: "UNAVAILABLE", errorCode: "UNAVAILABLE", outcome: server),
        Row(http: 500, status: "UNKNOWN", errorCode: "UNSPECIFIED_ERROR", outcome: server),
        Row(
            http: 400,
            status: "INVALID_ARGUMENT",
            errorCode: "UNSPECIFIED_ERROR",
            outcome: .rejected
        ),
        // What is not known yet falls back to the status.
        Row(http: 404, status: "NOT_FOUND", errorCode: "NEW_CODE", outcome: .misconfigured),
    ]

    @Test("Every row of the table", arguments: rows)
    func row(_ row: Row) {
        var details: [JSONValue] = []
        if let code = row.errorCode {
            details.append([
                "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError",
                "errorCode": .string(code),
            ])
        }
        if let (status, reason) = row.apns {
            details.append([
                "@type": "type.googleapis.com/google.firebase.fcm.v1.ApnsError",
                "statusCode": JSONValue(status), "reason": .string(reason),
            ])
        }
        let body: JSONValue = [
            "error": [
                "code": JSONValue(row.http), "message": .string(row.message),
                "status": .string(row.status), "details": .array(details),
            ]
        ]
        let answer = FCMAnswer.classify(HTTPResponse(status: row.http, body: body.bytes), at: now)
        #expect(answer.answer.outcome == row.outcome)
        #expect(answer.wantsRenewal == row.wantsRenewal)
        #expect(answer.answer.reason == row.errorCode ?? row.status)
    }

    @Test("An empty or HTML body goes by the HTTP status, and a 404 deletes nobody")
    func withoutBody() {
        let cases: [(Int, ProviderOutcome)] = [
            (400, .rejected), (403, .misconfigured), (404, .misconfigured), (429, Self.quota),
            (502, Self.server), (503, Self.server), (301, .misconfigured),
        ]
        for (status, outcome) in cases {
            for body in ["", "<html>404</html>"] {
                let response = HTTPResponse(status: status, body: Array(body.utf8))
                #expect(FCMAnswer.classify(response, at: now).answer.outcome == outcome)
            }
        }
        #expect(FCMAnswer.classify(HTTPResponse(status: 401), at: now).wantsRenewal)
    }

    @Test("Accepted brings the message's name")
    func accepted() {
        let body = Array(#"{"name":"projects/p/messages/1"}"#.utf8)
        let answer = FCMAnswer.classify(HTTPResponse(status: 200, body: body), at: now)
        #expect(answer.answer.outcome == .accepted)
        #expect(answer.answer.providerMessageID == "projects/p/messages/1")
    }

    @Test("Retry-After goes before the waits of our own, in both of its forms")
    func retryAfter() {
        for (text, seconds) in [("3", 3), ("Tue, 14 Nov 2023 22:15:00 GMT", 100)] {
            let response = HTTPResponse(status: 503, headers: [HTTPField("retry-after", text)])
            let answer = FCMAnswer.classify(response, at: now)
            #expect(answer.answer.outcome == .unavailable(retryAfter: .seconds(seconds)))
        }
    }

    @Test("RetryInfo stands in for the header")
    func retryInfo() {
        let body: JSONValue = [
            "error": [
                "status": "RESOURCE_EXHAUSTED",
                "details": [
                    ["@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "2.5s"]
                ],
            ]
        ]
        let answer = FCMAnswer.classify(HTTPResponse(status: 429, body: body.bytes), at: now)
        #expect(answer.answer.outcome == .unavailable(retryAfter: .milliseconds(2500)))
    }
}

@Suite("WNS' answers mean what it says they do", .timeLimit(.minutes(1))) struct WNSAnswers {
    struct Row: CustomTestStringConvertible {
        var status: Int
        var headers: [HTTPField] = []
        var outcome: ProviderOutcome
        var wantsRenewal = false

        var testDescription: String { "\(status) \(headers.map(\.value))" }
    }

    static let gone = ProviderOutcome.unregistered(since: nil)

    static let rows = [
        Row(status: 200, headers: [HTTPField("X-WNS-STATUS", "received")], outcome: .accepted),
        Row(
            status: 200,
            headers: [HTTPField("X-WNS-NotificationStatus", "received")],
            outcome: .accepted
        ),
        Row(status: 200, outcome: .accepted),
        Row(status: 200, headers: [HTTPField("x-wns-status", "Dropped")], outcome: .rejected),
        Row(
            status: 200,
            headers: [HTTPField("x-wns-status", "channelthrottled")],
            outcome: .throttled(retryAfter: .seconds(600))
        ),
        Row(status: 400, outcome: .rejected),
        Row(status: 401, outcome: .misconfigured, wantsRenewal: true),
        Row(status: 403, outcome: .misconfigured),
        Row(status: 404, outcome: gone),
        Row(status: 405, outcome: .rejected),
        Row(status: 406, outcome: .unavailable(retryAfter: .seconds(3600))),
        Row(
            status: 406,
            headers: [HTTPField("Retry-After", "30")],
            outcome: .unavailable(retryAfter: .seconds(30))
        ),
        Row(status: 410, outcome: gone),
        Row(
            status: 410,
            headers: [HTTPField("X-WNS-Error-Description", "Channel expired")],
            outcome: gone
        ),
        Row(
            status: 410,
            headers: [HTTPField("X-WNS-Error-Description", "Domain Blocked")],
            outcome: .misconfigured
        ),
        Row(status: 412, outcome: .unavailable(retryAfter: .seconds(3600))),
        Row(status: 413, outcome: .rejected),
        Row(status: 500, outcome: .unavailable(retryAfter: nil)),
        Row(
            status: 503,
            headers: [HTTPField("retry-after", "9")],
            outcome: .unavailable(retryAfter: .seconds(9))
        ),
        Row(status: 302, outcome: .misconfigured),
    ]

    @Test("Every row of the table", arguments: rows)
    func row(_ row: Row) {
        let response = HTTPResponse(
            status: row.status,
            headers: row.headers + [HTTPField("X-WNS-Msg-ID", "7")]
        )
        let answer = WNSAnswer.classify(response, at: now)
        #expect(answer.answer.outcome == row.outcome)
        #expect(answer.wantsRenewal == row.wantsRenewal)
        #expect(answer.answer.providerMessageID == "7")
    }
}

@Suite("Retry-After", .timeLimit(.minutes(1))) struct RetryAfterTests {
    @Test("Both forms are read, anything else is nothing")
    func forms() {
        let cases: [(String, Duration?)] = [
            ("0", .zero), ("120", .seconds(120)), ("99999999999999999999", .seconds(86_400)),
            ("Tue, 14 Nov 2023 22:13:50 GMT", .seconds(30)),
            ("Tue, 14 Nov 2023 22:13:00 GMT", .zero), ("Sun, 06 Nov 1994 08:49:37 GMT", .zero),
            ("Wed, 14 Nov 2029 22:13:50 GMT", .seconds(86_400)), ("", nil), ("-1", nil),
            ("soon", nil), ("1.5", nil), ("Tue, 14 Foo 2023 22:13:50 GMT", nil),
            ("Tuesday, 14-Nov-23 22:13:50 GMT", nil),
        ]
        for (text, expected) in cases {
            #expect(parseRetryAfter(text, at: now) == expected, "\(text)")
        }
    }
}

@Suite("No answer at all", .timeLimit(.minutes(1))) struct TransportAnswers {
    @Test("What may have reached the provider is never called unsent")
    func outcomes() {
        for kind in HTTPTransportError.Kind.allCases {
            let sent = ProviderAnswer(HTTPTransportError(kind, requestWasNotSent: false)).outcome
            let unsent = ProviderAnswer(HTTPTransportError(kind, requestWasNotSent: true)).outcome
            switch kind {
            case .invalidRequest, .hostRefused: #expect(sent == .rejected && unsent == .rejected)
            case .local: #expect(sent == .misconfigured && unsent == .misconfigured)
            case .resolve, .connect, .tls, .proxy, .timeout, .connectionLost, .protocolViolation,
                .responseTooLarge, .overloaded, .closed, .withdrawn:
                #expect(sent == .noAnswer && unsent == .notSent)
            }
        }
    }
}
