import Apps
import Gateway
import HTTPServer
import JSON
import PushCore
import Testing

@testable import Registration

@Suite(.timeLimit(.minutes(1)))
struct KeySelectionTests {
    private let object: JSONObject = [
        "objectId": "o", "createdAt": "c", "updatedAt": "u", "name": "n", "secret": "s",
        "profile": ["city": "x", "street": "y"],
    ]

    @Test("Only named keys are returned, with the id and the times, and dots reach into objects")
    func included() throws {
        let selection = try KeySelection("name, profile.city,missing")
        #expect(
            selection.apply(to: object) == [
                "objectId": "o", "createdAt": "c", "updatedAt": "u", "name": "n",
                "profile": ["city": "x"],
            ]
        )
    }

    @Test("A key with - before it is left out, except the id")
    func excluded() throws {
        let selection = try KeySelection("-secret,-profile.street,-objectId")
        var expected = object
        expected["secret"] = nil
        expected["profile"] = ["city": "x"]
        #expect(selection.apply(to: object) == expected)
    }

    @Test("An empty list of keys means all keys, and an invalid key name is refused by 105")
    func edges() throws {
        #expect(try KeySelection("").apply(to: object) == object)
        let error = #expect(throws: WhereError.self) { try KeySelection("$a") }
        #expect(error?.code == 105)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct LeanCloudCallTests {
    private func call(_ parameters: JSONObject) -> LeanCloudCall {
        let app = CachedApp(id: "a", appKey: "k", masterKey: "m", settings: AppSettings())
        var call = LeanCloudCall(method: .get, caller: Caller(app: app, rights: .master))
        call.parameters = parameters
        return call
    }

    @Test(
        "A limit outside of 1 to 1000 becomes 100, and 0 only counts",
        arguments: [
            (["limit": "5"], 5), (["limit": 7], 7), ([:], 100), (["limit": "0"], 100),
            (["limit": "1001"], 100), (["limit": "-3"], 100),
            (["limit": "0", "count": "1"], 0),
        ] as [(JSONObject, Int)]
    )
    func limits(parameters: JSONObject, limit: Int) throws {
        #expect(try call(parameters).query().limit == limit)
    }

    @Test("Parameters mean the same as text of a query string and as values of a batch")
    func textOrValue() throws {
        let text = try call([
            "where": "{\"badge\":{\"$gt\":1}}", "order": "-badge,name", "skip": "3", "count": "1",
        ]).query()
        let value = try call([
            "where": ["badge": ["$gt": 1]], "order": "-badge,name", "skip": 3, "count": 1,
        ]).query()
        #expect(text == value)
        #expect(text.order == (try SortKey.parse("-badge,name")))
        #expect(text.wantsCount)
    }

    @Test(
        "An unreadable parameter is refused, not ignored",
        arguments: [
            (["where": "{"], 107), (["where": "{\"a\":{\"$foo\":1}}"], 102),
            (["order": "$x"], 105), (["skip": "many"], 107),
            (["limit": "few"], 107), (["keys": "a..b"], 105), (["order": 3], 107),
        ] as [(JSONObject, Int)]
    )
    func unreadable(parameters: JSONObject, code: Int) {
        var told: ObjectError?
        do { _ = try call(parameters).query() } catch { told = ObjectError(error) }
        #expect(told?.code == code)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct BatchItemTests {
    @Test("An item's parameters are its path's query and its params, and its body is unchanged")
    func wholeItem() throws {
        let item = try BatchItem([
            "method": "PUT", "path": "/1.1/classes/_Installation/abc?new=true",
            "params": ["where": ["badge": 1]], "body": ["badge": 2],
        ])
        #expect(item.method == .put)
        #expect(item.segments == ["classes", "_Installation", "abc"])
        #expect(item.parameters == ["new": "true", "where": ["badge": 1]])
        #expect(item.body == ["badge": 2])
    }

    @Test(
        "An invalid batch item is refused",
        arguments: [
            [:], ["method": "GET"], ["method": "FETCH", "path": "/1.1/date"],
            ["method": "GET", "path": "1.1/date"], ["method": "GET", "path": "/parse/x"],
            ["method": "GET", "path": "/1.1/date", "params": "x"], 7,
            ["method": "GET", "path": "/1.1/installations/a\0"],
        ] as [JSONValue]
    )
    func refused(value: JSONValue) {
        let error = #expect(throws: LeanCloudError.self) { try BatchItem(value) }
        #expect(error?.code == 107)
    }

    @Test("A route is found by its segments, including ids joined by commas")
    func matching() {
        let route = LeanCloudRoute(.delete, "classes/_User/:id") { _ in .empty }
        #expect(route.match(["classes", "_User", "a,b"]) == ["id": "a,b"])
        #expect(route.match(["classes", "_User"]) == nil)
        #expect(route.match(["classes", "_User", ""]) == nil)
        #expect(route.match(["classes", "_Role", "a"]) == nil)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct ScanCursorTests {
    private let now = Instant(seconds: 1_800_000_000)

    private var cursor: ScanCursor {
        ScanCursor(
            className: "_User",
            key: "objectId",
            place: .behind("abc"),
            end: now.adding(milliseconds: ScanCursor.lifetimeInMilliseconds)
        )
    }

    @Test("A cursor continues from where it was made, for ten minutes")
    func roundTrip() throws {
        let text = cursor.text
        #expect(try ScanCursor(text, of: "_User", by: "objectId", now: now) == cursor)
        let late = now.adding(milliseconds: ScanCursor.lifetimeInMilliseconds)
        #expect(throws: LeanCloudError.self) {
            try ScanCursor(text, of: "_User", by: "objectId", now: late)
        }
    }

    @Test("A cursor of another scan, and any other text, is refused")
    func refused() {
        for (text, name, key) in [
            (cursor.text, "_Installation", "objectId"), (cursor.text, "_User", "name"),
            ("x", "_User", "objectId"), ("bnVsbA", "_User", "objectId"),
        ] {
            let error = #expect(throws: LeanCloudError.self) {
                try ScanCursor(text, of: name, by: key, now: now)
            }
            #expect(error?.code == 107)
        }
    }
}

@Suite(.timeLimit(.minutes(1)))
struct TypedValueTests {
    @Test(
        "A malformed typed value is refused by its key and LeanCloud's code",
        arguments: [
            (["__type": "GeoPoint", "latitude": 91, "longitude": 0], 302),
            (["__type": "GeoPoint", "latitude": 1], 111),
            (["__type": "Date", "iso": "yesterday"], 111), (["__type": "Pointer"], 106),
            (["__type": "Bytes"], 111), (["__type": "Relation", "className": "X"], 1),
            (["__type": "Nothing"], 111), (["a": ["$b": 1]], 121),
            ([["__type": "Date", "iso": 3]], 111),
        ] as [(JSONValue, Int)]
    )
    func malformed(value: JSONValue, code: Int) {
        let error = #expect(throws: ObjectError.self) {
            try FieldChanges(["key": value], to: [:])
        }
        #expect(error?.code == code)
        #expect(error?.description.contains("key") == true)
    }

    @Test("Typed values are stored unchanged")
    func kept() throws {
        let body: JSONObject = [
            "at": ["__type": "Date", "iso": "2026-11-20T21:04:05.123Z"],
            "place": ["__type": "GeoPoint", "latitude": -90, "longitude": 180],
            "owner": ["__type": "Pointer", "className": "_User", "objectId": "u"],
            "raw": ["__type": "Bytes", "base64": "AA=="],
            "picture": ["__type": "File", "id": "f"],
        ]
        #expect(try FieldChanges(body, to: [:]).object == body)
    }
}

@Suite(.timeLimit(.minutes(1)))
struct LeanCloudFormTests {
    private func request(
        _ body: JSONValue,
        target: String = "/1.1/installations",
        type: String = "text/plain"
    ) throws -> HTTPServerRequest {
        try HTTPServerRequest(.post, target, headers: ["Content-Type": type], body: body.bytes)
    }

    @Test("A browser's form stands for the call that it names")
    func forms() throws {
        let asking = try request([
            "_method": "GET", "_ApplicationId": "shop", "_ApplicationKey": "m,master",
            "where": ["a": 1], "limit": 3,
        ])
        let query = try LeanCloudRequest(asking)
        #expect(query.method == .get)
        #expect(try LeanCloudRequest.credential(of: asking) { _ in }.rights == .master)
        #expect(query.parameters == ["where": ["a": 1], "limit": 3])
        let putting = try request(
            [
                "_method": "PUT", "_ApplicationId": "shop", "_ApplicationKey": "k",
                "badge": 0,
            ],
            target: "/1.1/installations/x?new=true"
        )
        let update = try LeanCloudRequest(putting)
        #expect(update.method == .put)
        #expect(try LeanCloudRequest.credential(of: putting) { _ in }.rights == .client)
        #expect(update.parameters == ["new": "true"])
        guard case .value(let body) = update.body else {
            Issue.record("a form has a body of its own")
            return
        }
        #expect(body == ["badge": 0])
    }

    @Test("A form without a key, or with an unknown method, is refused")
    func refused() throws {
        #expect(throws: Refusal.unauthorized) {
            try LeanCloudRequest.credential(
                of: request(["_method": "GET", "_ApplicationId": "shop"])
            ) { _ in }
        }
        #expect(throws: LeanCloudError.self) {
            try LeanCloudRequest(
                request([
                    "_method": "PATCH", "_ApplicationId": "shop", "_ApplicationKey": "k",
                ])
            )
        }
    }
}

@Suite(.timeLimit(.minutes(1)))
struct HiddenFieldsTests {
    @Test(
        "An app key cannot query hidden fields, at any depth",
        arguments: [
            ("_User", ["email": "a"]), ("_User", ["$or": [["x": 1], ["email.x": ["$gt": "a"]]]]),
            ("_Installation", ["owner": ["$inQuery": ["mobilePhoneNumber": ["$regex": "^1"]]]]),
            (
                "_Installation",
                [
                    "a": [
                        "$dontSelect": [
                            "key": "email", "query": ["className": "_User", "where": [:]],
                        ]
                    ]
                ]
            ),
            (
                "_Installation",
                ["o": ["$notInQuery": ["className": "_User", "where": [:], "order": "-email"]]]
            ),
        ] as [(String, JSONValue)]
    )
    func hidden(className: String, json: JSONValue) throws {
        #expect(HiddenFields.first(in: try Where.parse(json), of: className) != nil)
    }

    @Test("Fields of installations, and the other fields of identities, are not hidden")
    func shown() throws {
        let condition = try Where.parse(["email": "a", "owner": ["$inQuery": ["city": "x"]]])
        #expect(HiddenFields.first(in: condition, of: "_Installation") == nil)
        #expect(HiddenFields.hasSubquery(condition))
        #expect(!HiddenFields.hasSubquery(try Where.parse(["$or": [["a": 1], ["b": ["$gt": 2]]]])))
        let order = try SortKey.parse("name,-email")
        #expect(HiddenFields.first(in: .everything, order: order, of: "_User") != nil)
    }
}
