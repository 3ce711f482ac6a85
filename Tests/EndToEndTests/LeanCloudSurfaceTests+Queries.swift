import Foundation
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests.LeanCloudSurfaceTests {
    @Test("A query supports where, order, limit, skip, keys and count, under both names")
    func queries() async throws {
        let api = try await API()
        let ids = try await api.fill()
        for path in ["installations", "classes/_Installation"] {
            let page = try await api.call(
                "GET",
                path,
                [
                    "where": #"{"badge":{"$gte":1},"channels":"all"}"#, "order": "-badge",
                    "limit": "2", "skip": "1", "count": "1", "keys": "badge,profile.city",
                ]
            )
            expect(page, 200)
            #expect(badges(page) == [4, 3])
            #expect(page.json?["count"]?.integer == 5)
            let first = page.json?["results"]?[0]?.object
            #expect(
                Set(first?.keys ?? []) == [
                    "objectId", "createdAt", "updatedAt", "badge", "profile",
                ]
            )
        }
        let count = try await api.call("GET", "installations", ["limit": "0", "count": "1"])
        #expect(count.json == ["results": [], "count": 6])
        // These are pages by id, as the JavaScript SDK's each() requests them.
        let behind = try await api.call(
            "GET",
            "classes/_Installation",
            ["where": #"{"objectId":{"$gt":"\#(ids[3])"}}"#, "order": "objectId"]
        )
        let sorted = ids.sorted()
        #expect(
            behind.json?["results"]?.array?.compactMap { $0["objectId"]?.string }
                == sorted.filter { $0 > ids[3] }
        )
        let excluded = try await api.call(
            "GET",
            "classes/_Installation/\(ids[0])",
            ["keys": "-deviceToken"]
        )
        expect(excluded, 200)
        #expect(excluded.json?["deviceToken"] == nil)
        #expect(excluded.json?["badge"] == 0)
    }

    @Test(
        "The app key may not list, delete, scan or see schedules, unless the owner allows it"
    )
    func rights() async throws {
        let api = try await API()
        let ids = try await api.fill()
        for (method, path) in [
            ("GET", "installations"), ("GET", "classes/_Installation"), ("GET", "users"),
            ("DELETE", "installations/\(ids[0])"), ("GET", "scan/classes/_Installation"),
            ("GET", "scheduledPushMessages"), ("GET", "classes/_Notification"),
            ("GET", "notifications"), ("DELETE", "notifications/x"),
        ] {
            let answer = try await api.call(method, path, asClient: true)
            expect(answer, 403, code: 119, naming: "master key")
        }
        let cql = try await api.call(
            "GET",
            "cloudQuery",
            ["cql": "select * from _Installation"],
            asClient: true
        )
        expect(cql, 403, code: 119)
        // A device may read its own object by id.
        expect(try await api.call("GET", "installations/\(ids[0])", asClient: true), 200)

        try await api.bench.stack.carillon("app", "set", api.bench.app.id, "client-find=on")
        try await api.bench.stack.carillon("app", "set", api.bench.app.id, "client-delete=on")
        _ = try await eventually("the settings are taken up") {
            let found = try await api.call("GET", "installations", asClient: true)
            return found.status == 200 ? true : nil
        }
        // Each loop of the service reads them by itself.
        _ = try await eventually("the other loops take them up, too") {
            let gone = try await api.call(
                "DELETE",
                "installations/\(ids[0])",
                asClient: true
            )
            return gone.status == 200 ? true : nil
        }
    }

    @Test("The app key can push by ordinary fields, and learns nothing hidden about people")
    func clientPushes() async throws {
        let api = try await API()
        _ = try await api.fill()
        let app = api.bench.app
        try await api.bench.stack.carillon("app", "set", app.id, "client-push=on")
        // Each loop of the service reads the setting by itself.
        func push(_ audience: JSONValue, naming word: String = "") async throws -> HTTPAnswer {
            var request = audience.object ?? [:]
            request["data"] = ["alert": "Ding"]
            request["dry_run"] = true
            let body = JSONValue.object(request)
            return try await eventually("the setting is taken up") {
                let answer = try await api.call("POST", "push", body: body, asClient: true)
                let text = answer.json?["error"]?.string ?? ""
                let isMeant = word.isEmpty || text.contains(word)
                return isMeant && !text.hasPrefix("Sending a push") ? answer : nil
            }
        }
        expect(try await push(["where": ["badge": ["$lt": 2]]]), 200)
        expect(try await push(["channels": ["even"]]), 200)
        expect(try await push(["cql": "select * from _Installation where badge > 3"]), 200)
        let email: JSONValue = [
            "where": [
                "owner": [
                    "$inQuery": ["className": "_User", "where": ["email": ["$regex": "^a"]]]
                ]
            ]
        ]
        let city: JSONValue = ["where": ["owner": ["$inQuery": ["city": "London"]]]]
        for audience in [email, city] {
            expect(try await push(audience, naming: "sub-query"), 403, code: 119)
        }
        var parsePush = email.object ?? [:]
        parsePush["data"] = ["alert": "Ding"]
        let parse = try await http(
            "POST",
            "\(api.bench.registration)/parse/push",
            headers: [
                "X-Parse-Application-Id": app.id, "X-Parse-REST-API-Key": app.appKey,
            ],
            body: .object(parsePush)
        )
        #expect(parse.status == 403 && parse.json?["code"] == 119)
        try await api.bench.stack.carillon("app", "set", app.id, "client-find=on")
        expect(try await push(email, naming: "email"), 403, code: 119)
        expect(try await api.call("POST", "push", body: .object(parsePush)), 200)
    }

    @Test("The total size of a batch's responses is bounded, and the rest is 116")
    func largeAnswers() async throws {
        let api = try await API()
        let line = String(repeating: "x", count: 1000)
        let phone = try await api.create(
            "classes/_Installation",
            [
                "deviceType": "android",
                "list": .array((0..<200).map { .string(line + "\($0)") }),
            ]
        )
        let save: JSONValue = [
            "method": "PUT", "path": .string("/1.1/classes/_Installation/\(phone)"),
            "body": [
                "list": ["__op": "AddUnique", "objects": ["y"]],
                "saves": ["__op": "Increment"],
            ],
        ]
        let saves = [JSONValue](repeating: save, count: 100)
        let saved = try await api.call(
            "POST",
            "batch/save",
            body: ["requests": .array(saves)]
        )
        expect(saved, 400, code: 116)
        // Items before the limit are executed, those after it are not.
        let kept = try await api.call("GET", "classes/_Installation/\(phone)")
        #expect((1..<100).contains(kept.json?["saves"]?.integer ?? 0))

        let long = JSONValue.string(String(repeating: "x", count: 250_000))
        let owner = try await api.create("users", ["username": "long", "text": long])
        let create: JSONValue = [
            "method": "POST", "path": "/1.1/installations",
            "body": [
                "deviceType": "android",
                "owner": [
                    "__type": "Pointer", "className": "_User", "objectId": .string(owner),
                ],
            ],
        ]
        let creates = [JSONValue](repeating: create, count: 70)
        expect(try await api.call("POST", "batch", body: ["requests": .array(creates)]), 200)
        var query = ["where": #"{"owner":{"$exists":true}}"#, "limit": "1000"]
        let pointers = try await api.call("GET", "installations", query)
        #expect(pointers.json?["results"]?.array?.count == 70)
        query["include"] = "owner"
        expect(try await api.call("GET", "installations", query), 400, code: 116)
        query["limit"] = "5"
        let few = try await api.call("GET", "installations", query)
        expect(few, 200)
        let included = few.json?["results"]?.array ?? []
        #expect(included.count == 5)
        #expect(included.allSatisfy { $0["owner"]?["text"] == long })
    }

    @Test("A scan reads all of a class, and marks its end")
    func scan() async throws {
        let api = try await API()
        let ids = try await api.fill()
        var seen: [String] = []
        var cursor: JSONValue?
        for _ in 0..<10 {
            var query = ["limit": "4", "where": #"{"channels":"all"}"#]
            if let text = cursor?.string { query["cursor"] = text }
            let page = try await api.call("GET", "scan/classes/_Installation", query)
            expect(page, 200)
            seen += (page.json?["results"]?.array ?? []).compactMap { $0["objectId"]?.string }
            cursor = page.json?["cursor"]
            if cursor == .null { break }
        }
        #expect(seen == ids.sorted())
        #expect(cursor == .null)
        let other = try await api.call(
            "GET",
            "scan/classes/_Installation",
            ["scan_key": "-badge", "limit": "1000"]
        )
        #expect(badges(other) == [5, 4, 3, 2, 1, 0])
        expect(
            try await api.call("GET", "scan/classes/_User", ["cursor": "nonsense"]),
            400,
            code: 107
        )
        expect(try await api.call("GET", "scan/classes/Post"), 404, code: 101, naming: "Post")
    }

    @Test("CQL queries the same as a where, and an unsupported query is 300 with its name")
    func cql() async throws {
        let api = try await API()
        _ = try await api.fill()
        let found = try await api.call(
            "GET",
            "cloudQuery",
            [
                "cql": "select badge, channels from _Installation where badge > ? "
                    + "and channels = 'all' limit 1,2 order by badge desc",
                "pvalues": "[1]",
            ]
        )
        expect(found, 200)
        #expect(found.json?["className"] == "_Installation")
        #expect(badges(found) == [4, 3])
        #expect(found.json?["results"]?[0]?["profile"] == nil)
        let count = try await api.call(
            "GET",
            "cloudQuery",
            ["cql": "select count(*) from _Installation where channels = 'even'"]
        )
        #expect(count.json == ["results": [], "className": "_Installation", "count": 3])
        for (text, word) in [
            ("select * from _Installation where a near geopoint(1,2)", "near"),
            ("select include owner from _Installation", "include"),
            ("delete from _Installation", "delete"),
        ] {
            expect(
                try await api.call("GET", "cloudQuery", ["cql": text]),
                400,
                code: 300,
                naming: word
            )
        }
        expect(
            try await api.call("GET", "cloudQuery", ["cql": "select * from Post"]),
            404,
            code: 101,
            naming: "Post"
        )
    }
}
