import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// Names and values of fields, on both surfaces whose objects have custom fields.
    @Suite("Fields of objects", .runningStack, .serialized, .timeLimit(.minutes(3)))
    struct FieldTests {
        private static let surfaces = ["LeanCloud", "Parse"]
        private static let classes = ["_Installation", "_User"]

        /// One app, and calls in its name to objects of its classes.
        private struct API {
            let bench: Bench
            let isParse: Bool

            init(_ surface: String) async throws {
                bench = try await Bench()
                isParse = surface == "Parse"
            }

            private var headers: [String: String] {
                guard isParse else { return bench.app.masterHeaders }
                return [
                    "X-Parse-Application-Id": bench.app.id,
                    "X-Parse-Master-Key": bench.app.masterKey,
                ]
            }

            func call(
                _ method: String,
                _ path: String,
                _ body: JSONValue? = nil
            ) async throws -> HTTPAnswer {
                try await http(
                    method,
                    "\(bench.registration)/\(isParse ? "parse" : "1.1")/classes/\(path)",
                    headers: headers,
                    body: body
                )
            }

            /// - Returns: The object's path.
            func create(_ className: String, _ fields: JSONObject = [:]) async throws -> String {
                let answer = try await make(className, fields)
                guard answer.status == 201, let id = answer.json?["objectId"]?.string else {
                    throw TestFailure("POST \(className): \(answer.status) \(answer.text)")
                }
                return "\(className)/\(id)"
            }

            func make(_ className: String, _ fields: JSONObject) async throws -> HTTPAnswer {
                guard className == "_Installation" else {
                    let users = "\(bench.registration)/\(isParse ? "parse" : "1.1")/users"
                    return try await http(
                        "POST",
                        users,
                        headers: headers,
                        body: .object(fields)
                    )
                }
                var fields = fields
                fields["deviceType"] = "ios"
                fields["deviceToken"] = .string(makeAPNsToken())
                return try await call("POST", className, .object(fields))
            }

            /// Returns how many a query finds, and their ids.
            func find(_ className: String, _ condition: JSONValue) async throws -> [String] {
                var allowed = CharacterSet.alphanumerics
                allowed.insert("-")
                let text =
                    condition.text.addingPercentEncoding(withAllowedCharacters: allowed) ?? ""
                let answer = try await call("GET", "\(className)?where=\(text)")
                guard let results = answer.json?["results"]?.array else {
                    throw TestFailure("GET \(className): \(answer.status) \(answer.text)")
                }
                return results.compactMap { $0["objectId"]?.string }
            }
        }

        @Test(
            "A large number is stored unchanged, and its object can be saved again",
            arguments: surfaces
        )
        func largeNumbers(surface: String) async throws {
            let api = try await API(surface)
            let most = Double.greatestFiniteMagnitude
            let fields: JSONObject = [
                "score": 1e21, "large": 1e308, "most": .double(most), "least": .double(-most),
                "inner": ["list": [1e21, -1e20]],
            ]
            for className in Self.classes {
                let path = try await api.create(className, fields)
                let again = try await api.call("PUT", path, ["seen": true])
                #expect(again.status == 200, "\(className): \(again.text)")
                // JavaScript writes 1e20 and 2^64 like this.
                let digits = try await api.call(
                    "PUT",
                    path,
                    [
                        "digits": .number("100000000000000000000"),
                        "power": .number("18446744073709552000"),
                    ]
                )
                #expect(digits.status == 200, "\(className): \(digits.text)")
                let read = try await api.call("GET", path)
                for (name, value) in [
                    ("digits", 1e20), ("power", 0x1p64), ("score", 1e21), ("large", 1e308),
                    ("most", most), ("least", -most),
                ] {
                    #expect(read.json?[name]?.double == value, "\(className).\(name)")
                }
                #expect(read.json?["inner"]?["list"]?[1]?.double == -1e20)
                // Clients that send complete objects send all of it.
                let whole = try await api.call("PUT", path, ["inner": read.json?["inner"] ?? .null])
                #expect(whole.status == 200, "\(className): \(whole.text)")
                let raised = try await api.call(
                    "PUT",
                    path,
                    ["score": ["__op": "Increment", "amount": 1e21]]
                )
                #expect(raised.json?["score"]?.double == 2e21, "\(raised.text)")
                let id = path.split(separator: "/").last.map(String.init)
                #expect(try await api.find(className, ["score": 2e21]) == [id])

                for number in ["123456789012345678901234567890", "9223372036854775809", "1e400"] {
                    let refused = try await api.call("PUT", path, ["other": .number(number)])
                    #expect(refused.status == 400, "\(className) \(number): \(refused.text)")
                    #expect(refused.json?["code"] == 111)
                    #expect(refused.json?["error"]?.string?.contains("other") == true)
                    let inside = try await api.call("PUT", path, ["inner.n": .number(number)])
                    #expect(inside.json?["code"] == 111, "\(inside.text)")
                }
            }
        }

        @Test(
            "A missing badge or list of channels differs from 0 and from an empty list",
            arguments: surfaces
        )
        func absentFields(surface: String) async throws {
            let api = try await API(surface)
            let bare = try await api.create("_Installation")
            let empty = try await api.create("_Installation", ["badge": 0, "channels": []])
            let some = try await api.create("_Installation", ["badge": 3, "channels": ["a"]])
            func expect(
                _ condition: JSONValue,
                _ paths: [String],
                at location: SourceLocation = #_sourceLocation
            ) async throws {
                let found = try await api.find("_Installation", condition)
                #expect(
                    Set(found.map { "_Installation/\($0)" }) == Set(paths),
                    "\(condition.text)",
                    sourceLocation: location
                )
            }
            func shown(_ path: String) async throws -> [JSONValue?] {
                let read = try await api.call("GET", path)
                return [read.json?["badge"], read.json?["channels"]]
            }
            #expect(try await shown(bare) == [nil, nil])
            #expect(try await shown(empty) == [0, []])
            for name in ["badge", "channels"] {
                try await expect([name: ["$exists": false]], [bare])
                try await expect([name: ["$exists": true]], [empty, some])
                try await expect([name: .null], [bare])
                try await expect([name: ["$ne": .null]], [empty, some])
                try await expect([name: ["$in": [.null, "x", 9]]], [bare])
                try await expect([name: ["$nin": [.null]]], [empty, some])
            }
            try await expect(["badge": 0], [empty])
            try await expect(["badge": ["$lt": 1]], [empty])
            try await expect(["badge": ["$ne": 0]], [bare, some])
            try await expect(["channels": ["$size": 0]], [empty])
            try await expect(["channels": ["$ne": "a"]], [bare, empty])
            let delete: JSONValue = ["__op": "Delete"]
            let deleted = try await api.call("PUT", some, ["badge": delete, "channels": delete])
            #expect(deleted.status == 200, "\(deleted.text)")
            #expect(try await shown(some) == [nil, nil])
            try await expect(["badge": .null, "channels": ["$exists": false]], [bare, some])
            // An increment of a missing one begins at zero; a save of another field leaves it
            // missing.
            _ = try await api.call("PUT", bare, ["seen": true])
            #expect(try await shown(bare) == [nil, nil])
            let raised = try await api.call("PUT", bare, ["badge": ["__op": "Increment"]])
            #expect(raised.json?["badge"] == 1)
            let left = try await api.call(
                "PUT",
                bare,
                ["channels": ["__op": "Remove", "objects": ["a"]]]
            )
            #expect(left.json?["channels"] == [])
            try await expect(["channels": ["$size": 0], "badge": 1], [bare])
        }

        @Test(
            "A field has the type of its first value, in all objects of its class",
            arguments: surfaces
        )
        func types(surface: String) async throws {
            let api = try await API(surface)
            let values: JSONObject = [
                "score": 4, "name": "n", "flag": true, "list": ["a"], "info": ["n": 1],
                "when": ["__type": "Date", "iso": "2026-01-01T00:00:00.000Z"],
                "place": ["__type": "GeoPoint", "latitude": 1, "longitude": 2],
                "owner": ["__type": "Pointer", "className": "_User", "objectId": "x"],
                "data": ["__type": "Bytes", "base64": "YQ=="], "count": ["__op": "Increment"],
                "tags": ["__op": "AddUnique", "objects": ["a"]], "deep.n": 1, "later": .null,
            ]
            for className in Self.classes {
                let first = try await api.create(className, values)
                let other = try await api.create(className)
                let before = try await api.call("GET", first)
                for (name, value) in [
                    ("score", "four"), ("score", true), ("score", ["__op": "Add", "objects": [1]]),
                    ("score.x", 1), ("name", 5), ("name", ["__op": "Increment"]), ("flag", 1),
                    ("list", "a"), ("list", ["a": 1]), ("info", ["a"]), ("info", "a"),
                    ("info", ["__type": "Date", "iso": "2026-01-01T00:00:00.000Z"]),
                    ("when", "2026-01-01T00:00:00.000Z"), ("place", ["latitude": 1]),
                    ("owner", ["__type": "Pointer", "className": "Team", "objectId": "x"]),
                    ("owner", "x"), ("data", "YQ=="), ("count", "one"),
                    ("tags", ["__op": "BitOr", "value": 1]), ("deep", 1), ("deep", ["a"]),
                ] as [(String, JSONValue)] {
                    for path in [first, other] {
                        let answer = try await api.call("PUT", path, [name: value])
                        let text = "\(path) \(name) \(value.text): \(answer.text)"
                        #expect(answer.status == 400, "\(text)")
                        #expect(answer.json?["code"] == 111, "\(text)")
                        let field = name.split(separator: ".").first.map(String.init) ?? ""
                        #expect(answer.json?["error"]?.string?.contains(field) == true, "\(text)")
                    }
                }
                #expect(try await api.call("GET", first).json == before.json)
                let said = try await api.call("PUT", other, ["score": "four"])
                #expect(
                    said.json?["error"]?.string
                        == (api.isParse
                            ? "schema mismatch for \(className).score; expected Number but got String"
                            : "Invalid value type for field 'score', expect type is "
                                + "{:type \"Number\"}, but it is {:type \"String\"}.")
                )
                let taken = try await api.call(
                    "PUT",
                    other,
                    [
                        "score": 1.5, "name": "m", "info": ["x": ["y"]], "list": [], "flag": .null,
                        "when": ["__op": "Delete"], "owner": .null, "deep": [:],
                    ]
                )
                #expect(taken.status == 200, "\(taken.text)")
                // A refused value decides nothing, and neither does null.
                for body in [["later": 1, "name": 5], ["fresh": 1, "later": 1, "1st": 2]]
                    as [JSONValue]
                {
                    #expect(try await api.call("PUT", other, body).status == 400)
                }
                let gone = try await api.call("PUT", "\(className)/nobody", ["fresh": 1])
                #expect(gone.status == 404)
                let decided = try await api.call("PUT", other, ["later": "text", "fresh": "text"])
                #expect(decided.status == 200, "\(decided.text)")
                let refused = try await api.make(className, ["later": 1])
                #expect(refused.json?["code"] == 111, "\(refused.text)")
                for (name, value) in [("badge", "x"), ("valid", 1), ("deviceToken", 5), ("ACL", 1)]
                    as [(String, JSONValue)]
                where className == "_Installation" {
                    let answer = try await api.call("PUT", first, [name: value])
                    #expect(answer.json?["code"] == 111, "\(name): \(answer.text)")
                }
            }
        }

        @Test("An operator can list the types of fields, and have one forgotten")
        func operatorsFields() async throws {
            let api = try await API("LeanCloud")
            let app = api.bench.app.id
            let path = try await api.create("_Installation", ["score": 4, "both": "a"])
            _ = try await api.create("_User", ["both": 1])
            func carillon(_ words: String...) async throws -> String {
                let stack = api.bench.stack
                return try await run(
                    Stack.executable("carillon"),
                    ["app", "fields", app] + words,
                    environment: stack.environment
                ).successful("app fields")
            }
            let listed = try JSONValue.parse(try await carillon("--json")).array ?? []
            #expect(
                listed.map { [$0["class"], $0["name"], $0["type"]] } == [
                    ["_Installation", "both", "String"], ["_Installation", "score", "Number"],
                    ["_User", "both", "Number"],
                ]
            )
            let text = try await carillon()
            #expect(text.contains("score") && text.contains("Number"))
            #expect(try await carillon("--class", "_User").contains("score") == false)
            await #expect(throws: (any Error).self) { try await carillon("--drop", "both") }
            await #expect(throws: (any Error).self) { try await carillon("--drop", "badge") }
            #expect(try await api.call("PUT", path, ["score": "four"]).json?["code"] == 111)
            _ = try await carillon("--drop", "score")
            _ = try await eventually("the new type is taken") {
                try await api.call("PUT", path, ["score": "four"]).status == 200 ? true : nil
            }
            #expect(try await api.call("PUT", path, ["score": 4]).json?["code"] == 111)
            let audit = try await api.bench.stack.carillon("audit", app, "--json")
            #expect(audit.contains("app fields drop") && audit.contains("_Installation.score"))
        }

        @Test("A field's name is a letter followed by letters, digits and '_'", arguments: surfaces)
        func names(surface: String) async throws {
            let api = try await API(surface)
            for className in Self.classes {
                let path = try await api.create(className)
                for name in [
                    "_hidden", "__proto__", "constructor", "prototype", "_", "a.__proto__",
                    "a.constructor", "1st", "a-b", "ä",
                ] {
                    let body: JSONObject = [name: .string("x")]
                    for answer in [
                        try await api.call("PUT", path, .object(body)),
                        try await api.make(className, body),
                    ] {
                        #expect(answer.status == 400, "\(className).\(name): \(answer.text)")
                        #expect(answer.json?["code"] == 105, "\(className).\(name): \(answer.text)")
                    }
                }
                let kept = try await api.call(
                    "PUT",
                    path,
                    ["a_b": 1, "ACL": ["*": ["read": true]]]
                )
                #expect(kept.status == 200, "\(kept.text)")
            }
        }
    }
}
