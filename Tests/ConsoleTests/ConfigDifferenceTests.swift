import JSON
import Testing

@testable import Console

@Suite("The difference between two templates", .timeLimit(.minutes(1)))
struct ConfigDifferenceTests {
    private typealias Change = ConfigDifference.Change
    private typealias Item = ConfigDifference.Item

    private let base: JSONObject = [
        "conditions": [
            ["name": "ios", "expression": "device.os == 'ios'", "tagColor": "BLUE"],
            ["name": "swiss", "expression": "device.country in ['ch']"],
        ],
        "parameters": [
            "welcome": [
                "defaultValue": ["value": "Hello"],
                "conditionalValues": ["ios": ["value": "Hi"], "swiss": ["useInAppDefault": true]],
                "valueType": "STRING",
            ],
            "old": ["defaultValue": ["value": "1"], "valueType": "NUMBER"],
        ],
        "parameterGroups": [
            "shop": [
                "description": "prices",
                "parameters": ["price": ["defaultValue": ["value": "190"], "valueType": "NUMBER"]],
            ]
        ],
    ]

    private func changed(_ change: (inout JSONObject) -> Void) -> JSONObject {
        var copy = base
        change(&copy)
        return copy
    }

    @Test("Equal templates have none, whatever the order of their parameters")
    func equal() {
        let other = changed { template in
            let parameters = template["parameters"]?.object ?? [:]
            template["parameters"] = .object(
                JSONObject(parameters.reversed().map { ($0.key, $0.value) })
            )
        }
        #expect(ConfigDifference(from: base, to: base).isEmpty)
        #expect(ConfigDifference(from: base, to: other).isEmpty)
    }

    @Test("Parameters are added, removed and changed, each property by itself")
    func parameters() {
        let other = changed { template in
            template["parameters"] = [
                "welcome": [
                    "defaultValue": ["value": "Hello"],
                    "conditionalValues": ["ios": ["value": "Hey"]],
                    "valueType": "STRING", "description": "at start-up",
                ],
                "new": ["defaultValue": ["useInAppDefault": true], "valueType": "STRING"],
            ]
        }
        let difference = ConfigDifference(from: base, to: other)
        #expect(
            difference.parameters == [
                Item(
                    kind: .removed,
                    name: "old",
                    changes: [
                        Change(property: "defaultValue", old: ["value": "1"], new: nil),
                        Change(property: "valueType", old: "NUMBER", new: nil),
                    ]
                ),
                Item(
                    kind: .changed,
                    name: "welcome",
                    changes: [
                        Change(
                            property: "conditionalValues/ios",
                            old: ["value": "Hi"],
                            new: ["value": "Hey"]
                        ),
                        Change(
                            property: "conditionalValues/swiss",
                            old: ["useInAppDefault": true],
                            new: nil
                        ),
                        Change(property: "description", old: nil, new: "at start-up"),
                    ]
                ),
                Item(
                    kind: .added,
                    name: "new",
                    changes: [
                        Change(property: "defaultValue", old: nil, new: ["useInAppDefault": true]),
                        Change(property: "valueType", old: nil, new: "STRING"),
                    ]
                ),
            ]
        )
        #expect(difference.conditions.isEmpty && difference.groups.isEmpty)
        #expect(difference.count(.added) == 1 && difference.count(.removed) == 1)
    }

    @Test("A parameter that moves into a group has changed its group alone")
    func groups() {
        let other = changed { template in
            template["parameters"] = ["old": base["parameters"]?["old"] ?? .null]
            template["parameterGroups"] = [
                "shop": [
                    "description": "prices",
                    "parameters": [
                        "price": base["parameterGroups"]?["shop"]?["parameters"]?["price"] ?? .null,
                        "welcome": base["parameters"]?["welcome"] ?? .null,
                    ],
                ],
                "empty": [:],
            ]
        }
        let difference = ConfigDifference(from: base, to: other)
        #expect(
            difference.parameters == [
                Item(
                    kind: .changed,
                    name: "welcome",
                    changes: [Change(property: "group", old: nil, new: "shop")]
                )
            ]
        )
        #expect(difference.groups == [Item(kind: .added, name: "empty", changes: [])])
        #expect(!difference.isEmpty)
    }

    @Test("The order of conditions counts, as it is their priority")
    func order() {
        let list = base["conditions"]?.array ?? []
        let reversed = changed { $0["conditions"] = .array(list.reversed()) }
        let difference = ConfigDifference(from: base, to: reversed)
        #expect(difference.items.isEmpty && difference.isReordered && !difference.isEmpty)
        // A condition that is put before the others leaves their order as it is.
        let first = changed { template in
            template["conditions"] = .array([["name": "new", "expression": "true"]] + list)
        }
        let added = ConfigDifference(from: base, to: first)
        #expect(!added.isReordered)
        #expect(added.conditions.map(\.kind) == [.added])
        let recoloured = changed { template in
            template["conditions"] = [
                ["name": "ios", "expression": "device.os == 'ios'", "tagColor": "PINK"], list[1],
            ]
        }
        #expect(
            ConfigDifference(from: base, to: recoloured).conditions.first?.changes == [
                Change(property: "tagColor", old: "BLUE", new: "PINK")
            ]
        )
    }

    @Test("Names are compared by bytes, as the template's reader does")
    func bytes() {
        let composed: JSONObject = ["parameters": ["a\u{E9}": ["valueType": "STRING"]]]
        let decomposed: JSONObject = ["parameters": ["ae\u{301}": ["valueType": "STRING"]]]
        let difference = ConfigDifference(from: composed, to: decomposed)
        #expect(difference.parameters.map(\.kind) == [.removed, .added])
    }

    @Test("Long values are cut, but their first difference is shown")
    func excerpts() {
        let short = ExcerptPair("old", "new")
        #expect(short.old == "old" && short.new == "new")
        let long = String(repeating: "x", count: 5000)
        let pair = ExcerptPair(long + "1" + long, long + "2" + long)
        #expect(pair.old != pair.new)
        #expect(pair.old?.contains("x1x") == true && pair.new?.contains("x2x") == true)
        #expect((pair.old?.count ?? 0) <= ExcerptPair.maximum + 2)
        let alone = ExcerptPair(nil, long)
        #expect(alone.old == nil && alone.new?.count == ExcerptPair.maximum + 1)
    }
}
