import JSON
import Testing

@testable import CLI

@Suite("Output for people", .timeLimit(.minutes(1)))
struct TerminalTests {
    @Test("JSON is described in words")
    func plain() {
        let value: JSONValue = [
            "keyId": "ABC", "isOn": true, "hosts": ["a", "b"], "none": [], "deep": ["n": 1],
        ]
        #expect(value.plain == "key id ABC, is on yes, hosts a, b, none none, deep (n 1)")
    }

    @Test("A string becomes one line of bounded length, without control characters")
    func short() {
        #expect(Terminal.short("a\nb\u{1B}[31m", 40) == "a b [31m")
        #expect(Terminal.short(String(repeating: "x", count: 50), 10) == "xxxxxxxxx…")
    }

    @Test("Control characters are printed as JSON escapes, and JSON keeps its value")
    func printable() throws {
        let hostile =
            "a\u{1B}[31m\u{9B}2J\u{7F}\r\u{8}\u{202E}b\u{2066}\u{200F}\u{2028}\u{FEFF}\u{E0041}c"
        let printed = String(decoding: PrintableText.bytes(of: hostile), as: UTF8.self)
        #expect(
            printed
                == #"a\u001b[31m\u009b2J\u007f\u000d\u0008\u202eb\u2066\u200f\u2028\ufeff\udb40\udc41c"#
        )
        let value: JSONValue = ["text": .string(hostile), "é日👩‍👩‍👧": "ok\n\t"]
        let json = String(decoding: PrintableText.bytes(of: value.text), as: UTF8.self)
        #expect(json.unicodeScalars.allSatisfy(PrintableText.isPrintable))
        #expect(try JSONValue.parse(json) == value)
        let plain = "line\n\tnext é日👩‍👩‍👧"
        #expect(PrintableText.bytes(of: plain) == Array(plain.utf8))
    }

    @Test("A cell is one line, whatever it contains")
    func cells() {
        #expect(
            Terminal.table([["a\nb", "c"], ["d", "e\t"]]) == "a\\u000ab  c\nd         e\\u0009"
        )
    }
}
