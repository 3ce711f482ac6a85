import Cryptography
import Foundation
import JSON
import PushCore
import RegularExpressions
import Testing

@testable import RemoteConfig

/// The result of each element of a condition.
@Suite(.timeLimit(.minutes(1)))
struct ConditionTests {
    private static let now = Instant(iso8601: "2026-03-01T12:00:00Z")

    private func holds(_ expression: String, _ body: String) throws -> Bool {
        var context = ExpressionContext()
        var circumstances = EvaluationContext(
            try ConfigFetch(body: Array(body.utf8)),
            now: try #require(Self.now),
            digest: { sha256($0) },
            matcher: RegularExpressionMatcher()
        )
        let read = try ConfigExpression(expression, in: &context)
        // The output has the same meaning.
        let again = try ConfigExpression(read.description, in: &context)
        #expect(again.description == read.description)
        let result = circumstances.hold(read)
        #expect(circumstances.hold(again) == result)
        return result
    }

    @Test(arguments: [
        ("true", true), ("false", false), ("true && true", true), ("true && false", false),
        ("false && true", false), ("true && true && false", false), (" true ", true),
    ])
    func constants(expression: String, isTrue: Bool) throws {
        #expect(try holds(expression, "{}") == isTrue)
    }

    private static let zeros = String(repeating: "0", count: 255)
    private static let nines = String(repeating: "9", count: 254)

    @Test(arguments: [
        ("==", "1.2", "1.2", true), ("==", "1.2", "1.2.0", true), ("==", "1.2.0.0", "1.2", true),
        ("==", "1.2", "1.02", true), ("==", "1.2", "1.2.0.1", false), ("!=", "1.2", "1.3", true),
        ("!=", "1.2", "1.2.0", false), ("<", "1.10", "1.9", true), ("<", "1.10", "1.10", false),
        ("<", "2", "1.99.99", true), ("<=", "1.10", "1.10.0", true),
        ("<=", "1.10", "1.10.1", false),
        (">", "1.9", "1.10", true), (">", "1.9", "1.9", false), (">", "0", "0.0.1", true),
        (">=", "1.9", "1.9", true), (">=", "1.9", "1.8.9", false),
        // Numbers beyond every integer type.
        (">", "99999999999999999999998", "99999999999999999999999", true),
        ("<", "100000000000000000000000", "99999999999999999999999", true),
        ("<", "1\(zeros)", "9\(nines)", true), (">", "9\(nines)", "1\(zeros)", true),
        ("<", "1.0.1", "1.0.0.9", true), ("==", "1", "01.\(zeros.prefix(250))", true),
        // Invalid versions.
        ("==", "1", "1.", false), ("!=", "1", "1.x", false), ("!=", "1", "v2", false),
        ("<", "1", "", false), ("!=", "1", "1..2", false), ("!=", "1", "-2", false),
        ("!=", "1", "2-beta", false), ("!=", "1", " 2", false),
    ])
    func versions(method: String, wanted: String, given: String, isTrue: Bool) throws {
        #expect(
            try holds("app.version.\(method)(['\(wanted)'])", "{\"appVersion\":\"\(given)\"}")
                == isTrue
        )
        #expect(
            try holds("app.build.\(method)(['\(wanted)'])", "{\"app_build\":\"\(given)\"}")
                == isTrue
        )
        #expect(try !holds("app.version.\(method)(['\(wanted)'])", "{\"appBuild\":\"\(given)\"}"))
        let signal = "version(app.customSignal['v']) \(method) '\(wanted)'"
        #expect(try holds(signal, "{\"customSignals\":{\"v\":\"\(given)\"}}") == isTrue)
        #expect(try !holds(signal, "{\"customSignals\":{\"w\":\"\(given)\"}}"))
    }

    @Test(arguments: [
        ("contains(['bet'])", "beta", true), ("contains(['x', 'ta'])", "beta", true),
        ("contains(['Bet'])", "beta", false), ("contains([''])", "beta", true),
        ("contains(['betas'])", "beta", false), ("notContains(['x'])", "beta", true),
        ("notContains(['x', 'b'])", "beta", false), ("exactlyMatches(['beta'])", "beta", true),
        ("exactlyMatches(['a', 'beta'])", "beta", true), ("exactlyMatches(['bet'])", "beta", false),
        // Strings are compared by bytes.
        ("exactlyMatches(['é'])", "e\u{301}", false), ("contains(['e'])", "e\u{301}", true),
        ("matches(['^b.*a$'])", "beta", true), ("matches(['x', 't'])", "beta", true),
        ("matches(['^t'])", "beta", false), ("matches(['(?i)BETA'])", "beta", true),
        // A match that takes too long fails.
        ("matches(['(a+)+[bc]$'])", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab!", false),
    ])
    func texts(method: String, given: String, isTrue: Bool) throws {
        let fields = [
            ("app.version", "{\"appVersion\":\"\(given)\"}"),
            ("app.build", "{\"appBuild\":\"\(given)\"}"),
            ("app.userProperty['k']", "{\"analyticsUserProperties\":{\"k\":\"\(given)\"}}"),
            ("app.customSignal['k']", "{\"custom_signals\":{\"k\":\"\(given)\"}}"),
        ]
        for (field, body) in fields {
            #expect(try holds("\(field).\(method)", body) == isTrue, "\(field)")
            // A missing value gives false, whatever the comparison.
            #expect(try !holds("\(field).\(method)", "{}"), "\(field)")
            #expect(try !holds("\(field).\(method)", "{\"customSignals\":{\"k\":null}}"))
        }
    }

    @Test(arguments: [
        ("== 3", "3", true), ("== 3", "\"3\"", true), ("== 3", "3.0", true),
        ("== 3", "\"3.00\"", true),
        ("== 3", "4", false), ("!= 3", "4", true), ("!= 3", "3", false), ("< 3", "2.9", true),
        ("< 3", "3", false), ("<= 3", "3", true), ("<= -3.5", "\"-3.5\"", true), ("> 3", "4", true),
        ("> 3", "3", false), (">= 3", "3", true), (">= 1e3", "\"1000\"", true),
        ("== 0", "\"-0\"", true),
        // Values that are not numbers.
        ("!= 3", "\"three\"", false), ("!= 3", "\"\"", false), ("!= 3", "\"0x4\"", false),
        ("!= 3", "\"inf\"", false), ("!= 3", "\"nan\"", false), ("!= 3", "\"4 \"", false),
        ("!= 3", "true", false), ("!= 3", "null", false), ("!= 3", "[4]", false),
        ("!= 3", "\"1e999\"", false),
    ])
    func numbers(comparison: String, given: String, isTrue: Bool) throws {
        #expect(
            try holds(
                "app.userProperty['k'] \(comparison)",
                "{\"analytics_user_properties\":{\"k\":\(given)}}"
            )
                == isTrue
        )
        #expect(
            try holds("app.customSignal['k'] \(comparison)", "{\"customSignals\":{\"k\":\(given)}}")
                == isTrue
        )
        #expect(
            try !holds(
                "app.customSignal['k'] \(comparison)",
                "{\"customSignals\":{\"K\":\(given)}}"
            )
        )
        #expect(try !holds("app.customSignal['k'] \(comparison)", "{}"))
    }

    @Test(arguments: [
        ("app.id == '1:7:ios:ab'", "{\"appId\":\"1:7:ios:ab\"}", true),
        ("app.id == '1:7:ios:ab'", "{\"app_id\":\"1:7:ios:abc\"}", false),
        ("app.id == '1:7:ios:ab'", "{}", false),
        ("device.os == 'ios'", "{\"appId\":\"1:7:ios:ab\"}", true),
        ("device.os == 'android'", "{\"appId\":\"1:7:ios:ab\"}", false),
        ("device.os != 'android'", "{\"appId\":\"1:7:ios:ab\"}", true),
        ("device.os != 'ios'", "{\"appId\":\"1:7:ios:ab\"}", false),
        ("device.os != 'ios'", "{}", false), ("device.os != 'ios'", "{\"appId\":\"7\"}", false),
        ("device.os == 'i'", "{\"appId\":\"::i:\"}", true),
        ("device.os != 'ios'", "{\"appId\":\"1:7::ab\"}", false),
        ("device.os != 'ios'", "{\"appId\":\"1:7:android\"}", false),
        ("device.os == 'ios'", "{\"appId\":\"1:7:ios:ab:c\"}", false),
        ("device.country in ['US', 'DE']", "{\"countryCode\":\"DE\"}", true),
        ("device.country in ['US']", "{\"country_code\":\"DE\"}", false),
        ("device.country in ['us']", "{\"country_code\":\"US\"}", true),
        ("device.country in ['U']", "{\"country_code\":\"US\"}", false),
        ("device.country in ['USA']", "{\"country_code\":\"US\"}", false),
        ("device.language in ['EN']", "{\"languageCode\":\"en-us\"}", true),
        ("device.language in ['en-']", "{\"languageCode\":\"en-us\"}", false),
        ("device.language in ['en@us']", "{\"languageCode\":\"en`us\"}", false),
        ("device.country in ['US']", "{}", false),
        ("device.language in ['en-US']", "{\"languageCode\":\"EN-us\"}", true),
        ("device.language in ['en']", "{\"languageCode\":\"en-US\"}", true),
        ("device.language in ['de', 'en']", "{\"language_code\":\"en\"}", true),
        ("device.language in ['en-US']", "{\"languageCode\":\"en\"}", false),
        ("device.language in ['e']", "{\"languageCode\":\"en\"}", false),
        ("device.language in ['en']", "{\"languageCode\":\"eng\"}", false),
        ("device.language in ['en']", "{}", false),
        ("app.firebaseInstallationId in ['a', 'b']", "{\"appInstanceId\":\"b\"}", true),
        ("app.firebaseInstallationId in ['a']", "{\"app_instance_id\":\"b\"}", false),
        ("app.firebaseInstallationId in ['a']", "{}", false),
    ])
    func instances(expression: String, body: String, isTrue: Bool) throws {
        #expect(try holds(expression, body) == isTrue)
    }

    @Test(arguments: [
        // It is noon in Greenwich.
        ("< dateTime('2026-03-01T12:00:01')", true), ("< dateTime('2026-03-01T12:00:00')", false),
        (">= dateTime('2026-03-01T12:00:00')", true), (">= dateTime('2026-03-01T12:00:01')", false),
        (">= dateTime('2026-03-01T13:00:00', 'Europe/Berlin')", true),
        (">= dateTime('2026-03-01T13:00:01', 'Europe/Berlin')", false),
        ("< datetime('2026-03-01T07:00:01', 'America/New_York')", true),
        ("< DATETIME('2026-03-01T07:00:00', 'America/New_York')", false),
        (">= dateTime('2026-03-01T17:45:00', 'Asia/Kathmandu')", true),
    ])
    func times(comparison: String, isTrue: Bool) throws {
        #expect(try holds("dateTime \(comparison)", "{}") == isTrue)
        let body = #"{"firstOpenTime":"2026-03-01T12:00:00.000Z"}"#
        let constant = comparison.replacing(/^(\S+) date[tT]ime/.ignoresCase()) {
            "\($0.output.0.split(separator: " ")[0]) "
        }
        #expect(try holds("app.firstOpenTimestamp \(constant)", body) == isTrue)
        #expect(try !holds("app.firstOpenTimestamp \(constant)", "{}"))
        #expect(try !holds("app.firstOpenTimestamp \(constant)", #"{"firstOpenTime":"today"}"#))
    }

    @Test(arguments: [
        ("<= ('2022-10-31T14:37:47', 'America/Los_Angeles')", "2022-10-31T21:37:47Z", true),
        ("<= ('2022-10-31T14:37:47', 'America/Los_Angeles')", "2022-10-31T21:37:48Z", false),
        ("> ('2022-10-31T14:37:47', 'America/Los_Angeles')", "2022-10-31T21:37:47.001Z", true),
        (">= ('2022-10-31T14:37:47', 'America/Los_Angeles')", "2022-10-31T21:37:47Z", true),
        ("< ('2022-10-31T14:37:47')", "2022-10-31T14:37:46", true),
    ])
    func firstOpenings(comparison: String, given: String, isTrue: Bool) throws {
        #expect(
            try holds("app.firstOpenTimestamp \(comparison)", "{\"firstOpenTime\":\"\(given)\"}")
                == isTrue
        )
    }

    /// SHA-256 modulo a hundred million, by `hashlib`, is 50,078,638 for `install-1` and 83,453,276
    /// for `seed.install-1`.
    @Test(arguments: [
        ("percent <= 50", false), ("percent <= 51", true), ("percent > 50", true),
        ("percent > 51", false), ("percent <= 50.078638", true), ("percent <= 50.078637", false),
        ("percent > 50.078638", false), ("percent between 50 and 51", true),
        ("percent between 0 and 50", false), ("percent between 51 and 100", false),
        ("percent between 50.078638 and 60", false), ("percent between 50 and 50.078638", true),
        ("percent between 10 and 10", false), ("percent <= 0", false), ("percent <= 100", true),
        ("percent > 0", true), ("percent > 100", false), ("percent('') <= 51", true),
        ("percent('seed') <= 83", false), ("percent('seed') <= 84", true),
        ("percent('seed') > 83", true), ("percent('seed') between 83 and 84", true),
        ("percent('Seed') between 83 and 84", false),
    ])
    func percentages(expression: String, isTrue: Bool) throws {
        #expect(try holds(expression, #"{"appInstanceId":"install-1"}"#) == isTrue)
        #expect(try !holds(expression, "{}"))
        #expect(try !holds(expression, #"{"appInstanceId":""}"#))
    }

    /// Each seed has a percentile of its own, however many there are and whichever comes first.
    @Test func manySeeds() throws {
        let body = #"{"appInstanceId":"install-1"}"#
        let seeds = (0..<40).map { "seed\($0)" }
        let alone = try seeds.map { try holds("percent('\($0)') <= 50", body) }
        #expect(Set(alone).count == 2)
        let all = zip(seeds, alone).map { "percent('\($0)') \($1 ? "<=" : ">") 50" }
        let twice = ["percent <= 51"] + all + all.reversed()
        #expect(try holds(twice.joined(separator: " && "), body))
        for index in [0, 7, 8, 39] {
            var one = all
            one[index] = "percent('seed\(index)') \(alone[index] ? ">" : "<=") 50"
            #expect(try !holds((all + one).joined(separator: " && "), body))
        }
    }

    @Test func theHashIsTakenForOneNumber() {
        #expect(EvaluationContext.remainder([0]) == 0)
        #expect(EvaluationContext.remainder([5, 245, 225, 0]) == 0)
        #expect(EvaluationContext.remainder([5, 245, 225, 7]) == 7)
        #expect(EvaluationContext.remainder(sha256(Array("cVQ3nFqLQJ2".utf8))) == 468_040)
    }

    /// All patterns of a fetch share a bound.
    @Test func manySlowPatternsEnd() throws {
        let slow = (0..<200).map { "app.userProperty['k'].notContains(['\($0)x'])" }
        let patterns =
            "app.userProperty['k'].matches(["
            + (0..<500).map { "'(a+)+[bc]\($0)'" }.joined(separator: ", ") + "])"
        let body = "{\"analyticsUserProperties\":{\"k\":\"\(String(repeating: "a", count: 500))\"}}"
        let expression = slow.joined(separator: " && ") + " && " + patterns
        let clock = ContinuousClock()
        var best = Duration.seconds(1000)
        for _ in 0..<3 {
            let start = clock.now
            #expect(try !holds(expression, body))
            best = min(best, clock.now - start)
        }
        #expect(best < .milliseconds(500))
    }
}
