import JSON
import Testing

@testable import CLI

@Suite("JSON for people who edit it", .timeLimit(.minutes(1)))
struct IndentedJSONTests {
    @Test(
        "It says the same, in the same order",
        arguments: [
            "{}", "[]", "\"a\\n\\\"b\"", "[[],[{}]]", "{\"b\":[1,2.50,null],\"a\":{\"\":true}}",
        ]
    )
    func same(text: String) throws {
        let value = try JSONValue.parse(text)
        #expect(try JSONValue.parse(value.indented).text == value.text)
    }

    @Test("A line each member, and nothing of an empty one")
    func lines() {
        let value: JSONValue = ["b": ["c": []], "a": [1, "x"]]
        #expect(
            value.indented == """
                {
                  "b": {
                    "c": []
                  },
                  "a": [
                    1,
                    "x"
                  ]
                }
                """
        )
    }
}
