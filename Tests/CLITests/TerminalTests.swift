import JSON
import Testing

@testable import CLI

@Suite("What a person reads", .timeLimit(.minutes(1)))
struct TerminalTests {
    @Test("JSON is told in words")
    func plain() {
        let value: JSONValue = [
            "keyId": "ABC", "isOn": true, "hosts": ["a", "b"], "none": [], "deep": ["n": 1],
        ]
        #expect(value.plain == "key id ABC, is on yes, hosts a, b, none none, deep (n 1)")
    }

    @Test("A text becomes one line of a bounded length, without what a terminal minds")
    func short() {
        #expect(Terminal.short("a\nb\u{1B}[31m", 40) == "a b [31m")
        #expect(Terminal.short(String(repeating: "x", count: 50), 10) == "xxxxxxxxx…")
    }
}
