import Foundation
import JSON
import Testing

@Suite("JSON: the value tree", .timeLimit(.minutes(1)))
struct JSONValueTests {
    @Test(
        "Text that RFC 8259 allows is read with its meaning",
        arguments: [
            ("null", .null), (" true\n", .bool(true)), ("false", .bool(false)),
            ("0", .integer(0)), ("-1", .integer(-1)), ("1.0", .double(1)),
            ("-0", .double(-0.0)), ("1e3", .double(1000)), ("0.1", .double(0.1)),
            ("123456789.123456789", .double(123456789.123456789)),
            ("5e-324", .double(.leastNonzeroMagnitude)),
            ("9223372036854775807", .integer(.max)), ("-9223372036854775808", .integer(.min)),
            ("\"\"", ""), (#""a\"\\\/\b\f\n\r\t""#, "a\"\\/\u{8}\u{c}\n\r\t"),
            (#""é\u00e9\uD83D\uDE00""#, "éé😀"), (#""\u0000""#, "\0"), ("[]", []), ("{}", [:]),
            ("[1, [2], {\"a\": [null]}]", [1, [2], ["a": [.null]]]),
        ] as [(String, JSONValue)]
    )
    func reads(text: String, value: JSONValue) throws {
        #expect(try JSONValue.parse(text) == value)
    }

    @Test("Numbers outside of our types keep their text and are written unchanged")
    func keepsBigNumbers() throws {
        for text in [
            "9223372036854775808", "-9223372036854775809", "1e400", "-1e400",
            "123456789012345678901234567890",
        ] {
            let value = try JSONValue.parse(text)
            #expect(value == .number(text))
            #expect(value.text == text)
            #expect(value.integer == nil)
        }
        #expect(JSONValue.number("18446744073709551616").double == 18446744073709551616)
    }

    @Test("An integer that is the shortest form of a double is read as it, as jsonb prints doubles")
    func takesDigitsOfDoubles() throws {
        for (text, value) in [
            ("9223372036854775808", nil), ("9223372036854775807", nil),
            ("100000000000000000000", 1e20), ("-100000000000000000000", -1e20),
            ("18446744073709552000", 0x1p64), ("18446744073709551616", nil),
            ("1" + String(repeating: "0", count: 308), 1e308),
            ("17976931348623157" + String(repeating: "0", count: 292), .greatestFiniteMagnitude),
            ("17976931348623158" + String(repeating: "0", count: 292), nil),
            ("1" + String(repeating: "0", count: 400), nil),
            ("1" + String(repeating: "0", count: 299) + "1", nil),
        ] as [(String, Double?)] {
            let read = try JSONValue.parse(text)
            if case .double(let double) = read {
                #expect(double == value, "\(text)")
                #expect(try JSONValue.parse(read.text) == read)
            } else {
                #expect(value == nil, "\(text)")
                #expect(read.text == text)
            }
        }
    }

    @Test("A decimal is rounded once, to the nearest double")
    func roundsRight() throws {
        for text in ["9007199254740993.0", "1.7976931348623157e308", "2.5e-5", "0.3e22"] {
            #expect(try JSONValue.parse(text).double == Double(text))
        }
    }

    @Test(
        "Text that RFC 8259 forbids is refused with the place of the error",
        arguments: [
            ("", 0, .value), ("[1,]", 3, .value), ("[1 2]", 3, .commaOrBracket),
            ("{\"a\" 1}", 5, .colon), ("{\"a\":1,}", 7, .key), ("{a:1}", 1, .key),
            ("01", 0, .value), ("+1", 0, .value), (".5", 0, .value), ("1.", 2, .digit),
            ("1e", 2, .digit), ("nul", 0, .value), ("NaN", 0, .value), ("1 2", 2, .end),
            ("\"\\x\"", 2, .escape), ("\"\t\"", 1, .escapedControl), ("\"a", 2, .closingQuote),
            ("\"\\uD800\"", 3, .surrogatePair), ("\"\\uDC00\"", 3, .surrogatePair),
            ("\"\\uD800\\u0041\"", 3, .surrogatePair), ("\u{FEFF}1", 0, .value),
        ] as [(String, Int, JSONError.Expectation)]
    )
    func refuses(text: String, offset: Int, expected: JSONError.Expectation) {
        #expect(throws: JSONError(offset: offset, line: 1, expected: expected)) {
            try JSONValue.parse(text)
        }
    }

    @Test("Invalid UTF-8 is refused, with and without escapes around it")
    func refusesInvalidUTF8() {
        for bytes: [UInt8] in [
            [0x22, 0xFF, 0x22], [0x22, 0xC0, 0xAF, 0x22], [0x22, 0xED, 0xA0, 0x80, 0x22],
            [0x22, 0x5C, 0x6E, 0xE2, 0x82, 0x22],
        ] {
            #expect(throws: JSONError(offset: 1, line: 1, expected: .unicode)) {
                try JSONValue.parse(bytes)
            }
        }
    }

    @Test("An error has the line and byte, but not the content")
    func errorsAreSafeToShow() {
        let error = #expect(throws: JSONError.self) {
            try JSONValue.parse("{\n\"a\": secret}")
        }
        #expect(error?.description == "line 2, byte 7: expected a value")
    }

    @Test("Depth and size are bounded")
    func bounds() throws {
        let deep = String(repeating: "[", count: 64) + String(repeating: "]", count: 64)
        _ = try JSONValue.parse(deep)
        #expect(throws: JSONError(offset: 64, line: 1, expected: .lessDepth)) {
            try JSONValue.parse("[" + deep + "]")
        }
        #expect(throws: JSONError(offset: 3, line: 1, expected: .fewerBytes)) {
            try JSONValue.parse("1234", maximumBytes: 3)
        }
    }

    @Test("The last of duplicate keys wins and the order stays, below and above the index's limit")
    func duplicateKeys() throws {
        let value = try JSONValue.parse(#"{"b":1,"a":2,"b":3}"#)
        #expect(value.text == #"{"b":3,"a":2}"#)
        let many = (0..<100).map { "\"k\($0)\":\($0)" } + ["\"k50\":-1"]
        let object = try #require(
            try JSONValue.parse("{" + many.joined(separator: ",") + "}").object
        )
        #expect(object.count == 100)
        #expect(object["k50"] == -1)
        #expect(object.keys == (0..<100).map { "k\($0)" })
    }

    @Test("Keys that are only equivalent differ, below and above the index's limit")
    func equivalentKeys() throws {
        let keys = ["\u{e9}", "e\u{301}"]
        for others in [0, 40] {
            let names = (0..<others).map { "k\($0)" } + keys
            let members = names.map { "\"\($0)\":\"\($0.utf8.count)\"" }
            let object = try #require(
                try JSONValue.parse("{" + members.joined(separator: ",") + "}").object
            )
            #expect(object.count == names.count)
            #expect(object[keys[0]] == "2")
            #expect(object[keys[1]] == "3")
        }
    }

    @Test("Members of an object are added, replaced and removed")
    func objectEditing() {
        var object = JSONObject()
        for index in 0..<40 { object["k\(index)"] = JSONValue(index) }
        #expect(object.removeValue(forKey: "k3") == 3)
        #expect(object.removeValue(forKey: "k3") == nil)
        object["k39"] = "last"
        object["k0"] = nil
        #expect(object.count == 38)
        #expect(object["k39"] == "last")
        #expect(object["k4"] == 4)
        #expect(object["k0"] == nil)
    }

    @Test("Removing every member of a large object one by one keeps order, count and lookups")
    func removesInAnyOrder() {
        var object = JSONObject((0..<1000).map { ("key \($0)", JSONValue($0)) })
        for number in 0..<1000 where number % 3 != 0 {
            #expect(object.removeValue(forKey: "key \(number)") == JSONValue(number))
        }
        #expect(object.removeValue(forKey: "key 1") == nil)
        let left = stride(from: 0, to: 1000, by: 3).map { "key \($0)" }
        #expect(object.keys == left && object.count == left.count)
        #expect(object["key 999"] == 999 && object["key 998"] == nil)
        object["key 1"] = "again"
        #expect(object.keys == left + ["key 1"])
        for key in left + ["key 1"] { object.removeValue(forKey: key) }
        #expect(object.isEmpty && object.keys.isEmpty && Array(object).isEmpty)
    }

    @Test("Strings are compared by their bytes")
    func comparesBytes() {
        #expect(JSONValue.string("caf\u{e9}") != .string("cafe\u{301}"))
        #expect(JSONValue.array(["caf\u{e9}"]) != .array(["cafe\u{301}"]))
        #expect(ExactStringSet(["caf\u{e9}", "cafe\u{301}", "caf\u{e9}"]).count == 2)
        #expect(
            ["b", "cafe\u{301}", "caf\u{e9}", "cafz"].sortedByBytes().map(\.utf8.count) == [
                1, 6, 4, 5,
            ]
        )
        #expect("12345678".precedes("123456789") && !"12345678a".precedes("12345678Z"))
    }

    @Test("Objects are equal whatever the order of their members")
    func equality() {
        let left: JSONValue = ["a": 1, "b": [2]]
        #expect(left == ["b": [2], "a": 1])
        #expect(left != ["b": [2], "a": 1, "c": .null])
        #expect(left != ["b": [2], "c": 1])
    }

    @Test("Accessors return a value only of exactly their type")
    func accessors() {
        #expect(JSONValue.double(1).integer == 1)
        #expect(JSONValue.double(1.5).integer == nil)
        #expect(JSONValue.double(1e300).integer == nil)
        #expect(JSONValue.integer(2).double == 2)
        #expect(JSONValue.string("1").integer == nil)
        #expect(JSONValue.bool(true).integer == nil)
        let value: JSONValue = ["a": [1, "x"], "n": .null]
        #expect(value["a"]?[1]?.string == "x")
        #expect(value["a"]?[2] == nil)
        #expect(value["n"]?.isNull == true)
        #expect(value["m"] == nil)
        #expect(value.kind == "object")
    }

    @Test("A written value is read back as the same")
    func roundTrip() throws {
        let value: JSONValue = [
            "text": "q\"b\\c/\u{1}\u{1F}\u{7F}\u{2028}é😀\n", "int": -42, "min": .integer(.min),
            "double": 0.1, "big": .double(1e300), "tiny": .double(.leastNonzeroMagnitude),
            "yes": true, "no": false,
            "nothing": .null, "list": [1, [], [:]],
        ]
        #expect(try JSONValue.parse(value.bytes) == value)
        #expect(JSONValue.string("\u{1}\u{1F}\n\"").text == #""\u0001\u001f\n\"""#)
        #expect(JSONValue.double(.nan).text == "null")
        #expect((-1...1).map { JSONValue($0).text } == ["-1", "0", "1"])
        #expect(JSONValue.integer(.max).text == "9223372036854775807")
        #expect(JSONValue.integer(.min).text == "-9223372036854775808")
    }
}

@Suite("JSON: strings", .timeLimit(.minutes(1)))
struct JSONStringTests {
    /// Eight bytes are checked together, so each position within eight is tried.
    @Test(
        "Characters that need an escape are escaped at every position, and no others are",
        arguments: (0..<20).flatMap { before in [0, 3, 12].map { (before, $0) } }
    )
    func escapes(before: Int, after: Int) throws {
        for scalar in (0..<0x100).compactMap({ Unicode.Scalar(UInt32($0)) }) + ["€", "😀"] {
            let letter = String(Character(scalar))
            let (left, right) = (
                String(repeating: "a", count: before), String(repeating: "\u{7f}", count: after)
            )
            let hex = String(scalar.value, radix: 16)
            let written =
                switch scalar {
                case "\"", "\\": "\\" + letter
                case "\u{8}": "\\b"
                case "\t": "\\t"
                case "\n": "\\n"
                case "\u{c}": "\\f"
                case "\r": "\\r"
                case "\0"..."\u{1f}": "\\u" + String(repeating: "0", count: 4 - hex.count) + hex
                default: letter
                }
            let value = JSONValue.string(left + letter + right)
            #expect(
                Array(value.text.unicodeScalars)
                    == Array("\"\(left)\(written)\(right)\"".unicodeScalars)
            )
            #expect(
                try JSONValue.parse(value.bytes).string?.utf8.elementsEqual(
                    (left + letter + right).utf8
                ) == true
            )
            if written.count > 1 {
                let isRefused = (try? JSONValue.parse("\"\(left)\(letter)\(right)\"")) == nil
                #expect(isRefused)
            }
        }
    }
}

/// The 318 cases of JSONTestSuite, from the folder that `JSON_TEST_SUITE` names.
@Suite(
    "JSON: JSONTestSuite",
    .timeLimit(.minutes(1)),
    .enabled(
        if: ProcessInfo.processInfo.environment["JSON_TEST_SUITE"] != nil,
        "JSON_TEST_SUITE names no folder"
    )
)
struct JSONTestSuiteTests {
    @Test("y_ cases are accepted, n_ cases refused, i_ cases do not crash, and every case is there")
    func verdicts() throws {
        let folder = try #require(ProcessInfo.processInfo.environment["JSON_TEST_SUITE"])
        let names = try FileManager.default.contentsOfDirectory(atPath: folder)
            .filter { $0.hasSuffix(".json") }.sorted()
        #expect(names.count == 318)
        for name in names {
            let data = try Data(contentsOf: URL(filePath: folder + "/" + name))
            let value = try? JSONValue.parse([UInt8](data))
            expectAgreement([UInt8](data))
            if name.hasPrefix("y_") { #expect(value != nil, "\(name)") }
            if name.hasPrefix("n_") { #expect(value == nil, "\(name)") }
            if let value { #expect(try JSONValue.parse(value.bytes) == value, "\(name)") }
        }
    }
}
