import JSON
import RemoteConfig
import Testing

/// The conditions of server templates.
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
        ("7", "condition is no object"), ("{}", "a condition is one thing, not 0"),
        (#"{"true":{},"false":{}}"#, "a condition is one thing, not 2"),
        (#"{"notCondition":{}}"#, "unknown condition notCondition"),
        (#"{"true":1}"#, "true is no object"), (#"{"true":{"x":1}}"#, "true.x is not known"),
        (#"{"orCondition":{"conditions":{}}}"#, "orCondition.conditions is no list"),
        (#"{"percent":{}}"#, "unknown percentOperator "),
        (#"{"percent":{"percentOperator":"EQUAL"}}"#, "unknown percentOperator EQUAL"),
        (
            #"{"percent":{"percentOperator":"LESS_OR_EQUAL","microPercent":100000001}}"#,
            "microPercent is not 0 to 100000000"
        ),
        (
            #"{"percent":{"percentOperator":"LESS_OR_EQUAL","microPercent":-1}}"#,
            "microPercent is not 0 to 100000000"
        ),
        (#"{"percent":{"percentOperator":"BETWEEN"}}"#, "percent has no microPercentRange"),
        (
            #"{"percent":{"percentOperator":"BETWEEN","microPercentRange":{"microPercentLowerBound":3,"microPercentUpperBound":2}}}"#,
            "the bounds are reversed"
        ),
        (
            #"{"percent":{"percentOperator":"GREATER_THAN","seed":"a b"}}"#,
            "a seed is at most 32 characters of -_.0-9a-zA-Z"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"IS","customSignalKey":"k","targetCustomSignalValues":["a"]}}"#,
            "unknown customSignalOperator IS"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS","customSignalKey":"","targetCustomSignalValues":["a"]}}"#,
            "customSignalKey is not 1 to 250 characters"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS","customSignalKey":"k","targetCustomSignalValues":[]}}"#,
            "targetCustomSignalValues are not 1 to 100 texts"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"STRING_CONTAINS","customSignalKey":"k","targetCustomSignalValues":[7]}}"#,
            "a target is no text of at most 500 characters"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"NUMERIC_EQUAL","customSignalKey":"k","targetCustomSignalValues":["a"]}}"#,
            "NUMERIC_EQUAL needs one number"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"NUMERIC_EQUAL","customSignalKey":"k","targetCustomSignalValues":["1","2"]}}"#,
            "NUMERIC_EQUAL needs one number"
        ),
        (
            #"{"customSignal":{"customSignalOperator":"SEMANTIC_VERSION_EQUAL","customSignalKey":"k","targetCustomSignalValues":["a"]}}"#,
            "SEMANTIC_VERSION_EQUAL needs one version"
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

    @Test func anExpressionIsNoneOfTheirs() {
        let json: JSONValue = ["conditions": [["name": "c", "expression": "true"]]]
        #expect(throws: ConfigTemplateError.self) { try ConfigTemplate(json, namespace: .server) }
    }
}
