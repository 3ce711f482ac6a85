import JSON
import Support
import Testing

@Suite("JSON: hostile keys", .timeLimit(.minutes(1)), .serialized)
struct HostileKeyTests {
    private func object(of keys: [String]) -> [UInt8] {
        JSONObject(keys.map { ($0, .null) }).bytes
    }

    @Test("Keys that are equivalent to each other cost as much as others of their size")
    func equivalentKeys() throws {
        let hostile = HostileText.keys(1000), benign = HostileText.benignKeys(1000)
        #expect(hostile[0] == hostile[999], "no flood: the keys are not equivalent")
        let (cheap, dear) = (object(of: benign), object(of: hostile))
        #expect(cheap.count == dear.count)
        let ratio = HostileText.costRatio(
            of: { _ = try? JSONValue.parse(dear) },
            to: { _ = try? JSONValue.parse(cheap) }
        )
        #expect(ratio < 20)
        #expect(try JSONValue.parse(dear).object?.count == 1000)
    }

    @Test("Removing all members one by one costs a small multiple of adding them")
    func removal() {
        let keys = (0..<8000).map { "key \($0)" }
        let full = JSONObject(keys.map { ($0, .null) })
        let ratio = HostileText.costRatio(
            of: {
                var object = full
                for key in keys { object.removeValue(forKey: key) }
            },
            to: { _ = JSONObject(keys.map { ($0, .null) }) }
        )
        #expect(ratio < 20)
    }

    @Test(
        "A string of marks alone is refused in every notation, and a stack of marks is accepted"
    )
    func marks() throws {
        let (tower, stack) = (HostileText.tower(200), HostileText.tower(CombiningMarkRun.maximum))
        let escaped = tower.unicodeScalars.map { scalar in
            let digits = String(scalar.value, radix: 16)
            return "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }.joined()
        for text in [tower, String(repeating: "x", count: 5000) + tower + "x", escaped] {
            let json = Array("[\"\(text)\"]".utf8)
            #expect(throws: JSONError(offset: 2, line: 1, expected: .fewerMarks)) {
                try JSONValue.parse(json)
            }
            #expect(throws: JSONError(offset: 2, line: 1, expected: .fewerMarks)) {
                try JSONReader.read(json) { reader throws(JSONError) in try reader.skip() }
            }
            #expect(try JSONValue.parse(json, maximumMarks: .max)[0]?.string?.isEmpty == false)
        }
        let many = String(repeating: stack, count: 50)
        #expect(try JSONValue.parse("[\"\(many)\"]")[0] == .string(many))
    }

    @Test("The number of values is bounded, whether they are read or skipped")
    func values() throws {
        let text = Array("[[],{\"a\":1,\"b\":[2]},\"x\",null]".utf8)
        #expect(try JSONValue.parse(text, maximumValues: 8).array?.count == 4)
        #expect(throws: JSONError.self) { try JSONValue.parse(text, maximumValues: 7) }
        #expect(throws: JSONError.self) {
            try JSONReader.read(text, maximumValues: 7) { reader throws(JSONError) in
                try reader.skip()
            }
        }
    }
}
