import Foundation
import JSON
import Testing

@Suite("JSON: reading in place", .timeLimit(.minutes(1)))
struct JSONReaderTests {
    @Test("A known shape is read by its keys, and other members are skipped")
    func knownShape() throws {
        let text = """
            {"id":"a","more":{"id":[1,{"id":"no"}]},"count":7,"share":0.5,"on":true,"off":null,
             "list":["x",2,"y"],"na\\u006de":"escaped","last":"é\\n"}
            """
        var (id, name, last) = ("", "", "")
        var (count, share, isOn, isOff) = (0, 0.0, false, false)
        var list: [String?] = []
        var keys: [String] = []
        let isObject = try JSONReader.read(Array(text.utf8)) { reader throws(JSONError) in
            try reader.object { key, reader throws(JSONError) in
                keys.append(key.text)
                if key.isEqual(to: "id") {
                    id = try reader.string() ?? "none"
                } else if key.isEqual(to: "count") {
                    count = try reader.integer() ?? -1
                } else if key.isEqual(to: "share") {
                    share = try reader.double() ?? -1
                } else if key.isEqual(to: "on") {
                    isOn = try reader.bool() ?? false
                } else if key.isEqual(to: "off") {
                    isOff = try reader.null()
                } else if key.isEqual(to: "list") {
                    try reader.array { element throws(JSONError) in
                        list.append(try element.string())
                    }
                } else if key.isEqual(to: "name") {
                    name = try reader.string() ?? "none"
                } else if key.isEqual(to: "last") {
                    last = try reader.string() ?? "none"
                }
            }
        }
        #expect(isObject)
        #expect((id, name, last) == ("a", "escaped", "é\n"))
        #expect((count, share) == (7, 0.5))
        #expect(isOn && isOff)
        #expect(list == ["x", nil, "y"])
        #expect(
            keys == ["id", "more", "count", "share", "on", "off", "list", "name", "last"]
        )
    }

    @Test("A value of another kind reads as nil, and the next one can be read")
    func otherKinds() throws {
        let text = #"[{"a":1},[1],"s",1,1.5,true,null]"#
        var found: [String] = []
        try JSONReader.read(Array(text.utf8)) { reader throws(JSONError) in
            for _ in 0..<1 {
                try reader.array { element throws(JSONError) in
                    switch found.count % 4 {
                    case 0: found.append("\(try element.string() ?? "-")")
                    case 1: found.append("\(try element.integer().map(String.init) ?? "-")")
                    case 2: found.append("\(try element.bool().map(String.init) ?? "-")")
                    default: found.append("\(try element.null())")
                    }
                }
            }
        }
        #expect(found == ["-", "-", "-", "false", "-", "-", "-"])
        let isObject = try JSONReader.read(Array("[1]".utf8)) { reader throws(JSONError) in
            try reader.object { _, _ throws(JSONError) in }
        }
        #expect(!isObject)
    }

    @Test("The last of duplicate keys wins, and a slice is a valid text by itself")
    func duplicatesAndSlices() throws {
        let bytes = Array(#" {"a":1, "b": {"c":[2]} ,"a":3} "#.utf8)
        var a: Int?
        var b = 0..<0
        try JSONReader.read(bytes) { reader throws(JSONError) in
            try reader.object { key, reader throws(JSONError) in
                if key.isEqual(to: "a") { a = try reader.integer() }
                if key.isEqual(to: "b") { b = try reader.slice() }
            }
        }
        #expect(a == 3)
        #expect(try JSONValue.parse(Array(bytes[b])) == ["c": [2]])
    }

    @Test("A caught error is thrown again, and so is one in a part that was not read")
    func errorsStay() {
        for text in [#"{"a":[1,]}"#, #"{"a":1,"b":tru}"#, "[1] 2", "{\"a\":1"] {
            let error = #expect(throws: JSONError.self) {
                try JSONReader.read(Array(text.utf8)) { reader throws(JSONError) in
                    _ = try? reader.skip()
                }
            }
            let own = #expect(throws: JSONError.self) { try JSONValue.parse(text) }
            #expect(error == own, "\(text)")
        }
    }

    @Test("Depth and size are bounded like the tree's")
    func bounds() {
        for depth in [63, 64, 65] {
            let (left, right) = (UInt8(ascii: "["), UInt8(ascii: "]"))
            expectAgreement(
                Array(repeating: left, count: depth) + Array(repeating: right, count: depth)
            )
        }
        #expect(throws: JSONError(offset: 3, line: 1, expected: .fewerBytes)) {
            try JSONReader.read(Array("1234".utf8), maximumBytes: 3) {
                reader throws(JSONError) in try reader.skip()
            }
        }
    }

    @Test("Reader and tree accept and refuse the same bytes with the same errors")
    func agreement() {
        let record = Array(
            """
            {"id":"0b8b-é😀","a":[1,-0,1.5e3,123456789012345678901,1e400,{"\\u0061":null}],
             "t":"Zo\\u00eb \\uD83D\\uDE00\\n","":{},"l":[],"yes":true,"no":false,
             "long":"aaaaaaaaaaaaaaaaaé"}
            """.utf8
        )
        expectAgreement(record)
        expectAgreement([])
        for length in record.indices { expectAgreement(Array(record[..<length])) }
        var random = SystemRandomNumberGenerator()
        let bytes: [UInt8] =
            Array(#"{}[]",:\u0dDeE+-.19tfn"#.utf8) + [0, 0x1F, 0x80, 0xC0, 0xED, 0xFF]
        for _ in 0..<20_000 {
            var mutated = record
            for _ in 0..<Int.random(in: 1...3, using: &random) {
                let place = Int.random(in: mutated.indices, using: &random)
                switch Int.random(in: 0..<3, using: &random) {
                case 0: mutated[place] = bytes.randomElement(using: &random) ?? 0
                case 1: mutated.remove(at: place)
                default: mutated.insert(bytes.randomElement(using: &random) ?? 0, at: place)
                }
            }
            expectAgreement(mutated)
        }
    }
}

/// Expects skipping, reading a tree and typed reads to agree with the tree.
func expectAgreement(_ bytes: [UInt8], _ location: SourceLocation = #_sourceLocation) {
    let tree = Result { try JSONValue.parse(bytes) }
    let walked = Result {
        try JSONReader.read(bytes) { reader throws(JSONError) in try walk(&reader) }
    }
    let skipped = Result {
        try JSONReader.read(bytes) { reader throws(JSONError) in try reader.skip() }
    }
    switch tree {
    case .success(let value):
        #expect((try? walked.get()) == value, "\(bytes)", sourceLocation: location)
        #expect((try? skipped.get()) != nil, "\(bytes)", sourceLocation: location)
    case .failure(let error):
        let error = error as? JSONError
        for other in [walked.failure, skipped.failure] {
            #expect(other == error, "\(bytes)", sourceLocation: location)
        }
    }
}

extension Result {
    fileprivate var failure: JSONError? {
        guard case .failure(let error) = self else { return nil }
        return error as? JSONError
    }
}

/// Builds the tree from a reader's typed reads.
private func walk(_ reader: inout JSONReader) throws(JSONError) -> JSONValue {
    switch reader.kind {
    case .object:
        var object = JSONObject()
        try reader.object { key, reader throws(JSONError) in
            object[key.text] = try walk(&reader)
        }
        return .object(object)
    case .array:
        var array: [JSONValue] = []
        try reader.array { element throws(JSONError) in array.append(try walk(&element)) }
        return .array(array)
    case .string: return try reader.string().map(JSONValue.string) ?? .null
    case .boolean: return try reader.bool().map(JSONValue.bool) ?? .null
    case .null: return try reader.null() ? .null : "null was not told"
    case .number, .none: return try reader.tree()
    }
}
