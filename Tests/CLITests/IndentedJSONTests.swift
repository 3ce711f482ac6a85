import JSON
import Testing

@testable import CLI

@Suite("Indented JSON for editing", .timeLimit(.minutes(1)))
struct IndentedJSONTests {
    @Test(
        "Indenting keeps the values and their order",
        arguments: [
            "{}", "[]", "\"a\\n\\\"b\"", "[[],[{}]]", "{\"b\":[1,2.50,null],\"a\":{\"\":true}}",
        ]
    )
    func same(text: String) throws {
        let value = try JSONValue.parse(text)
        #expect(try JSONValue.parse(value.indented).text == value.text)
    }

    @Test("Each member has a line, and an empty container has no inner line")
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
