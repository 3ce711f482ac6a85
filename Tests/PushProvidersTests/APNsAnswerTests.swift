import HTTPTransport
import JSON
import PushCore
import Testing

@testable import PushProviders

private let now = Instant(seconds: 1_700_000_000)

@Suite("Answers of APNs", .timeLimit(.minutes(1))) struct APNsAnswers {
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
                outcome: .notSent,
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

    @Test("Each answer of the table has its outcome", arguments: rows)
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

    @Test("200 is accepted, and its id is reported")
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

    @Test("BadDeviceToken blames the device only if it names its environment (promise 9)")
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

    @Test("DeviceTokenNotForTopic blames the device only if it names its topic (promise 9)")
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

    @Test("410 has the time since when the token is dead")
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
        "A timestamp in seconds is read as seconds, whatever its form",
        arguments: ["1732199045", "1732199045.0", "1"]
    )
    func seconds(_ number: String) throws {
        let body = #"{"reason":"Unregistered","timestamp":\#(number)}"#
        let answer = APNsAnswer.classify(
            HTTPResponse(status: 410, body: Array(body.utf8)),
            environmentIsExplicit: true,
            topicIsExplicit: true,
            at: Instant(milliseconds: 1_732_199_046_000)
        )
        let seconds = Int64(try #require(Double(number)))
        #expect(answer.answer.outcome == .unregistered(since: seconds * 1000))
    }

    @Test(
        "A time that cannot be right is replaced by the time of the answer",
        arguments: [
            "1732199045123000000", "9223372036854775807", "9300000000000000", "1e300",
            "123456789012345678901234567890", "-1", "-9223372036854775808", "0", "1732199045123.5",
            #""1732199045123""#, "null", "{}", "1790000060001", "1790000060",
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

    @Test("A body that is not JSON changes nothing, and Retry-After is used")
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
