import JSON
import JSONSchema
import PushCore
import Testing

@testable import Ingest

@Suite(.timeLimit(.minutes(1)))
struct ObjectReaderTests {
    private static func type(_ schema: JSONValue = ["type": "object"]) throws -> KnownType {
        var schema = schema.object ?? [:]
        var properties = schema["properties"]?.object ?? [:]
        properties["_id"] = ["type": "string"]
        schema["properties"] = .object(properties)
        schema["required"] = ["_id"]
        return KnownType(
            name: "Thing",
            version: 1,
            schema: try ObjectSchema(JSONValue.object(schema).bytes, type: "Thing"),
            builtIn: nil
        )
    }

    private static func read(
        _ text: String,
        isExtended: Bool = false,
        missingID: String? = nil
    ) throws -> (id: String, object: JSONObject) {
        let reader = ObjectReader(
            type: try type(),
            checker: SchemaChecker(),
            isExtended: isExtended
        )
        return try reader.read(try JSONValue.parse(text)) { missingID }
    }

    private static func refusal(_ text: String, isExtended: Bool = false) throws -> RefusedObject {
        do {
            _ = try read(text, isExtended: isExtended)
        } catch let refused as RefusedObject {
            return refused
        }
        Issue.record("taken: \(text.prefix(100))")
        return RefusedObject(pointer: "?", reason: "?")
    }

    @Test(
        "An id is an ObjectId or a UUID in any case, stored in lower case",
        arguments: [
            (#"{"_id": "507F1F77BCF86CD799439011"}"#, "507f1f77bcf86cd799439011"),
            (#"{"_id": {"$oid": "507f1f77bcf86cd799439011"}}"#, "507f1f77bcf86cd799439011"),
            (
                #"{"_id": "0F8FAD5B-D9CB-469F-A165-70867728950E"}"#,
                "0f8fad5b-d9cb-469f-a165-70867728950e"
            ),
        ]
    )
    func ids(_ text: String, _ id: String) throws {
        let (known, object) = try Self.read(text)
        #expect(known == id)
        #expect(object["_id"] == .string(id))
    }

    @Test(
        "An invalid id is refused at /_id",
        arguments: [
            "{}", #"{"_id": 7}"#, #"{"_id": ""}"#, #"{"_id": "507f1f77bcf86cd79943901"}"#,
            #"{"_id": "507f1f77bcf86cd79943901g"}"#, #"{"_id": {"$oid": "x"}}"#,
            #"{"_id": "0f8fad5b-d9cb-469f-a165-70867728950"}"#,
            #"{"_id": "0f8fad5bxd9cb-469f-a165-70867728950e"}"#,
            #"{"_id": "５07f1f77bcf86cd799439011"}"#,
        ]
    )
    func noID(_ text: String) throws {
        #expect(try Self.refusal(text).pointer == "/_id")
    }

    @Test("U+0000 in a string or a name is refused with its place")
    func nul() throws {
        let id = #""_id": "507f1f77bcf86cd799439011""#
        #expect(try Self.refusal("{\(id), \"a\": [1, \"x\\u0000\"]}").pointer == "/a/1")
        let named = try Self.refusal("{\(id), \"a/b\": {\"c\\u0000\": 1}}")
        #expect(named.pointer == "/a~1b/c\u{0}")
        #expect(named.id == "507f1f77bcf86cd799439011")
    }

    @Test("An object has at most 32 levels, including itself")
    func levels() throws {
        func text(_ levels: Int) -> String {
            let open = String(repeating: "[", count: levels - 1)
            let close = String(repeating: "]", count: levels - 1)
            return #"{"_id": "507f1f77bcf86cd799439011", "a": \#(open)\#(close)}"#
        }
        _ = try Self.read(text(32))
        #expect(try Self.refusal(text(33)).pointer == "/a" + String(repeating: "/0", count: 31))
    }

    @Test("Numbers in a short notation count with their stored length")
    func numbers() throws {
        let id = #""_id": "507f1f77bcf86cd799439011""#
        _ = try Self.read("{\(id), \"a\": [1e308, 1e-300, 1e400, 12345678901234567890]}")
        #expect(try Self.refusal("{\(id), \"a\": [1, 1e131071]}").pointer == "/a/1")
        let many = Array(repeating: "1e308", count: 1000).joined(separator: ",")
        #expect(try Self.refusal("{\(id), \"a\": [\(many)]}").pointer.hasPrefix("/a/"))
    }

    @Test("Wrappers of extended JSON are removed before an object is validated")
    func extended() throws {
        let (_, object) = try Self.read(
            """
            {"_id": {"$oid": "507f1f77bcf86cd799439011"}, "int": {"$numberInt": "2"},
             "long": {"$numberLong": "9007199254740993"}, "double": {"$numberDouble": "66.7"},
             "decimal": {"$numberDecimal": "29.65"}, "plain": {"a": [{"$numberInt": "1"}]},
             "date": {"$date": {"$numberLong": "1700000000123"}},
             "text": {"$date": "2026-11-25T05:00:00Z"},
             "stamp": {"$timestamp": {"t": 1700000000, "i": 1}},
             "uuid": {"$binary": {"base64": "D4+tW9nLRp+hZXCGdyiVDg==", "subType": "04"}}}
            """,
            isExtended: true
        )
        let wanted: JSONValue = [
            "_id": "507f1f77bcf86cd799439011", "int": 2, "long": 9_007_199_254_740_993,
            "double": 66.7, "decimal": "29.65", "plain": ["a": [1]],
            "date": "2023-11-14T22:13:20.123Z", "text": "2026-11-25T05:00:00Z",
            "stamp": "2023-11-14T22:13:20.000Z",
            "uuid": "0f8fad5b-d9cb-469f-a165-70867728950e",
        ]
        #expect(JSONValue.object(object) == wanted)
    }

    @Test(
        "A wrapper with an invalid value is refused with its place",
        arguments: [
            #"{"$numberInt": "2147483648"}"#, #"{"$numberDouble": "NaN"}"#, #"{"$date": "today"}"#,
            #"{"$oid": "12"}"#, #"{"$code": "x"}"#, #"{"$numberLong": 3}"#,
            #"{"$date": {"$numberLong": "9223372036854775807"}}"#, #"{"$minKey": 1}"#,
            #"{"$numberDouble": "Infinity"}"#, #"{"$timestamp": {"t": -1, "i": 1}}"#,
            #"{"$timestamp": {"t": 1, "i": 4294967296}}"#, #"{"$maxKey": 1}"#,
            #"{"$regularExpression": {"pattern": "x", "options": ""}}"#, #"{"$undefined": true}"#,
        ]
    )
    func brokenWrappers(_ wrapper: String) throws {
        let text = #"{"_id": "507f1f77bcf86cd799439011", "a": [\#(wrapper)]}"#
        #expect(try Self.refusal(text, isExtended: true).pointer == "/a/0")
    }
}
