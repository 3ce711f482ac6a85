import JSON
import Testing

@Suite("JSON: elements of an array, cut before parsing", .timeLimit(.minutes(1)))
struct JSONSlicesTests {
    private func texts(_ text: String, limit: Int = 100) -> [String]? {
        let bytes = Array(text.utf8)
        return JSONSlices.elements(of: bytes, limit: limit)?
            .map { String(decoding: bytes[$0], as: UTF8.self) }
    }

    @Test(
        "Each element is cut at its end, whatever it contains",
        arguments: [
            ("[]", []), (" [ ] ", []), ("[1]", ["1"]), ("[ 1 , 2 ]", ["1", "2"]),
            (
                #"[{"a": NaN}, {"b": [1, {"c": "]},\""}]}]"#,
                [
                    #"{"a": NaN}"#, #"{"b": [1, {"c": "]},\""}]}"#,
                ]
            ),
            (#"["\ud83d", 'x y', -Infinity]"#, [#""\ud83d""#, "'x y'", "-Infinity"]),
            ("[[[[]]],\n{}\n]", ["[[[]]]", "{}"]),
        ]
    )
    func elements(text: String, expected: [String]) {
        #expect(texts(text) == expected)
    }

    @Test(
        "Text that is not one closed array has no elements",
        arguments: [
            "", "[", "[1", "[1]]", "[1] 2", "{}", "1", #"["a]"#, #"["a\"#, "[1}", "]", "[{]",
            "[1,,2]", "[1,]", "[,]",
            #"["a\"]"#,
        ]
    )
    func notAnArray(text: String) {
        #expect(texts(text) == nil)
    }

    @Test("More elements than the limit give no elements at all")
    func limit() {
        #expect(texts("[1,2,3]", limit: 3)?.count == 3)
        #expect(texts("[1,2,3]", limit: 2) == nil)
    }

    @Test("Members are cut by their keys, with escapes resolved and the last of equal keys last")
    func members() {
        let bytes = Array(
            #" { "b\u0061tch" : [1, NaN] , "x": {"y": ","}, "x":2}"#.utf8
        )
        let members = JSONSlices.members(of: bytes, limit: 10)
        #expect(members?.map(\.key) == ["batch", "x", "x"])
        #expect(
            members?.map { String(decoding: bytes[$0.value], as: UTF8.self) }
                == ["[1, NaN]", #"{"y": ","}"#, "2"]
        )
        let batch = members?.first?.value
        #expect(JSONSlices.elements(of: bytes, in: batch, limit: 10)?.count == 2)
        for text in ["[1]", #"{"\ud800": 1}"#, #"{"a" 1}"#, "{a: 1}"] {
            #expect(JSONSlices.members(of: Array(text.utf8), limit: 10) == nil)
        }
    }

    @Test("Text that can be parsed is cut into the same elements")
    func agreesWithParsing() throws {
        var random = SystemRandomNumberGenerator()
        for _ in 0..<2000 {
            let value = JSONValue.array(
                (0..<Int.random(in: 0...5, using: &random)).map { _ in
                    made(level: 0, &random)
                }
            )
            let bytes = value.bytes
            let slices = try #require(JSONSlices.elements(of: bytes, limit: 10))
            let parsed = try slices.map { try JSONValue.parse(Array(bytes[$0])) }
            #expect(JSONValue.array(parsed) == value)
        }
    }

    private func made(level: Int, _ random: inout SystemRandomNumberGenerator) -> JSONValue {
        switch Int.random(in: 0...(level < 4 ? 5 : 3), using: &random) {
        case 0: return .integer(Int64.random(in: -9...9, using: &random))
        case 1:
            return .string(["\"", "\\", "],", "{\"", "é", ""].randomElement(using: &random) ?? "")
        case 2: return .bool(true)
        case 3: return .null
        case 4: return .array((0..<2).map { _ in made(level: level + 1, &random) })
        default:
            return .object(
                JSONObject((0..<2).map { ("k\($0)}", made(level: level + 1, &random)) })
            )
        }
    }
}
