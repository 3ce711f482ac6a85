import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

private let now = Instant(seconds: 1_700_000_000)

@Suite("Answers of FCM", .timeLimit(.minutes(1))) struct FCMAnswers {
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
            outcome: .mismatched
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
        // Unknown codes fall back to the status.
        Row(http: 404, status: "NOT_FOUND", errorCode: "NEW_CODE", outcome: .misconfigured),
    ]

    @Test("Each answer of the table has its outcome", arguments: rows)
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

    @Test("A bad argument is the token's fault if only the token is named, else the payload's")
    func violations() {
        for (fields, outcome): ([String], ProviderOutcome) in [
            (["message.token"], Self.gone), (["message.token", "message.token"], Self.gone),
            (["message.token", "message.data"], .rejected), (["message.android.ttl"], .rejected),
            ([], .rejected),
        ] {
            let violations = fields.map { field -> JSONValue in
                ["field": .string(field), "description": "Invalid registration token"]
            }
            let body: JSONValue = [
                "error": [
                    "code": 400, "status": "INVALID_ARGUMENT",
                    "details": [
                        [
                            "@type": "type.googleapis.com/google.firebase.fcm.v1.FcmError",
                            "errorCode": "INVALID_ARGUMENT",
                        ],
                        [
                            "@type": "type.googleapis.com/google.rpc.BadRequest",
                            "fieldViolations": .array(violations),
                        ],
                    ],
                ]
            ]
            let answer = FCMAnswer.classify(HTTPResponse(status: 400, body: body.bytes), at: now)
            #expect(answer.answer.outcome == outcome, "\(fields)")
        }
    }

    @Test("An empty or HTML body falls back to the HTTP status, and a 404 removes no token")
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

    @Test("An accepted answer has the message's name")
    func accepted() {
        let body = Array(#"{"name":"projects/p/messages/1"}"#.utf8)
        let answer = FCMAnswer.classify(HTTPResponse(status: 200, body: body), at: now)
        #expect(answer.answer.outcome == .accepted)
        #expect(answer.answer.providerMessageID == "projects/p/messages/1")
    }

    @Test("Retry-After takes precedence over our own waits, in both of its forms")
    func retryAfter() {
        for (text, seconds) in [("3", 3), ("Tue, 14 Nov 2023 22:15:00 GMT", 100)] {
            let response = HTTPResponse(status: 503, headers: [HTTPField("retry-after", text)])
            let answer = FCMAnswer.classify(response, at: now)
            #expect(answer.answer.outcome == .unavailable(retryAfter: .seconds(seconds)))
        }
    }

    @Test("RetryInfo replaces the header")
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
