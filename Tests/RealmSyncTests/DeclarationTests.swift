import JSON
import RealmSync
import Testing

/// The members that a declared type adds.
@Suite(.timeLimit(.minutes(1)))
struct DeclarationTests {
    private static let schema: JSONValue = [
        "type": "object",
        "properties": [
            "_id": ["type": "string"],
            "tags": ["type": "array"],
            "maybe": ["type": ["array", "null"]],
            "count": ["type": "integer"],
            "ratio": ["type": ["number", "null"]],
            "isOn": ["type": "boolean"],
            "name": ["type": "string"],
            "at": ["type": "string", "format": "date-time"],
            "free": ["type": "string"],
            "map": ["type": "object", "additionalProperties": ["type": "integer"]],
            "place": [
                "type": "object",
                "properties": ["x": ["type": "integer"], "l": ["type": "array"]],
                "required": ["x"],
            ],
            "places": [
                "type": "array",
                "items": ["type": "object", "properties": ["l": ["type": "array"]]],
            ],
            "byName": [
                "type": "object",
                "additionalProperties": ["type": "object", "properties": ["l": ["type": "array"]]],
            ],
        ],
        "required": ["_id", "count", "ratio", "isOn", "name", "at", "map", "unknown"],
    ]

    @Test("Empty collections and required fields are filled, others stay absent")
    func filled() {
        let declaration = RealmDeclaration(schema: Self.schema)
        let filled = declaration.filled(["_id": "a"])
        #expect(
            .object(filled) == [
                "_id": "a", "tags": [], "maybe": [], "count": 0, "ratio": .null, "isOn": false,
                "name": "", "at": "1970-01-01T00:00:00Z", "map": [:], "places": [],
            ] as JSONValue
        )
    }

    @Test("Values that are there stay, and embedded objects are filled, too")
    func inside() {
        let declaration = RealmDeclaration(schema: Self.schema)
        let filled = declaration.filled([
            "_id": "a", "count": .null, "name": "n", "place": [:], "places": [["l": [1]], [:]],
            "byName": ["h": [:]],
        ])
        #expect(filled["count"] == .null && filled["name"] == "n")
        #expect(filled["place"] == ["x": 0, "l": []])
        #expect(filled["places"] == [["l": [1]], ["l": []]])
        #expect(filled["byName"] == ["h": ["l": []]])
    }

    @Test("Atlas' types have their own defaults")
    func atlas() {
        let kinds = ["objectId", "uuid", "date", "decimal", "long", "bool", "object", "array"]
        let schema: JSONValue = [
            "bsonType": "object",
            "properties": .object(
                JSONObject(kinds.map { ($0, ["bsonType": .string($0)] as JSONValue) })
            ),
            "required": .array(kinds.map(JSONValue.string)),
        ]
        #expect(
            .object(RealmDeclaration(schema: schema).filled([:])) == [
                "objectId": "000000000000000000000000",
                "uuid": "00000000-0000-0000-0000-000000000000",
                "date": "1970-01-01T00:00:00Z", "decimal": "0", "long": 0, "bool": false,
                "object": [:], "array": [],
            ] as JSONValue
        )
    }

    @Test("A schema without properties, and one that is too deep, fill nothing")
    func nothing() {
        #expect(RealmDeclaration(schema: true).filled(["a": 1]) == ["a": 1])
        var schema: JSONValue = ["type": "array"]
        for _ in 0..<200 { schema = ["type": "object", "properties": ["a": schema]] }
        #expect(RealmDeclaration(schema: schema).filled(["a": ["a": 1]]) == ["a": ["a": 1]])
    }
}
