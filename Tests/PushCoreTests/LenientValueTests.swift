import JSON
import PushCore
import Testing

@Suite("Values in every form that clients write", .timeLimit(.minutes(1)))
struct LenientValueTests {
    private let now = Instant(seconds: 1_800_000_000)

    private func parse(_ text: String) throws -> PushRequest {
        try PushRequest.parse(try #require(try JSONValue.parse(text).object), now: now)
    }

    private func problem(_ text: String) throws -> String {
        do {
            _ = try parse(text)
            return ""
        } catch let error as PushRequestError {
            return error.description
        }
    }

    @Test("A whole number is 3, 3.0, 3e0 or \"3\", and nothing else")
    func wholeNumbers() throws {
        for text in ["3", "3.0", "3e0", "300e-2", #""3""#] {
            #expect(try JSONValue.parse(text).wholeNumber == 3)
        }
        #expect(JSONValue.string("-3").wholeNumber == -3)
        for value: JSONValue in [
            3.5, "3.5", "", "+3", " 3", "0x3", "3e0", "١", true, .null, [], [:],
            .string(String(repeating: "9", count: 40)),
        ] {
            #expect(value.wholeNumber == nil, "\(value)")
        }
        #expect(JSONValue.string("3600.5").realNumber == 3600.5)
        for value: JSONValue in ["nan", "inf", "1e3", "3.", ".3", "-", true] {
            #expect(value.realNumber == nil, "\(value)")
        }
    }

    @Test("A flag is a boolean, 0 or 1, or one of them as a string")
    func flags() {
        for value: JSONValue in [true, 1, 1.0, "1", "true"] { #expect(value.flag == true) }
        for value: JSONValue in [false, 0, 0.0, "0", "false"] { #expect(value.flag == false) }
        for value: JSONValue in [2, "yes", "", .null, [], -1] { #expect(value.flag == nil) }
    }

    @Test("A push's numbers are accepted in each form", arguments: ["1200", "1200.0", #""1200""#])
    func fields(_ number: String) throws {
        #expect(try parse(#"{"data": {}, "flow_control": \#(number)}"#).pace == 1200)
        #expect(try parse(#"{"data": {}, "pace": \#(number)}"#).pace == 1200)
        #expect(try parse(#"{"data": {}, "spread": \#(number)}"#).spreadMilliseconds == 1_200_000)
        #expect(
            try parse(#"{"data": {}, "expiration_interval": \#(number)}"#).expiration
                == .afterSeconds(1200)
        )
    }

    @Test("A label may be a number, as LeanCloud's clients write it")
    func label() throws {
        #expect(try parse(#"{"data": {}, "notification_id": 12}"#).notificationLabel == "12")
    }

    @Test("An error repeats the choice, number or time that it rejects")
    func repeats() throws {
        for (text, word) in [
            (#""prod": "staging""#, #"not "staging""#),
            (#""priority": "urgent""#, #"not "urgent""#),
            (#""platforms": ["adm"]"#, #"not "adm""#), (#""sdk": "cordova""#, #"not "cordova""#),
            (#""push_time": "soon""#, #"not "soon""#), (#""pace": 0"#, "not 0"),
            (#""expiration_time": "tomorrow""#, #"not "tomorrow""#),
            (#""expiration_interval": -1"#, "not -1"), (#""spread": 90000"#, "not 90000"),
        ] {
            #expect(try problem(#"{"data": {}, \#(text)}"#).contains(word), "\(text)")
        }
        for (text, word) in [
            (#""badge": "many""#, #"not "many""#), (#""content-available": 2"#, "not 2"),
            (#""apns-priority": 7"#, "not 7"), (#""silent": []"#, "not an array"),
        ] {
            #expect(try problem(#"{"data": {\#(text)}}"#).contains(word), "\(text)")
        }
        // Text for people is never repeated.
        #expect(try !problem(#"{"data": {"alert": 12345}}"#).contains("12345"))
    }

    @Test("A value in an error is one short line")
    func shown() {
        let shown = JSONValue.string("a\n\"b\u{0}" + String(repeating: "ž", count: 500)).shown
        #expect(shown.utf8.count < 80)
        #expect(!shown.utf8.contains(10) && !shown.utf8.contains(0))
    }
}
