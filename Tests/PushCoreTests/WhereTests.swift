import JSON
import PushCore
import Testing

@Suite(.timeLimit(.minutes(1)))
struct WhereTests {
    private func parse(_ text: String) throws -> Where {
        try Where.parse(try JSONValue.parse(text))
    }

    private func path(_ text: String) throws -> WherePath { try WherePath(text) }

    /// Parses a `where` with one constraint on the field `f` and returns its test.
    private func test(_ constraint: String, of field: String = "f") throws -> WhereTest {
        let condition = try parse("{\"\(field)\": \(constraint)}")
        guard case .field(let path, let test) = condition else {
            throw WhereError(code: 0, "not one test: \(condition)")
        }
        #expect(path.text == field)
        return test
    }

    private func error(_ text: String) -> WhereError? {
        #expect(throws: WhereError.self) { _ = try parse(text) }
    }

    @Test("A number has the value of its digits, which for a large double differ from its own")
    func numbers() throws {
        for (number, value) in [
            (1.0, .integer(1)), (-0x1p53, .integer(-9_007_199_254_740_992)),
            (1.152921504606847e18, .double(1.152921504606847e18)), (-0x1p63, .double(-0x1p63)),
            (1e21, .double(1e21)),
        ] as [(Double, WhereValue)] {
            let condition = try Where.parse(["n": .double(number)])
            #expect(condition == .field(try WherePath("n"), .equal(value)))
        }
    }

    @Test("A plain value is equality, typed values included")
    func equality() throws {
        #expect(try test("1") == .equal(.integer(1)))
        #expect(try test("1.0") == .equal(.integer(1)))
        #expect(try test("1.5") == .equal(.double(1.5)))
        #expect(
            try test("123456789012345678901234567890") == .equal(.double(1.2345678901234568e29))
        )
        #expect(try test("\"a\"") == .equal(.string("a")))
        #expect(try test("true") == .equal(.bool(true)))
        #expect(try test("null") == .equal(.null))
        #expect(try test("[1, 2]") == .equal(.structure([1, 2])))
        #expect(try test("{}") == .equal(.structure([:])))
        #expect(try test("{\"a\": {\"b\": 1}}") == .equal(.structure(["a": ["b": 1]])))
        #expect(try test("{\"$eq\": 3}") == .equal(.integer(3)))
        #expect(
            try test(#"{"__type": "Date", "iso": "1970-01-01T00:00:01.000Z"}"#)
                == .equal(.date(Instant(seconds: 1)))
        )
        #expect(
            try test(#"{"__type": "Pointer", "className": "_User", "objectId": "u"}"#)
                == .equal(.pointer(className: "_User", objectID: "u"))
        )
        let point = try #require(GeoPoint(latitude: 30, longitude: -20))
        #expect(
            try test(#"{"__type": "GeoPoint", "latitude": 30.0, "longitude": -20}"#)
                == .equal(.point(point))
        )
    }

    @Test("Equality of channels with a list selects those that contain it, and [] exact equality")
    func channelLists() throws {
        #expect(
            try test(#"["public", "a"]"#, of: "channels")
                == .holdsAll([.value(.string("public")), .value(.string("a"))])
        )
        #expect(try test("[]", of: "channels") == .equal(.structure([])))
    }

    @Test("Each operator of LeanCloud and Parse is read")
    func operators() throws {
        #expect(try test("{\"$lt\": 1}") == .compare(.less, .integer(1)))
        #expect(try test("{\"$lte\": \"a\"}") == .compare(.lessOrEqual, .string("a")))
        #expect(try test("{\"$gt\": true}") == .compare(.greater, .bool(true)))
        #expect(
            try test(#"{"$gte": {"__type": "Date", "iso": "1970-01-01T00:00:01Z"}}"#)
                == .compare(.greaterOrEqual, .date(Instant(seconds: 1)))
        )
        #expect(try test("{\"$ne\": null}") == .notEqual(.null))
        #expect(try test("{\"$in\": [1, null]}") == .among([.integer(1), .null]))
        #expect(try test("{\"$in\": []}") == .among([]))
        #expect(try test("{\"$nin\": [\"a\"]}") == .notAmong([.string("a")]))
        #expect(try test("{\"$containedBy\": [1]}") == .containedBy([.integer(1)]))
        #expect(try test("{\"$size\": 2}") == .size(2))
        #expect(try test("{\"$exists\": false}") == .exists(false))
        let prefix = try WherePattern(#"^\Qpre\E"#, options: "")
        #expect(
            try test(#"{"$all": ["x", {"$regex": "^\\Qpre\\E"}]}"#)
                == .holdsAll([.value(.string("x")), .pattern(prefix)])
        )
        #expect(
            try test(#"{"$regex": "a.b", "$options": "ims"}"#)
                == .pattern(WherePattern("a.b", options: "ims"))
        )
    }

    @Test("Several operators of one field, and several fields, must all be true")
    func conjunction() throws {
        let path = try path("n")
        #expect(
            try parse(#"{"n": {"$gt": 1, "$lt": 3}}"#)
                == .all([
                    .field(path, .compare(.greater, .integer(1))),
                    .field(path, .compare(.less, .integer(3))),
                ])
        )
        #expect(try parse("{}") == .everything)
        #expect(try parse("[]") == .everything)
        let one = Where.field(path, .equal(.integer(1)))
        #expect(try parse(#"[{"n": 1}, {"n": 1}]"#) == .all([one, one]))
        #expect(try parse(#"{"$or": [{"n": 1}, {}]}"#) == .any([one, .everything]))
        #expect(try parse(#"{"$nor": [{"n": 1}]}"#) == .none([one]))
        #expect(try parse(#"{"$and": [{"n": 1}]}"#) == .all([one]))
        #expect(try parse(#"{"a.b.c d": 1}"#) == .field(self.path("a.b.c d"), .equal(.integer(1))))
    }

    @Test("Times that clients read as strings can be queried as strings")
    func timesAsTexts() throws {
        let second = Instant(seconds: 1)
        #expect(
            try test(#"{"$gt": "1970-01-01T00:00:01.000Z"}"#, of: "createdAt")
                == .compare(.greater, .date(second))
        )
        #expect(try test("\"soon\"", of: "updatedAt") == .equal(.string("soon")))
        #expect(
            try test("\"1970-01-01T00:00:01.000Z\"") == .equal(.string("1970-01-01T00:00:01.000Z"))
        )
    }

    @Test("Sub-queries are accepted in a long form and the original short one")
    func subqueries() throws {
        let one = Where.field(try path("n"), .equal(.integer(1)))
        #expect(
            try test(#"{"$inQuery": {"n": 1}}"#, of: "owner")
                == .inQuery(WhereQuery(condition: one, className: nil, limit: nil))
        )
        #expect(
            try test(
                #"{"$notInQuery": {"className": "_User", "where": {"n": 1}, "limit": 7, "skip": 2, "order": "-n,s", "keys": "n"}}"#
            )
                == .notInQuery(
                    WhereQuery(
                        condition: one,
                        className: "_User",
                        limit: 7,
                        skip: 2,
                        order: [
                            SortKey(path: path("n"), isDescending: true),
                            SortKey(path: path("s"), isDescending: false),
                        ]
                    )
                )
        )
        let all = WhereQuery(condition: .everything, className: "_User", limit: 100)
        for limit in ["0", "1001", "-3"] {
            #expect(
                try test(#"{"$inQuery": {"className": "_User", "limit": \#(limit)}}"#)
                    == .inQuery(all)
            )
        }
        #expect(
            try test(#"{"$select": {"key": "k", "query": {"className": "_User"}}}"#)
                == .selected(path("k"), by: all)
        )
        #expect(
            try test(#"{"$dontSelect": {"key": "k", "query": {"className": "_User"}}}"#)
                == .notSelected(path("k"), by: all)
        )
    }

    @Test("Places are read with all units")
    func places() throws {
        let point = try #require(GeoPoint(latitude: 30, longitude: -20))
        let text = #"{"__type": "GeoPoint", "latitude": 30.0, "longitude": -20.0}"#
        #expect(
            try test("{\"$nearSphere\": \(text)}") == .near(point, minimum: nil, maximum: nil)
        )
        let condition = try parse(
            "{\"f\": {\"$nearSphere\": \(text), \"$maxDistanceInMiles\": 3958.8}, \"n\": 1}"
        )
        #expect(condition.nearest?.point == point)
        for (unit, distance) in [
            ("$maxDistance", 1), ("$maxDistanceInRadians", 1), ("$maxDistanceInMiles", 3958.8),
            ("$maxDistanceInKilometers", 6371),
        ] {
            #expect(
                try test(
                    "{\"\(unit)\": \(distance), \"$nearSphere\": \(text), \"$minDistance\": 0.5}"
                )
                    == .near(point, minimum: 0.5, maximum: 1)
            )
        }
        let northEast = try #require(GeoPoint(latitude: 40, longitude: 5))
        #expect(
            try test(
                #"{"$within": {"$box": [\#(text), {"__type": "GeoPoint", "latitude": 40, "longitude": 5}]}}"#
            )
                == .inBox(southWest: point, northEast: northEast)
        )
        // LeanCloud's Python SDK writes it like this.
        #expect(
            try test(#"{"$within": {"$box": [[30, -20], [40, 5]]}}"#)
                == .inBox(southWest: point, northEast: northEast)
        )
        #expect(
            try test(#"{"$geoWithin": {"$centerSphere": [[-20, 30], 0.1]}}"#)
                == .near(point, minimum: nil, maximum: 0.1)
        )
        #expect(
            try test(#"{"$geoWithin": {"$polygon": [\#(text), [5, 40], [-20, 30]]}}"#)
                == .inPolygon([point, northEast, point])
        )
    }

    @Test("A typed value beside operators is equality and all of them")
    func equalityBeside() throws {
        let pointer = #""__type": "Pointer", "className": "_User", "objectId": "u""#
        let query = #""$inQuery": {"className": "_User", "where": {"city": "x"}}"#
        let both = try parse(#"{"f": {\#(pointer), \#(query)}}"#)
        let apart = try parse(#"{"$and": [{"f": {\#(pointer)}}, {"f": {\#(query)}}]}"#)
        #expect(both == apart)
        #expect(throws: WhereError.self) {
            try parse(#"{"f": {"__type": "Pointer", \#(query)}}"#)
        }
    }

    @Test(
        "An invalid condition is refused with its code and name",
        arguments: [
            (#"{"f": {"$foo": 1}}"#, 102, "$foo"),
            (#"{"f": {"$relatedTo": {}}}"#, 102, "$relatedTo"),
            (#"{"f": {"$text": {}}}"#, 102, "$text"), (#"{"$relatedTo": {}}"#, 102, "$relatedTo"),
            (#"{"f": {"$geoIntersects": {}}}"#, 102, "$geoIntersects"),
            (#"{"f": {"$in": [{"$regex": "a"}]}}"#, 102, "$regex"),
            (#"{"$foo": 1}"#, 105, "$foo"), (#"{"$gt": 1}"#, 105, "$gt"),
            (#"{"a b": 1}"#, 105, "a b"),
            (#"{"": 1}"#, 105, ""), (#"{"a..b": 1}"#, 105, "a..b"), (#"{"a.$b": 1}"#, 105, "a.$b"),
            (#"{"a.b.c.d.e.f.g.h.i": 1}"#, 105, "a.b"), ("1", 107, "where"), ("[1]", 107, "where"),
            ("null", 107, "where"), (#"{"$or": {}}"#, 107, "$or"), (#"{"$or": []}"#, 107, "$or"),
            (#"{"$and": [[]]}"#, 107, "$and"), (#"{"f": {"$gt": 1, "a": 1}}"#, 107, "f"),
            (#"{"f": {"$in": 1}}"#, 107, "$in"), (#"{"f": {"$all": {}}}"#, 107, "$all"),
            (#"{"f": {"$size": -1}}"#, 107, "$size"), (#"{"f": {"$size": 1.5}}"#, 107, "$size"),
            (#"{"f": {"$exists": "x"}}"#, 107, "$exists"), (#"{"f": {"$gt": null}}"#, 107, "$gt"),
            (#"{"f": {"$lt": []}}"#, 107, "$lt"), (#"{"f": {"$regex": 1}}"#, 107, "$regex"),
            (#"{"f": {"$options": "i"}}"#, 107, "$options"),
            (#"{"f": {"$regex": "a", "$options": "q"}}"#, 102, "q"),
            (#"{"f": {"$regex": "a", "$options": 1}}"#, 107, "$options"),
            (#"{"f": {"__op": "Delete"}}"#, 107, "f"), (#"{"f": "\u0000"}"#, 107, "NUL"),
            (#"{"f": {"a": "\u0000"}}"#, 107, "NUL"), (#"{"f": 1e999}"#, 107, "large"),
            (#"{"f": [1e999]}"#, 107, "large"), (#"{"f": {"__type": "Foo"}}"#, 107, "__type"),
            (#"{"f": {"__type": "Date", "iso": "2013-02-30T00:00:00Z"}}"#, 107, "Date"),
            (#"{"f": {"__type": "Pointer", "objectId": "a"}}"#, 106, "Pointer"),
            (#"{"f": {"__type": "GeoPoint", "latitude": 91, "longitude": 0}}"#, 302, "latitude"),
            (#"{"f": {"$nearSphere": {"latitude": 0, "longitude": 181}}}"#, 302, "longitude"),
            (#"{"f": {"$nearSphere": 1}}"#, 107, "GeoPoint"),
            (#"{"f": {"$maxDistance": 1}}"#, 107, "$maxDistance"),
            (
                #"{"f": {"$nearSphere": {"latitude": 0, "longitude": 0}, "$maxDistance": -1}}"#,
                107,
                "$maxDistance"
            ),
            (#"{"f": {"$within": {"$circle": []}}}"#, 102, "$circle"),
            (#"{"f": {"$within": {"$box": [1]}}}"#, 107, "$box"),
            (#"{"f": {"$geoWithin": {"$polygon": [[0, 0], [1, 1]]}}}"#, 107, "$polygon"),
            (#"{"f": {"$geoWithin": {"$polygon": [[0, 0], [1, 1], [0, 99]]}}}"#, 302, "latitude"),
            (#"{"f": {"$geoWithin": {"$centerSphere": [[0, 0], -1]}}}"#, 107, "$centerSphere"),
            (#"{"f": {"$geoWithin": {"$geometry": {}}}}"#, 102, "$geometry"),
            (#"{"f": {"$inQuery": 1}}"#, 107, "$inQuery"),
            (#"{"f": {"$inQuery": {"where": {}}}}"#, 103, "className"),
            (#"{"f": {"$inQuery": {"className": "_User", "include": "a"}}}"#, 102, "include"),
            (#"{"f": {"$inQuery": {"className": "_User", "skip": -1}}}"#, 107, "skip"),
            (#"{"f": {"$select": {"key": "k"}}}"#, 107, "$select"),
        ]
    )
    func refusals(text: String, code: Int, name: String) throws {
        let error = error(text)
        #expect(error?.code == code, "\(text): \(error?.description ?? "accepted")")
        #expect(error?.description.contains(name) == true || name.isEmpty)
    }

    @Test("Nested queries, the total of patterns and impossible texts are bounded")
    func boundsQueriesAndPatterns() throws {
        func nested(_ depth: Int) -> JSONValue {
            depth == 0 ? ["a": 1] : ["owner": ["$inQuery": nested(depth - 1)]]
        }
        _ = try Where.parse(nested(Where.maximumQueryDepth))
        let deep = #expect(throws: WhereError.self) {
            _ = try Where.parse(nested(Where.maximumQueryDepth + 1))
        }
        #expect(deep?.code == 102 && deep?.description.contains("$inQuery") == true)
        let long = JSONValue.string(String(repeating: "a", count: 900))
        let many: [JSONValue] = (0..<5).map { _ in ["s": ["$regex": long]] }
        _ = try Where.parse(["$or": .array(Array(many.prefix(4)))])
        #expect(throws: WhereError.self) { _ = try Where.parse(["$or": .array(many)]) }
        for pattern in ["^\u{0}$", "a\u{0}", "[\u{0}]", "\\Q\u{0}\\E"] {
            #expect(throws: WhereError.self) {
                _ = try Where.parse(["s": ["$regex": .string(pattern)]])
            }
        }
        let folded = try WherePattern("[A-\u{2fff}]", options: "i")
        guard case .sequence(let nodes) = folded.root, case .set(let set) = nodes.first else {
            Issue.record("no set: \(folded.root)")
            return
        }
        #expect(set.ranges.contains { $0.contains(0x61) && $0.contains(0x41) })
    }

    @Test("Depth, conditions and lists are bounded")
    func bounds() throws {
        func nested(_ depth: Int) -> String {
            String(repeating: "{\"$or\": [", count: depth) + "{\"a\": 1}"
                + String(repeating: "]}", count: depth)
        }
        _ = try parse(nested(Where.maximumDepth - 2))
        #expect(error(nested(Where.maximumDepth - 1))?.code == 102)
        #expect(error(nested(25))?.code == 102)
        func list(_ count: Int) -> String {
            "{\"f\": {\"$in\": [" + (0..<count).map(String.init).joined(separator: ",") + "]}}"
        }
        _ = try parse(list(Where.maximumElements))
        #expect(error(list(Where.maximumElements + 1))?.code == 102)
        func fields(_ count: Int) -> String {
            "{" + (0..<count).map { "\"f\($0)\": 1" }.joined(separator: ",") + "}"
        }
        _ = try parse(fields(Where.maximumNodes - 1))
        #expect(error(fields(Where.maximumNodes))?.code == 102)
        let deep = String(repeating: "[", count: 30) + String(repeating: "]", count: 30)
        #expect(error("{\"f\": \(deep)}")?.code == 102)
        let pattern = String(repeating: "a", count: Where.maximumPatternBytes + 1)
        #expect(error("{\"f\": {\"$regex\": \"\(pattern)\"}}")?.code == 102)
    }

    @Test("A pattern element without the same meaning everywhere is refused by name")
    func patternRefusals() {
        for (source, name) in [
            (#"(a)\1"#, "back reference"), (#"\k<a>"#, "back reference"), ("(?<=a)b", "lookbehind"),
            ("(?<!a)b", "lookbehind"), ("(?>a)", "atomic"), ("a++", "possessive"),
            (#"\pL"#, #"\p"#),
            ("a(?i)b", "group"), ("(?R)", "group"), ("(*FAIL)", "verb"), ("[[:cntrl:]]", "class"),
            ("a{256}", "255"), ("((a{99}){99}){99}", "repeats"), ("(a?){255}", "repeats"),
            (#"\Z"#, #"\Z"#), (#"\cA"#, #"\c"#), (#"[[.a.]]"#, "collating"),
        ] {
            let error = #expect(throws: WhereError.self) {
                _ = try WherePattern(source, options: "", field: "f")
            }
            #expect(error?.code == 102, "\(source)")
            #expect(error?.description.contains(name) == true, "\(source): \(error?.problem ?? "")")
        }
        for source in [
            "(", ")", "a)", "[a", "[b-a]", "*a", "a**", "a{2}{3}", "a{3,2}", "^*", #"\b+"#,
            "(?=a)*",
            "\\", #"\x"#, #"\u12"#, #"\x00"#, #"\uD800"#, "(?:", "|*", "x{1}{", #"\x{110000}"#,
        ] where source != "x{1}{" {
            let error = #expect(throws: WhereError.self, "\(source)") {
                _ = try WherePattern(source, options: "", field: "f")
            }
            #expect(error?.code == 107, "\(source): \(error?.problem ?? "")")
        }
        for source in [
            "", "a|", "()", "{", "a{", "a{x}", "[]a]", "[^]a]", "[a-]", "[-a]", #"\/\-\."#, #"\Qa"#,
            #"\E"#, "(?i)a", "(?#note)a", "(?<name>a)", "日本", #"[\Q]\E]"#, "[[:alpha:]]", "x{1}{",
        ] {
            #expect(throws: Never.self, "\(source)") {
                _ = try WherePattern(source, options: "", field: "f")
            }
        }
    }

    @Test("A pattern that quotes an entire text equals that text")
    func exactTexts() throws {
        #expect(try WherePattern(#"^\Qa.b*\E$"#, options: "").exactText == "a.b*")
        #expect(try WherePattern(#"^\Qa\E\\E\Qb\E$"#, options: "").exactText == #"a\Eb"#)
        #expect(try WherePattern(#"^\Qab\E"#, options: "").exactText == nil)
        #expect(try WherePattern(#"^\Qab\E$"#, options: "i").exactText == nil)
        #expect(try WherePattern(#"^\Q12\E$"#, options: "i").exactText == "12")
        #expect(try WherePattern(#"^\Qab\E$"#, options: "m").exactText == nil)
        #expect(try WherePattern("^a|b$", options: "").exactText == nil)
    }
}
