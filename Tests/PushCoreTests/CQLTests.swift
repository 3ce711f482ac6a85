import JSON
import PushCore
import Testing

@Suite(.timeLimit(.minutes(1)))
struct CQLTests {
    private func condition(_ json: JSONValue) throws -> Where { try Where.parse(json) }

    @Test(
        "A select has a class, fields, an order and a page, with order and page in either sequence"
    )
    func wholeSelect() throws {
        let query = try CQLQuery.parse(
            "SELECT name, profile.city FROM _Installation WHERE badge > 3 LIMIT 10, 20 "
                + "ORDER BY badge DESC, name"
        )
        #expect(query.className == "_Installation")
        #expect(query.keys == ["name", "profile.city"])
        #expect(query.condition == (try condition(["badge": ["$gt": 3]])))
        #expect(query.skip == 10)
        #expect(query.limit == 20)
        #expect(query.order == (try SortKey.parse("-badge,name")))
        #expect(!query.isCount)
        let other = try CQLQuery.parse("select * from _User order by age asc limit 5")
        #expect(other.keys == [])
        #expect(other.limit == 5)
        #expect(other.condition == .everything)
        #expect(try CQLQuery.parse("select count(*) from _User").isCount)
    }

    @Test(
        "Each CQL condition has the same meaning as its where",
        arguments: [
            ("a = 1", ["a": ["$eq": 1]]),
            ("a != 'x'", ["a": ["$ne": "x"]]), ("a <> 'x'", ["a": ["$ne": "x"]]),
            ("a < 1.5", ["a": ["$lt": 1.5]]), ("a <= -2", ["a": ["$lte": -2]]),
            ("a > 1 and a >= 2", ["$and": [["a": ["$gt": 1]], ["a": ["$gte": 2]]]]),
            ("a in (1, 'x', null)", ["a": ["$in": [1, "x", .null]]]),
            ("a not in ('x')", ["a": ["$nin": ["x"]]]),
            ("a is exists", ["a": ["$exists": true]]),
            ("a is not exists", ["a": ["$exists": false]]),
            ("a like 'ab%'", ["a": ["$regex": "^\\Qab\\E.*$", "$options": "s"]]),
            ("a regexp '^x\\d'", ["a": ["$regex": "^x\\d"]]),
            ("channels all ('a','b')", ["channels": ["$all": ["a", "b"]]]),
            ("size(tags) = 2", ["tags": ["$size": 2]]),
            (
                "a = 1 or b = true and c = false",
                [
                    "$or": [
                        ["a": ["$eq": 1]],
                        ["$and": [["b": ["$eq": true]], ["c": ["$eq": false]]]],
                    ]
                ]
            ),
            (
                "(a = 1 or b = 2) and c = 3",
                [
                    "$and": [
                        ["$or": [["a": ["$eq": 1]], ["b": ["$eq": 2]]]], ["c": ["$eq": 3]],
                    ]
                ]
            ),
            (
                "createdAt > date('2026-01-01T00:00:00.000Z')",
                ["createdAt": ["$gt": ["__type": "Date", "iso": "2026-01-01T00:00:00.000Z"]]]
            ),
            (
                "owner = pointer('_User', 'u1')",
                [
                    "owner": [
                        "$eq": ["__type": "Pointer", "className": "_User", "objectId": "u1"]
                    ]
                ]
            ),
            ("name = 'it''s \\'so\\''", ["name": ["$eq": "it's 'so'"]]),
        ] as [(String, JSONValue)]
    )
    func conditions(text: String, json: JSONValue) throws {
        let query = try CQLQuery.parse("select * from _Installation where \(text)")
        #expect(query.condition == (try condition(json)))
    }

    @Test("A ? stands for the next value, whatever the value contains")
    func placeholders() throws {
        let query = try CQLQuery.parse(
            "select * from _User where a = ? and b in (?, ?) and c in ? limit ?",
            values: [1, "x", "'; drop", ["y"], 7]
        )
        #expect(
            query.condition
                == (try condition([
                    "$and": [
                        ["a": ["$eq": 1]], ["b": ["$in": ["x", "'; drop"]]], ["c": ["$in": ["y"]]],
                    ]
                ]))
        )
        #expect(query.limit == 7)
        // A value is never an operator.
        let injected = #expect(throws: CQLError.self) {
            try CQLQuery.parse("select * from _User where a = ?", values: [["$ne": 1]])
        }
        #expect(injected?.code == 102)
    }

    @Test(
        "Unsupported or invalid CQL is refused with 300 and the name",
        arguments: [
            ("select * from A where loc near [1,2]", "unexpected character"),
            ("select * from A where loc near geopoint(1,2)", "near"),
            ("select * from A where loc within geopoint(1,2)", "within"),
            ("select * from A where a in (select * from B)", "sub-select"),
            ("select * from A where a = (select * from B)", "sub-select"),
            ("select include image, * from A", "include"),
            ("select max(a) from A", "max"), ("delete from A", "delete"),
            ("update A set a = 1", "update"), ("insert into A(a) values(1)", "insert"),
            ("select * from A where a between 1", "between"),
            ("select * from A where a = file('x')", "file"),
            ("select * from A where f(a) = 1", "f"),
            ("select * from A where a = ?", "no value"),
            ("select * from A where a = 'x", "no end"), ("", "the end"),
            ("select * from A group by a", "group"),
            ("select * from A limit -1", "limit"), ("select * from", "name"),
            ("select * from A where a = 1 2", "a number"),
        ] as [(String, String)]
    )
    func refused(text: String, name: String) {
        let error = #expect(throws: CQLError.self) { try CQLQuery.parse(text) }
        #expect(error?.code == 300)
        #expect(error?.description.contains(name) == true, "\(error?.description ?? "")")
    }

    @Test("Unused values, deep nesting and long texts are refused")
    func bounds() {
        #expect(throws: CQLError.self) { try CQLQuery.parse("select * from A", values: [1]) }
        let deep = String(repeating: "(", count: 40) + "a = 1" + String(repeating: ")", count: 40)
        #expect(throws: CQLError.self) { try CQLQuery.parse("select * from A where \(deep)") }
        let calls = String(repeating: "date(", count: 5000)
        #expect(throws: CQLError.self) { try CQLQuery.parse("select * from A where a = \(calls)") }
        let long = String(repeating: " ", count: CQLQuery.maximumBytes)
        #expect(throws: CQLError.self) { try CQLQuery.parse("select * from A" + long) }
    }
}
