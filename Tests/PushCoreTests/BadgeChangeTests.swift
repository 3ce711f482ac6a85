import JSON
import PushCore
import Testing

@Suite("Badge changes of a push", .timeLimit(.minutes(1)))
struct BadgeChangeTests {
    @Test("LeanCloud's and Parse's forms increment and decrement, and a number does neither")
    func forms() {
        let cases: [(JSONValue, Int?)] = [
            ("Increment", 1), ("increment", 1), (["__op": "Increment"], 1),
            (["__op": "Increment", "amount": 5], 5), (["__op": "Increment", "amount": -2], -2),
            (["__op": "Decrement", "amount": 3], -3), (["__op": "Delete"], nil),
            (["__op": "Increment", "amount": 1.5], nil), (["amount": 1], nil),
            (["__op": "Increment", "amount": 1_000_001], nil),
            (["__op": "Increment", "by": 1], nil), (3, nil), ("Decrement", nil), ("", nil),
            (.null, nil), (true, nil),
        ]
        for (value, amount) in cases {
            #expect(BadgeChange(value)?.amount == amount, "\(value)")
        }
    }

    private func amounts(_ object: JSONObject) throws -> [Platform: Int] {
        try PushRequest.parse(object, now: .now()).badgeChanges.mapValues(\.amount)
    }

    @Test("A badge that is set becomes the number, whatever it was")
    func setting() {
        let change = BadgeChange(["__op": "Set", "amount": 7])
        #expect(change?.applied(to: 3) == 7)
        #expect(change?.applied(to: 2_000_000_000) == 7)
        for amount in [-1, 2_147_483_648, .null, "7", 1.5] as [JSONValue] {
            #expect(BadgeChange(["__op": "Set", "amount": amount]) == nil)
        }
    }

    @Test("A badge is never negative, nor above the stored maximum")
    func bounds() {
        #expect(BadgeChange(amount: 2).applied(to: 3) == 5)
        #expect(BadgeChange(amount: -5).applied(to: 3) == 0)
        #expect(BadgeChange(amount: 5).applied(to: 2_147_483_645) == 2_147_483_647)
    }

    @Test("Each platform's own part of data decides its change, and native payloads change nothing")
    func platforms() throws {
        #expect(
            try amounts(["data": ["badge": "Increment"]])
                == [.apns: 1, .fcm: 1, .wns: 1, .mpns: 1, .connection: 1]
        )
        #expect(try amounts(["data": ["badge": 3, "ios": ["badge": "Increment"]]]) == [.apns: 1])
        #expect(
            try amounts([
                "data": ["badge": "Increment", "ios": ["badge": 3], "android": ["badge": .null]]
            ]) == [.wns: 1, .mpns: 1]
        )
        #expect(
            try amounts([
                "data": ["badge": "Increment"], "native": ["apns": ["payload": ["aps": [:]]]],
            ]) == [.fcm: 1, .wns: 1, .mpns: 1, .connection: 1]
        )
        #expect(try amounts(["data": ["alert": "x", "badge": 1]]).isEmpty)
    }

    @Test("A complete aps may change the badge too, and a badge beside it takes precedence")
    func inAps() throws {
        #expect(try amounts(["data": ["aps": ["badge": "Increment"]]]) == [.apns: 1])
        #expect(try amounts(["data": ["ios": ["aps": ["badge": "Increment"]]]]) == [.apns: 1])
        #expect(
            try amounts([
                "data": [
                    "badge": ["__op": "Increment", "amount": 2], "aps": ["badge": "Increment"],
                ]
            ])[.apns] == 2
        )
        #expect(
            try amounts([
                "data": ["aps": ["badge": "Increment"], "ios": ["aps": ["badge": 4]]]
            ]).isEmpty
        )
    }

    @Test("A value that is neither a badge change nor a number is refused by its field")
    func refused() throws {
        for (data, field) in [
            (["badge": ["__op": "Delete"]], "data.badge"),
            (["badge": ["__op": "Increment", "amount": "1"]], "data.badge"),
            (["aps": ["badge": "many"]], "data.aps.badge"),
        ] as [(JSONObject, String)] {
            let error = #expect(throws: PushRequestError.self) {
                try PushRequest.parse(["data": .object(data)], now: .now())
            }
            #expect(error?.field == field)
        }
    }

    @Test("An amount out of range is refused, the smallest integer too")
    func beyondBounds() {
        for amount in [JSONValue(Int.min), JSONValue(Int.max), 1_000_000_000_000] {
            #expect(BadgeChange(["__op": "Increment", "amount": amount]) == nil)
        }
    }
}
