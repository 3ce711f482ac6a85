import HTTPServer
import JSON
import PushCore
import Registration
import Testing

@Suite(.timeLimit(.minutes(1)))
struct FieldChangesTests {
    private let object: JSONObject = [
        "badge": 4, "channels": ["a", "b"], "profile": ["city": "x", "old": true], "name": "n",
        "half": 1.7e308,
    ]

    @Test("Plain values replace, and keys that are not named stay")
    func plainValuesReplace() throws {
        let body: JSONObject = [
            "name": "m", "objectId": "stolen", "_azure": ["templates": [:]], "_azure.platform": "x",
        ]
        let changes = try FieldChanges(body, to: object)
        #expect(changes.object["name"] == "m")
        #expect(changes.object["_azure"] == nil)
        #expect(changes.object["badge"] == 4)
        #expect(changes.object["objectId"] == nil)
        #expect(changes.changed == ["name"])
    }

    @Test("Operations apply to the stored value, and to a missing one as in LeanCloud")
    func operations() throws {
        let changes = try FieldChanges(
            [
                "badge": ["__op": "Increment", "amount": 2],
                "visits": ["__op": "Increment"],
                "channels": ["__op": "AddUnique", "objects": ["b", "c"]],
                "tags": ["__op": "AddUnique", "objects": ["t"]],
                "gone": ["__op": "Remove", "objects": ["t"]],
                "name": ["__op": "Delete"],
                "bits": ["__op": "BitOr", "value": 6],
            ],
            to: object
        )
        #expect(changes.object["badge"] == 6)
        #expect(changes.object["visits"] == 1)
        #expect(changes.object["channels"] == ["a", "b", "c"])
        #expect(changes.object["tags"] == ["t"])
        #expect(changes.object["gone"] == [])
        #expect(changes.object["name"] == nil)
        #expect(changes.object["bits"] == 6)
        #expect(changes.results["badge"] == 6)
        #expect(changes.results["name"] == nil)
    }

    @Test("Long lists of an operation are joined in one pass, whatever the order of their members")
    func longLists() throws {
        let many = (0..<100_000).map { JSONValue($0) }
        let body: JSONObject = [
            "list": [
                "__op": "Batch",
                "ops": [
                    ["__op": "AddUnique", "objects": .array(many + many)],
                    ["__op": "Remove", "objects": .array(Array(many.dropFirst(2)))],
                    ["__op": "AddUnique", "objects": [["a": 1, "b": 2], ["b": 2, "a": 1]]],
                ],
            ]
        ]
        #expect(
            try FieldChanges(body, to: object).object["list"] == [0, 1, ["a": 1, "b": 2]]
        )
        let keys = JSONObject((0...1000).map { ("k\($0)", JSONValue.null) })
        let error = #expect(throws: LeanCloudError.self) { try FieldChanges(keys, to: [:]) }
        #expect(error?.code == 116)
    }

    @Test("A batch of operations on one key runs in its order")
    func batchedOperations() throws {
        let changes = try FieldChanges(
            [
                "channels": [
                    "__op": "Batch",
                    "ops": [
                        ["__op": "Add", "objects": ["c"]],
                        ["__op": "Remove", "objects": ["a"]],
                    ],
                ]
            ],
            to: object
        )
        #expect(changes.object["channels"] == ["b", "c"])
    }

    @Test("A dotted key changes only its path")
    func dottedKeys() throws {
        let changes = try FieldChanges(
            [
                "profile.city": "y", "profile.n": ["__op": "Increment", "amount": 3],
                "profile.old": ["__op": "Delete"], "deep.er.still": 1,
            ],
            to: object
        )
        #expect(changes.object["profile"] == ["city": "y", "n": 3])
        #expect(changes.object["deep"] == ["er": ["still": 1]])
        #expect(changes.changed == ["profile", "deep"])
    }

    @Test(
        "An invalid change is refused by its key",
        arguments: [
            (["name": ["__op": "Increment"]], 111, "name"),
            (["badge": ["__op": "Add", "objects": [1]]], 111, "badge"),
            (["channels": ["__op": "Add", "objects": "x"]], 111, "channels"),
            (["name.first": "x"], 111, "name.first"), (["a..b": 1], 105, "a..b"),
            (["friends": ["__op": "AddRelation", "objects": []]], 1, "AddRelation"),
            (["badge": ["__op": 7]], 111, "badge"),
            (
                ["half": ["__op": "Increment", "amount": 1.7e308]], 111, "half"
            ),
            (["badge": ["__op": "Increment", "amount": 9_223_372_036_854_775_807]], 111, "badge"),
        ] as [(JSONObject, Int, String)]
    )
    func unusableChanges(body: JSONObject, code: Int, culprit: String) {
        let error = #expect(throws: LeanCloudError.self) { try FieldChanges(body, to: object) }
        #expect(error?.code == code)
        #expect(error?.description.contains(culprit) == true)
    }
}
