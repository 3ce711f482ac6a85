import JSON
import RemoteConfig
import Testing

/// Conditions of server templates.
@Suite(.timeLimit(.minutes(1)))
struct ServerTemplateTests {
    private func check(_ condition: String) throws {
        let json = #"{"conditions":[{"name":"c","condition":\#(condition)}]}"#
        let read = try ConfigTemplate(try JSONValue.parse(json), namespace: .server)
        #expect(try read.object["conditions"]?[0]?["condition"] == JSONValue.parse(condition))
    }

    @Test(arguments: [
        #"{"true":{}}"#, #"{"false":{}}"#, #"{"orCondition":{"conditions":[]}}"#,
        #"{"andCondition":{"conditions":[{"true":{}},{"orCondition":{"conditions":[{"false":{}}]}}]}}"#,
        #"{"percent":{"percentOperator":"LESS_OR_EQUAL","microPercent":10000000,"seed":"a-b"}}"#,
        #"{"percent":{"percentOperator":"GREATER_THAN","microPercent":100000000}}"#,
        #"{"percent":{"percentOperator":"GREATER_THAN"}}"#,
        #"{"percent":{"percentOperator":"BETWEEN","microPercentRange":{"microPercentLowerBound":1,"microPercentUpperBound":2}}}"#,
        #"{"percent":{"percentOperator":"BETWEEN","microPercentRange":{"microPercentUpperBound":2}}}"#,
        #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS","customSignalKey":"k","targetCustomSignalValues":["a","b"]}}"#,
        #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS_REGEX","customSignalKey":"k","targetCustomSignalValues":["^a+"]}}"#,
        #"{"customSignal":{"customSignalOperator":"NUMERIC_LESS_THAN","customSignalKey":"k","targetCustomSignalValues":["-1.5"]}}"#,
        #"{"customSignal":{"customSignalOperator":"SEMANTIC_VERSION_GREATER_EQUAL","customSignalKey":"k","targetCustomSignalValues":["1.2.3"]}}"#,
    ])
    func taken(condition: String) throws { try check(condition) }

    @Test(arguments: [
        ("7", "condition is a number, not an object"), ("{}", "a condition is one thing, not 0"),
        (#"{"true":{},"false":{}}"#, "a condition is one thing, not 2"),
        (#"{"notCondition":{}}"#, "unknown condition notCondition"),
        (#"{"true":1}"#, "true is a number, not an object"),
        (#"{"true":{"x":1}}"#, "true.x is not known"),
        (#"{"orCondition":{"conditions":{}}}"#, "orCondition.conditions is an object, not a list"),
        (#"{"percent":{}}"#, "unknown percentOperator "),
        (#"{"percent":{"percentOperator":"EQUAL"}}"#, "unknown percentOperator EQUAL"),
        (
            #"{"percent":{"percentOperator":"LESS_OR_EQUAL","microPercent":100000001}}"#,
            "microPercent is 0 to 100000000, not 100000001"
        ),
        (
            #"{"percent":{"percentOperator":"LESS_OR_EQUAL","microPercent":-1}}"#,
            "microPercent is 0 to 100000000, not -1"
        ),
        (#"{"percent":{"percentOperator":"BETWEEN"}}"#, "percent has no microPercentRange"),
        (
            #"{"percent":{"percentOperator":"BETWEEN","microPercentRange":{"microPercentLowerBound":3,"microPercentUpperBound":2}}}"#,
            "the bounds are reversed"
        ),
        (
            #"{"percent":{"percentOperator":"GREATER_THAN","seed":"a b"}}"#,
            "a seed is at most 32 characters of -_.0-9a-zA-Z, not \"a b\""
        ),
        (
            #"{"customSignal":{"customSignalOperator":"IS","customSignalKey":"k","targetCustomSignalValues":["a"]}}"#,
            "unknown customSignalOperator IS"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS","customSignalKey":"","targetCustomSignalValues":["a"]}}"#,
            "customSignalKey is 1 to 250 characters, not \"\""
        ),
        (
            #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS","customSignalKey":"k","targetCustomSignalValues":[]}}"#,
            "targetCustomSignalValues are not 1 to 100 texts"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS","customSignalKey":"k","targetCustomSignalValues":[7]}}"#,
            "a target is a text of at most 500 characters, not 7"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"NUMERIC_EQUAL","customSignalKey":"k","targetCustomSignalValues":["a"]}}"#,
            "NUMERIC_EQUAL needs one number, not \"a\""
        ),
        (
            #"{"customSignal":{"customSignalOperator":"NUMERIC_EQUAL","customSignalKey":"k","targetCustomSignalValues":["1","2"]}}"#,
            "NUMERIC_EQUAL needs one number, not \"1\", \"2\""
        ),
        (
            #"{"customSignal":{"customSignalOperator":"SEMANTIC_VERSION_EQUAL","customSignalKey":"k","targetCustomSignalValues":["a"]}}"#,
            "SEMANTIC_VERSION_EQUAL needs one version, not \"a\""
        ),
        (
            #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS_REGEX","customSignalKey":"k","targetCustomSignalValues":["(?=a)"]}}"#,
            "a pattern is not RE2's (a group begins with (?=, not RE2's, at 3)"
        ),
    ])
    func refused(condition: String, problem: String) {
        let error = #expect(throws: ConfigTemplateError.self) { try check(condition) }
        #expect(error?.description == "condition c: \(problem)")
    }

    @Test func nestedTenDeep() throws {
        func nested(_ depth: Int) -> String {
            String(repeating: #"{"andCondition":{"conditions":["#, count: depth - 1)
                + #"{"true":{}}"#
                + String(repeating: "]}}", count: depth - 1)
        }
        try check(nested(10))
        #expect(throws: ConfigTemplateError.self) { try check(nested(11)) }
    }

    @Test(
        "Names in snake case, numbers as strings and nulls are stored as the Admin SDKs read them"
    )
    func canonicalForm() throws {
        let given = #"""
            {"or_condition":{"conditions":[{"and_condition":{"conditions":[
             {"percent":{"percent_operator":"BETWEEN","seed":null,"micro_percent_range":
              {"micro_percent_lower_bound":"1000000","micro_percent_upper_bound":2e6}}},
             {"custom_signal":{"custom_signal_operator":"STRING_CONTAINS","custom_signal_key":"k",
              "target_custom_signal_values":["a_b"]}}]}}]}}
            """#
        let wanted = #"""
            {"orCondition":{"conditions":[{"andCondition":{"conditions":[
             {"percent":{"percentOperator":"BETWEEN","microPercentRange":
              {"microPercentLowerBound":1000000,"microPercentUpperBound":2000000}}},
             {"customSignal":{"customSignalOperator":"STRING_CONTAINS","customSignalKey":"k",
              "targetCustomSignalValues":["a_b"]}}]}}]}}
            """#
        let json = #"{"conditions":[{"name":"c","condition":\#(given)}]}"#
        let read = try ConfigTemplate(try JSONValue.parse(json), namespace: .server)
        #expect(try read.object["conditions"]?[0]?["condition"] == JSONValue.parse(wanted))
    }

    @Test(
        "An expression is stored unchanged, and returned to the Admin SDKs as a condition tree",
        arguments: [
            ("true", #"{"true":{}}"#), ("false", #"{"false":{}}"#),
            (
                "percent <= 10",
                #"{"percent":{"percentOperator":"LESS_OR_EQUAL","microPercent":10000000,"seed":"percent","microPercentRange":{}}}"#
            ),
            (
                "percent('s') > 0.5",
                #"{"percent":{"percentOperator":"GREATER_THAN","microPercent":500000,"seed":"s","microPercentRange":{}}}"#
            ),
            (
                "percent between 10 and 20",
                #"{"percent":{"percentOperator":"BETWEEN","microPercentRange":{"microPercentLowerBound":10000000,"microPercentUpperBound":20000000},"seed":"percent"}}"#
            ),
            (
                "app.customSignal['k'].exactlyMatches(['a', 'b'])",
                #"{"customSignal":{"customSignalOperator":"STRING_EXACTLY_MATCHES","customSignalKey":"k","targetCustomSignalValues":["a","b"]}}"#
            ),
            (
                "app.customSignal['k'].matches(['^a'])",
                #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS_REGEX","customSignalKey":"k","targetCustomSignalValues":["^a"]}}"#
            ),
            (
                "app.customSignal['k'] >= 3",
                #"{"customSignal":{"customSignalOperator":"NUMERIC_GREATER_EQUAL","customSignalKey":"k","targetCustomSignalValues":["3"]}}"#
            ),
            (
                "version(app.customSignal['k']) != '1.2'",
                #"{"customSignal":{"customSignalOperator":"SEMANTIC_VERSION_NOT_EQUAL","customSignalKey":"k","targetCustomSignalValues":["1.2"]}}"#
            ),
        ]
    )
    func expressions(text: String, condition: String) throws {
        let json: JSONValue = [
            "conditions": [["name": "c", "expression": .string(text), "tagColor": "BLUE"]]
        ]
        let read = try ConfigTemplate(json, namespace: .server)
        #expect(read.object["conditions"] == json["conditions"])
        let served = ConfigTemplate.evaluatedByServers(read.object)["conditions"]?[0]
        let both = served?["condition"]?["orCondition"]?["conditions"]?[0]?["andCondition"]
        #expect(try both?["conditions"] == .array([JSONValue.parse(condition)]))
        #expect(served?["name"] == "c")
        // The returned condition is accepted, too.
        let again = try ConfigTemplate(["conditions": [served ?? .null]], namespace: .server)
        #expect(again.object["conditions"]?[0] == served)
    }

    @Test("Every percentage has a range, as Java's Admin SDK cannot read a template without it")
    func ranges() throws {
        func rule(_ rest: String) -> String {
            #"{"orCondition":{"conditions":[{"percent":{"percentOperator":"GREATER_THAN"\#(rest)}}]}}"#
        }
        let json = #"{"conditions":[{"name":"c","condition":\#(rule(""))}]}"#
        let read = try ConfigTemplate(try JSONValue.parse(json), namespace: .server)
        let served = ConfigTemplate.evaluatedByServers(read.object)["conditions"]?[0]?["condition"]
        #expect(try served == JSONValue.parse(rule(#","microPercentRange":{}"#)))
    }

    @Test(
        "An element that the Admin SDKs cannot evaluate is refused in a server template",
        arguments: ["device.os == 'ios'", "app.version.>=(['1'])", "app.userProperty['k'] == 1"]
    )
    func clientElements(text: String) {
        let json: JSONValue = ["conditions": [["name": "c", "expression": .string(text)]]]
        let error = #expect(throws: ConfigTemplateError.self) {
            try ConfigTemplate(json, namespace: .server)
        }
        #expect(
            error?.description
                == "condition c: servers' templates have percent and app.customSignal, not \(text)"
        )
    }
}
