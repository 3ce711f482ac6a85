import Cryptography
import JSON
import PushCore
import Testing

@testable import RemoteConfig

/// Fetch responses to app instances.
@Suite(.timeLimit(.minutes(1)))
struct CompiledConfigTests {
    private let now = Instant(milliseconds: 1_770_000_000_000)

    private func config(_ json: String, version: Int = 8) throws -> CompiledConfig {
        CompiledConfig(
            try ConfigTemplate(try JSONValue.parse(json), namespace: .firebase),
            app: "shop",
            version: version,
            digest: { sha256($0) }
        )
    }

    private func fetch(_ body: String) throws -> ConfigFetch {
        try ConfigFetch(body: Array(body.utf8))
    }

    private func entries(_ answer: CompiledConfig.Answer) throws -> JSONValue? {
        try JSONValue.parse(answer.body)["entries"]
    }

    private static let template = """
        {"conditions":[
          {"name":"german","expression":"device.language in ['de']"},
          {"name":"new","expression":"app.version.>=(['2'])"},
          {"name":"unused","expression":"app.userProperty['k'].matches(['x'])"}],
        "parameters":{
          "welcome":{"defaultValue":{"value":"hello"},
            "conditionalValues":{"new":{"value":"hi"},"german":{"value":"hallo"}}},
          "own":{"defaultValue":{"value":"1"},"conditionalValues":{"new":{"useInAppDefault":true}}},
          "kept":{"defaultValue":{"useInAppDefault":true}},
          "none":{"conditionalValues":{"german":{"value":"da"}}}},
        "parameterGroups":{"g":{"parameters":{"of\\"group":{"defaultValue":{"value":"\\n"}}}}}}
        """

    private func slowConfig(_ count: Int) throws -> CompiledConfig {
        let slow = "app.customSignal['k'].matches(['(a+)+[bc]$'])"
        let conditions = (0..<count).map { index -> JSONValue in
            ["name": .string("c\(index)"), "expression": .string(slow)]
        }
        let last: JSONValue = [
            "name": "last", "expression": "app.customSignal['k'].matches(['^a'])",
        ]
        let names = (0..<count).map { "c\($0)" } + ["last"]
        let values = JSONObject(names.map { ($0, ["value": .string($0)]) })
        let template: JSONValue = [
            "conditions": .array(conditions + [last]),
            "parameters": [
                "p": ["defaultValue": ["value": "none"], "conditionalValues": .object(values)]
            ],
        ]
        return try config(template.text)
    }

    private static let slowSignal =
        #"{"customSignals":{"k":"\#(String(repeating: "a", count: 40))"}}"#

    @Test(
        "A condition that takes too long is false and counted by name, and the next has its budget"
    )
    func slowConditions() throws {
        let config = try slowConfig(3)
        var evaluation = config.evaluation(of: try fetch(Self.slowSignal), now: now)
        #expect(config.advance(&evaluation, steps: 10_000_000))
        #expect(evaluation.stoppedCount == 3)
        #expect(evaluation.stoppedCondition == "c0")
        let answer = config.answer(to: evaluation, ifNoneMatch: nil)
        #expect(try entries(answer) == ["p": "last"])
    }

    @Test("All conditions of a fetch share a budget")
    func slowFetch() throws {
        let config = try slowConfig(12)
        var evaluation = config.evaluation(of: try fetch(Self.slowSignal), now: now)
        #expect(config.advance(&evaluation, steps: 10_000_000))
        #expect(evaluation.stoppedCount == 13)
        #expect(try entries(config.answer(to: evaluation, ifNoneMatch: nil)) == ["p": "none"])
    }

    @Test("A fetch is evaluated in slices with the same result")
    func slices() throws {
        let config = try slowConfig(5)
        let fetch = try fetch(Self.slowSignal)
        var evaluation = config.evaluation(of: fetch, now: now)
        var slices = 1
        while !config.advance(&evaluation, steps: CompiledConfig.stepsPerSlice) { slices += 1 }
        #expect(slices >= 5)
        #expect(
            config.answer(to: evaluation, ifNoneMatch: nil)
                == config.answer(to: fetch, ifNoneMatch: nil, now: now)
        )
        // An ordinary template needs one slice.
        let plain = try self.config(Self.template)
        var quick = plain.evaluation(of: fetch, now: now)
        #expect(plain.advance(&quick, steps: CompiledConfig.stepsAtOnce))
        #expect(quick.stoppedCondition == nil)
    }

    /// The first true condition in the template's order wins, whatever a parameter's order.
    @Test(arguments: [
        ("{}", #"{"welcome":"hello","own":"1","of\"group":"\n"}"#),
        (#"{"languageCode":"de"}"#, #"{"welcome":"hallo","own":"1","none":"da","of\"group":"\n"}"#),
        (#"{"appVersion":"2.1"}"#, #"{"welcome":"hi","of\"group":"\n"}"#),
        (
            #"{"appVersion":"2","languageCode":"de-AT"}"#,
            #"{"welcome":"hallo","none":"da","of\"group":"\n"}"#
        ),
    ])
    func firstTrueConditionWins(body: String, wanted: String) throws {
        let answer = try config(Self.template).answer(to: fetch(body), ifNoneMatch: nil, now: now)
        #expect(answer.state == .update)
        #expect(
            String(decoding: answer.body, as: UTF8.self)
                == #"{"entries":\#(wanted),"state":"UPDATE","templateVersion":"8"}"#
        )
        #expect(answer.etag.hasPrefix("etag-shop-firebase-fetch-8-"))
    }

    @Test func etagsCoverTheVersionAndWhatConditionsCameTo() throws {
        let eight = try config(Self.template)
        let nine = try config(Self.template, version: 9)
        let plain = eight.answer(to: ConfigFetch(), ifNoneMatch: nil, now: now)
        let german = try eight.answer(
            to: fetch(#"{"languageCode":"de"}"#),
            ifNoneMatch: Array(plain.etag.utf8),
            now: now
        )
        #expect(german.state == .update)
        #expect(german.etag != plain.etag)
        let newer = nine.answer(to: ConfigFetch(), ifNoneMatch: Array(plain.etag.utf8), now: now)
        #expect(newer.state == .update)
        #expect(newer.etag != plain.etag)
        // Another replica makes the same response.
        let other = try config(Self.template).answer(to: ConfigFetch(), ifNoneMatch: nil, now: now)
        #expect(other == plain)
    }

    @Test func whatIsKnownIsNoChange() throws {
        let config = try config(Self.template)
        let first = config.answer(to: ConfigFetch(), ifNoneMatch: nil, now: now)
        for header in [first.etag, "\"\(first.etag)\""] {
            let answer = config.answer(to: ConfigFetch(), ifNoneMatch: Array(header.utf8), now: now)
            #expect(answer.state == .noChange)
            #expect(answer.etag == first.etag)
            #expect(
                String(decoding: answer.body, as: UTF8.self)
                    == #"{"state":"NO_CHANGE","templateVersion":"8"}"#
            )
        }
        for header in [
            "*", "", "\"", "\"\"", "x\(first.etag)", "x\(first.etag)\"", "'\(first.etag)'",
        ] {
            let answer = config.answer(to: ConfigFetch(), ifNoneMatch: Array(header.utf8), now: now)
            #expect(answer == first)
        }
    }

    @Test func whatYieldsNothingIsEmpty() throws {
        let config = try config(#"{"parameters":{"a":{"defaultValue":{"useInAppDefault":true}}}}"#)
        let answer = config.answer(to: ConfigFetch(), ifNoneMatch: nil, now: now)
        #expect(answer.state == .emptyConfig)
        #expect(
            String(decoding: answer.body, as: UTF8.self)
                == #"{"state":"EMPTY_CONFIG","templateVersion":"8"}"#
        )
        // NO_CHANGE takes precedence.
        let again = config.answer(to: ConfigFetch(), ifNoneMatch: Array(answer.etag.utf8), now: now)
        #expect(again.state == .noChange)
        let none = CompiledConfig.noTemplate(app: "shop")
        #expect(none.state == .noTemplate)
        #expect(try JSONValue.parse(none.body) == ["state": "NO_TEMPLATE"])
        #expect(!none.etag.isEmpty)
    }

    @Test func conditionsOfMoreThanOneWord() throws {
        let count = 200
        let conditions = (0..<count).map {
            #"{"name":"c\#($0)","expression":"app.customSignal['n'] == \#($0)"}"#
        }
        let values = (0..<count).map { #""c\#($0)":{"value":"v\#($0)"}"# }
        let config = try config(
            """
            {"conditions":[\(conditions.joined(separator: ","))],
            "parameters":{"a":{"conditionalValues":{\(values.joined(separator: ","))}}}}
            """
        )
        for index in [0, 1, 63, 64, 65, 127, 128, 199] {
            let answer = try config.answer(
                to: fetch(#"{"customSignals":{"n":\#(index)}}"#),
                ifNoneMatch: nil,
                now: now
            )
            #expect(try entries(answer) == ["a": .string("v\(index)")])
        }
    }

    /// A client can choose the results of conditions, so it can ask for new responses without end.
    @Test func answersThatAreKeptHaveABound() {
        var cache = AnswerCache<Int>(limit: 1000)
        for index in 0..<1024 {
            var truth = ConditionResults(count: 100)
            for bit in 0..<10 where index >> bit & 1 == 1 { truth.set(bit * 9) }
            #expect(cache[truth] == nil)
            cache.insert(index, for: truth, weight: 30)
            #expect(cache[truth] == index)
            #expect(cache.weight <= 1000)
            // A response that is asked for stays.
            var first = ConditionResults(count: 100)
            #expect(cache[first] == 0)
            first.set(99)
        }
        // A response larger than the budget is cached alone.
        var large = ConditionResults(count: 100)
        large.set(98)
        cache.insert(-1, for: large, weight: 5000)
        #expect(cache[large] == -1)
        var next = ConditionResults(count: 100)
        next.set(97)
        cache.insert(-2, for: next, weight: 10)
        var last = ConditionResults(count: 100)
        last.set(96)
        cache.insert(-3, for: last, weight: 600)
        #expect(cache.weight <= 1000)
    }
}
