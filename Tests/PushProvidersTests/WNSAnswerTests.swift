import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

private let now = Instant(seconds: 1_700_000_000)

@Suite("Answers of WNS", .timeLimit(.minutes(1))) struct WNSAnswers {
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

    @Test("Each answer of the table has its outcome", arguments: rows)
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
