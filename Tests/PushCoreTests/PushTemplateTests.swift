import JSON
import PushCore
import Testing

@Suite("Placeholders in a push's texts", .timeLimit(.minutes(1)))
struct PushTemplateTests {
    private func filled(_ text: String) -> String? {
        PushTemplate.replacing(["alert": .string(text)]) { "<\($0.field)/\($0.fallback)>" }[
            "alert"
        ]?
        .string
    }

    @Test(
        "A field's name in double braces is a placeholder, with its fallback",
        arguments: [
            ("Hi {{name}}!", "Hi <name/>!"), ("{{ name }}", "<name/>"),
            ("{{name|you there}}", "<name/you there>"), ("{{a.b_c.D1|}}", "<a.b_c.D1/>"),
            ("{{a}}{{b}}", "<a/><b/>"), ("{{{a}}}", "{<a/>}"), ("é{{a}}é", "é<a/>é"),
            ("{{a|{b}}}", "<a/{b>}"), ("{{|{{}}name}}", "{{name}}"), ("{{_x}}", "<_x/>"),
        ]
    )
    func placeholders(text: String, result: String) {
        #expect(filled(text) == result)
    }

    @Test(
        "Anything else in braces stays unchanged",
        arguments: [
            "{{}}", "{{ }}", "{{1a}}", "{{a-b}}", "{{a..b}}", "{{a.}}", "{{name", "{name}",
            "{{name}",
            "{{#if}}", "{{a b}}", "}}{{", "{", "{{", "{{a|b",
            "{{\(String(repeating: "a", count: 129))}}",
            "{{a|\(String(repeating: "b", count: 257))}}",
        ]
    )
    func literals(text: String) {
        #expect(filled(text) == text)
    }

    @Test("All texts of data have placeholders, except those that all devices must share")
    func places() {
        let data: JSONObject = [
            "alert": ["title": "{{a}}", "loc-args": ["{{b}}", 1]], "k": ["deep": ["{{c}}"]],
            "ios": ["alert": "{{d}}", "collapse-id": "{{e}}"], "collapse-id": "{{f}}",
            "apns-push-type": "{{g}}", "n": 7, "again": "{{a}}",
        ]
        #expect(PushTemplate.fields(of: data) == ["a", "b", "c", "d"])
        let replaced = PushTemplate.replacing(data) { $0.field.uppercased() }
        #expect(
            replaced == [
                "alert": ["title": "A", "loc-args": ["B", 1]], "k": ["deep": ["C"]],
                "ios": ["alert": "D", "collapse-id": "{{e}}"], "collapse-id": "{{f}}",
                "apns-push-type": "{{g}}", "n": 7, "again": "A",
            ]
        )
    }

    @Test("A text that is built to be slow is filled in linear time")
    func hostile() {
        for text in ["{", "{{a|", "{{a", "{{a|}"] {
            let long = String(repeating: text, count: 1_000_000 / text.utf8.count)
            #expect(filled(long) == long)
        }
    }

    @Test("A push lists each field once, within a bound")
    func request() throws {
        let request = try PushRequest.parse(
            ["data": ["alert": "{{a}} {{b|x}} {{a}}"]],
            now: .now()
        )
        #expect(request.templateFields == ["a", "b"])
        let many = (0...32).map { "{{f\($0)}}" }.joined()
        let error = #expect(throws: PushRequestError.self) {
            try PushRequest.parse(["data": ["alert": .string(many)]], now: .now())
        }
        #expect(error?.field == "data")
    }
}
