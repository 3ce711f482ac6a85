import Foundation
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests {
    /// LeanCloud's API 1.1 as its clients call it, over the built executable.
    @Suite("LeanCloud's surface", .runningStack, .serialized, .timeLimit(.minutes(4)))
    struct LeanCloudSurfaceTests {
        /// One app, and calls to the surface in its name.
        private struct API {
            let bench: Bench

            init() async throws { bench = try await Bench() }

            func call(
                _ method: String,
                _ path: String,
                _ query: [String: String] = [:],
                body: JSONValue? = nil,
                asClient: Bool = false,
                headers extra: [String: String] = [:]
            ) async throws -> HTTPAnswer {
                var allowed = CharacterSet.urlQueryAllowed
                allowed.remove(charactersIn: "+&=?#")
                let text = query.map { name, value in
                    let value = value.addingPercentEncoding(withAllowedCharacters: allowed) ?? ""
                    return "\(name)=\(value)"
                }.joined(separator: "&")
                return try await http(
                    method,
                    "\(bench.registration)/1.1/\(path)\(text.isEmpty ? "" : "?\(text)")",
                    headers: (asClient ? bench.app.clientHeaders : bench.app.masterHeaders)
                        .merging(extra) { _, theirs in theirs },
                    body: body
                )
            }

            func create(_ path: String, _ body: JSONValue) async throws -> String {
                let answer = try await call("POST", path, body: body)
                guard answer.status == 201, let id = answer.json?["objectId"]?.string else {
                    throw TestFailure("POST \(path): \(answer.status) \(answer.text)")
                }
                return id
            }

            /// Six installations: badge 0 to 5, every other of them in channel `even`.
            func fill() async throws -> [String] {
                var ids: [String] = []
                for number in 0..<6 {
                    ids.append(
                        try await create(
                            "classes/_Installation",
                            [
                                "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                                "badge": JSONValue(number), "profile": ["city": "c\(number)"],
                                "channels": number % 2 == 0 ? ["even", "all"] : ["all"],
                            ]
                        )
                    )
                }
                return ids
            }
        }

        private func expect(
            _ answer: HTTPAnswer,
            _ status: Int,
            code: Int? = nil,
            naming word: String = "",
            at location: SourceLocation = #_sourceLocation
        ) {
            #expect(answer.status == status, "\(answer.text)", sourceLocation: location)
            #expect(
                answer.header("content-type")?.hasPrefix("application/json") == true,
                sourceLocation: location
            )
            #expect(
                answer.header("access-control-allow-origin") == "*",
                sourceLocation: location
            )
            guard let code else {
                #expect(answer.json?["error"] == nil, sourceLocation: location)
                return
            }
            #expect(
                answer.json?["code"]?.integer == code,
                "\(answer.text)",
                sourceLocation: location
            )
            #expect(
                (answer.json?["error"]?.string).map { word.isEmpty || $0.contains(word) } == true,
                "\(answer.text)",
                sourceLocation: location
            )
        }

        private func badges(_ answer: HTTPAnswer) -> [Int?] {
            (answer.json?["results"]?.array ?? []).map { $0["badge"]?.integer }
        }

        @Test("A query answers where, order, limit, skip, keys and count, under both names")
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
            // Pages by id, as the JavaScript SDK's each() asks for them.
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
            "The app key may not list, delete, scan or look at schedules, until its owner says so"
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
            // One by its id is what a device reads of itself.
            expect(try await api.call("GET", "installations/\(ids[0])", asClient: true), 200)

            try await api.bench.stack.carillon("app", "set", api.bench.app.id, "client-find=on")
            try await api.bench.stack.carillon("app", "set", api.bench.app.id, "client-delete=on")
            _ = try await eventually("the settings are taken up") {
                let found = try await api.call("GET", "installations", asClient: true)
                return found.status == 200 ? true : nil
            }
            // Each loop of the service takes them up for itself.
            _ = try await eventually("the other loops take them up, too") {
                let gone = try await api.call(
                    "DELETE",
                    "installations/\(ids[0])",
                    asClient: true
                )
                return gone.status == 200 ? true : nil
            }
        }

        @Test("The app key pushes by ordinary fields, and learns nothing hidden of people by it")
        func clientPushes() async throws {
            let api = try await API()
            _ = try await api.fill()
            let app = api.bench.app
            try await api.bench.stack.carillon("app", "set", app.id, "client-push=on")
            // Each loop of the service takes the setting up for itself.
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

        @Test("What answers come to in all is bounded: the rest is 116")
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
            // Those before are done, those beyond are not.
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

        @Test("Operators answer with their results; what cannot be kept is refused by its key")
        func saves() async throws {
            let api = try await API()
            let created = try await api.call(
                "POST",
                "classes/_Installation",
                ["fetchWhenSave": "false"],
                body: [
                    "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                    "badge": ["__op": "Increment", "amount": 2],
                    "channels": ["__op": "AddUnique", "objects": ["a", "b"]],
                    "tags": ["__op": "Remove", "objects": ["x"]], "ACL": ["*": ["read": true]],
                ]
            )
            expect(created, 201)
            let id = try #require(created.json?["objectId"]?.string)
            #expect(created.header("location")?.hasSuffix("/1.1/installations/\(id)") == true)
            let outside = String(api.bench.registration.dropFirst("http".count))
            for (proto, scheme) in [("https", "https"), ("HTTPS , http", "https"), ("x", "http")] {
                let proxied = try await http(
                    "POST",
                    "\(api.bench.registration)/1.1/installations",
                    headers: api.bench.app.clientHeaders.merging(
                        ["X-Forwarded-Proto": proto]
                    ) { $1 },
                    body: ["deviceType": "ios", "installationId": "behind-a-proxy"]
                )
                #expect(
                    proxied.header("location")?
                        .hasPrefix(scheme + outside + "/1.1/installations/") == true
                )
            }
            #expect(created.json?["badge"] == 2)
            #expect(created.json?["channels"] == ["a", "b"])
            #expect(created.json?["tags"] == [])
            let path = "classes/_Installation/\(id)"
            let updated = try await api.call(
                "PUT",
                path,
                body: [
                    "badge": ["__op": "Increment"], "profile.city": "x",
                    "profile.n": ["__op": "Increment", "amount": 3], "plain": "p",
                ]
            )
            expect(updated, 200)
            #expect(updated.json?["badge"] == 3)
            #expect(updated.json?["profile"] == ["city": "x", "n": 3])
            #expect(updated.json?["plain"] == nil)
            #expect(updated.json?["updatedAt"] != nil)
            let asked = try await api.call("PUT", path, ["new": "true"], body: ["plain": "q"])
            #expect(asked.json?["plain"] == "q")
            #expect(asked.json?["badge"] == nil)
            let whole = try await api.call("GET", path)
            #expect(whole.json?["ACL"] == ["*": ["read": true]])
            let quiet = try await api.call("GET", path, ["returnACL": "false"])
            #expect(quiet.json?["ACL"] == nil)

            for (body, code, word) in [
                (["place": ["__type": "GeoPoint", "latitude": 95, "longitude": 0]], 302, "place"),
                (["owner": ["__type": "Pointer", "className": "_User"]], 106, "owner"),
                (["badge": "many"], 111, "badge"), (["channels": ["no good"]], 112, "channel"),
                (["deviceToken": "not a token"], 114, "token"), (["1st": 1], 105, "name"),
                (["a$b": 1], 121, "$"), (["x": ["y": ["$z": 1]]], 121, "$"),
                (["friends": ["__op": "AddRelation", "objects": []]], 1, "AddRelation"),
                (
                    [
                        "friends": [
                            "__op": "Batch",
                            "ops": [["__op": "RemoveRelation", "objects": []]],
                        ]
                    ], 1, "RemoveRelation"
                ), (["plain": ["__op": "Increment"]], 111, "plain"),
            ] as [(JSONValue, Int, String)] {
                expect(try await api.call("PUT", path, body: body), 400, code: code, naming: word)
            }
            let text = try await http(
                "PUT",
                "\(api.bench.registration)/1.1/\(path)",
                headers: api.bench.app.masterHeaders,
                bytes: Array("{\"badge\":".utf8)
            )
            expect(text, 400, code: 107)
        }

        @Test(
            "Apple's SDKs create at each save: their object id is meant, until it is deleted"
        )
        func savesOfAppleSDKs() async throws {
            let api = try await API()
            let ids = try await api.fill()
            func save(_ id: String, _ body: JSONObject) async throws -> HTTPAnswer {
                var body = body
                body["__internalId"] = .string(id)
                body["objectId"] = .string(id)
                body["deviceType"] = "ios"
                body["deviceToken"] = .string(makeAPNsToken())
                return try await api.call(
                    "POST",
                    "batch/save",
                    body: [
                        "requests": [
                            [
                                "method": "POST", "path": "/1.1/installations",
                                "body": .object(body), "new": true,
                            ]
                        ]
                    ],
                    asClient: true
                )
            }
            // A new token of the same phone.
            let saved = try await save(ids[2], ["apnsTeamId": "T"])
            expect(saved, 200)
            #expect(saved.json?[ids[2]]?["objectId"]?.string == ids[2], "\(saved.text)")
            let kept = try await api.call("GET", "installations/\(ids[2])")
            #expect(kept.json?["channels"] == ["even", "all"])
            #expect(kept.json?["apnsTeamId"] == "T")
            let count = try await api.call("GET", "installations", ["count": "1", "limit": "0"])
            #expect(count.json?["count"] == 6)
            expect(try await api.call("DELETE", "installations/\(ids[2])"), 200)
            let again = try await save(ids[2], ["badge": 3])
            expect(again, 200)
            let id = try #require(again.json?[ids[2]]?["objectId"]?.string)
            #expect(id != ids[2])
            #expect(try await api.call("GET", "installations/\(id)").json?["badge"] == 3)
        }

        @Test("What no route sees is refused in LeanCloud's form, too; a batch may be large")
        func serverErrors() async throws {
            let api = try await API()
            let (long, many) = (
                String(repeating: "a", count: 20_000), String(repeating: "a", count: 80_000)
            )
            let installations = "\(api.bench.registration)/1.1/installations"
            expect(try await http("GET", "\(installations)?where=\(long)"), 414, code: 1)
            expect(
                try await http("GET", installations, headers: ["X-Long": many]),
                431,
                code: 1
            )
            let headers = api.bench.app.masterHeaders
            let body = [UInt8](repeating: 0x20, count: (1 << 20) + 1)
            expect(
                try await http("POST", installations, headers: headers, bytes: body),
                413,
                code: 116
            )
            let item: JSONValue = [
                "method": "POST", "path": "/1.1/users", "body": ["note": .string(long)],
            ]
            let batch = try await api.call(
                "POST",
                "batch",
                body: ["requests": .array([JSONValue](repeating: item, count: 60))]
            )
            expect(batch, 200)
            #expect(batch.json?.array?.allSatisfy { $0["success"] != nil } == true)
        }

        @Test("An update or a delete with a condition happens where it holds, else it is 305")
        func conditions() async throws {
            let api = try await API()
            let ids = try await api.fill()
            let path = "installations/\(ids[2])"
            let holds = try await api.call(
                "PUT",
                path,
                ["where": #"{"badge":2}"#],
                body: ["badge": 20]
            )
            expect(holds, 200)
            let fails = try await api.call(
                "PUT",
                path,
                ["where": #"{"badge":2}"#],
                body: ["badge": 30]
            )
            expect(fails, 400, code: 305)
            #expect(try await api.call("GET", path).json?["badge"] == 20)
            expect(try await api.call("PUT", "installations/none", body: [:]), 404, code: 101)
            expect(
                try await api.call("PUT", "installations/none", ["where": "{}"], body: [:]),
                404,
                code: 101
            )
            expect(
                try await api.call("DELETE", path, ["where": #"{"badge":2}"#]),
                400,
                code: 305
            )
            expect(try await api.call("DELETE", path, ["where": #"{"badge":20}"#], body: [:]), 200)
            expect(try await api.call("GET", path), 404, code: 101)
            // Several at once.
            expect(try await api.call("DELETE", "installations/\(ids[0]),\(ids[1])"), 200)
            expect(try await api.call("DELETE", "installations/\(ids[0]),x"), 404, code: 101)
            let left = try await api.call("GET", "installations", ["count": "1", "limit": "0"])
            #expect(left.json?["count"] == 3)
        }

        @Test(
            "Identities are kept with their fields, found, and pointed to; nobody gets a password"
        )
        func identities() async throws {
            let api = try await API()
            let created = try await api.call(
                "POST",
                "users",
                body: [
                    "username": "ada", "city": "London", "age": 36, "email": "ada@example.com",
                    "location": ["__type": "GeoPoint", "latitude": 51.5, "longitude": -0.1],
                ]
            )
            expect(created, 201)
            let ada = try #require(created.json?["objectId"]?.string)
            #expect(created.header("location")?.hasSuffix("/1.1/users/\(ada)") == true)
            let bob = try await api.create("classes/_User", ["username": "bob", "city": "Paris"])
            expect(
                try await api.call("POST", "users", body: ["username": "ada"]),
                400,
                code: 202
            )
            for field in ["password", "authData", "sessionToken"] {
                let body = JSONValue.object(
                    JSONObject([("username", "eve"), (field, .string("hunter2"))])
                )
                let refused = try await api.call("POST", "users", body: body)
                expect(refused, 400, code: 1, naming: field)
                #expect(!refused.text.contains("hunter2"))
                let later = try await api.call(
                    "PUT",
                    "classes/_User/\(bob)",
                    body: .object(JSONObject([(field, .string("hunter2"))]))
                )
                expect(later, 400, code: 1, naming: field)
            }
            expect(
                try await api.call("POST", "users", body: ["username": "eve"], asClient: true),
                403,
                code: 119
            )
            let seen = try await api.call("GET", "users/\(ada)", asClient: true)
            expect(seen, 200)
            #expect(seen.json?["city"] == "London")
            #expect(seen.json?["email"] == nil)
            #expect(try await api.call("GET", "users/\(ada)").json?["email"] == "ada@example.com")

            let phone = try await api.create(
                "installations",
                [
                    "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                    "owner": [
                        "__type": "Pointer", "className": "_User", "objectId": .string(ada),
                    ],
                ]
            )
            _ = try await api.fill()
            for query in [
                #"{"owner":{"$inQuery":{"city":"London"}}}"#,
                #"{"owner":{"$inQuery":{"className":"_User","where":{"age":{"$gt":30}}}}}"#,
                """
                {"owner":{"$inQuery":{"location":{"$nearSphere":{"__type":"GeoPoint","latitude":51,
                "longitude":0},"$maxDistanceInKilometers":100}}}}
                """,
            ] {
                let found = try await api.call(
                    "GET",
                    "installations",
                    ["where": query, "include": "owner"]
                )
                #expect(found.json?["results"]?.array?.count == 1, "\(found.text)")
                let object = found.json?["results"]?[0]
                #expect(object?["objectId"]?.string == phone)
                #expect(object?["owner"]?["__type"] == "Object")
                #expect(object?["owner"]?["city"] == "London")
            }
            let users = try await api.call(
                "GET",
                "classes/_User",
                ["where": #"{"city":{"$in":["Paris","London"]}}"#, "order": "-username"]
            )
            #expect(
                users.json?["results"]?.array?.map { $0["username"] } == ["bob", "ada"],
                "\(users.text)"
            )
            let moved = try await api.call(
                "PUT",
                "classes/_User/\(bob)",
                ["where": #"{"city":"Paris"}"#],
                body: ["city": "Rome", "visits": ["__op": "Increment"]]
            )
            expect(moved, 200)
            #expect(moved.json?["visits"] == 1)
            let stale = try await api.call(
                "PUT",
                "classes/_User/\(bob)",
                ["where": #"{"city":"Paris"}"#],
                body: ["city": "Oslo"]
            )
            expect(stale, 400, code: 305)
            expect(
                try await api.call("PUT", "users/\(bob)", body: ["username": "ada"]),
                400,
                code: 202
            )
            expect(try await api.call("DELETE", "classes/_User/\(bob)", body: [:]), 200)
            expect(try await api.call("GET", "classes/_User/\(bob)"), 404, code: 101)
            expect(try await api.call("GET", "users/me"), 400, code: 1, naming: "users/me")
        }

        @Test(
            "A batch runs its items one by one, each with its own success or error, in their order"
        )
        func batch() async throws {
            let api = try await API()
            let ids = try await api.fill()
            let answer = try await api.call(
                "POST",
                "batch",
                body: [
                    "requests": [
                        ["method": "POST", "path": "/1.1/users", "body": ["username": "kid"]],
                        [
                            "method": "PUT", "path": "/1.1/classes/_Installation/\(ids[0])",
                            "body": ["badge": ["__op": "Increment"]],
                            "params": ["fetchWhenSave": true],
                        ],
                        [
                            "method": "GET", "path": "/1.1/classes/_Installation",
                            "params": [
                                "where": ["channels": "even"], "order": "badge", "limit": 2,
                            ],
                        ],
                        ["method": "PUT", "path": "/1.1/installations/none", "body": [:]],
                        ["method": "GET", "path": "/1.1/classes/_Installation/\(ids[1])"],
                        [
                            "method": "DELETE",
                            "path": "/1.1/classes/_Installation/\(ids[4]),\(ids[5])", "body": [:],
                        ],
                        ["method": "POST", "path": "/1.1/batch", "body": ["requests": []]],
                        ["method": "GET", "path": "/1.1/classes/Post"], ["method": "GET"],
                    ]
                ]
            )
            expect(answer, 200)
            let items = try #require(answer.json?.array)
            #expect(items.count == 9)
            #expect(items[0]["success"]?["objectId"]?.string != nil)
            #expect(items[1]["success"]?["badge"] == 1)
            #expect(items[2]["success"]?["results"]?.array?.map { $0["badge"] } == [1, 2])
            #expect(items[3]["error"]?["code"] == 101)
            #expect(items[4]["success"]?["objectId"]?.string == ids[1])
            #expect(items[5]["success"] == [:])
            #expect(items[6]["error"]?["code"] == 107)
            #expect(items[7]["error"]?["code"] == 101)
            #expect(items[8]["error"]?["code"] == 107)
            expect(try await api.call("POST", "batch", body: ["requests": 1]), 400, code: 107)
            let many = [JSONValue](repeating: ["method": "GET", "path": "/1.1/date"], count: 1001)
            expect(
                try await api.call("POST", "batch", body: ["requests": .array(many)]),
                400,
                code: 107
            )
            // What a client may not do alone, it may not in a batch.
            let client = try await api.call(
                "POST",
                "batch",
                body: ["requests": [["method": "GET", "path": "/1.1/installations"]]],
                asClient: true
            )
            #expect(client.json?[0]?["error"]?["code"] == 119)
            let saved = try await api.call(
                "POST",
                "batch/save",
                body: [
                    "requests": [
                        [
                            "method": "POST", "path": "/1.1/classes/_Installation",
                            "body": ["__internalId": "n1", "deviceType": "android"],
                        ],
                        [
                            "method": "PUT", "path": "/1.1/classes/_Installation/\(ids[0])",
                            "body": ["badge": 9],
                        ],
                    ]
                ]
            )
            expect(saved, 200)
            #expect(saved.json?["n1"]?["objectId"]?.string != nil)
            #expect(saved.json?[ids[0]]?["updatedAt"] != nil)
        }

        @Test("A browser's form, old headers, a body of null and a bare ? mean what they did")
        func oldWays() async throws {
            let api = try await API()
            let ids = try await api.fill()
            let app = api.bench.app
            let url = "\(api.bench.registration)/1.1"
            func form(_ path: String, _ body: JSONValue) async throws -> HTTPAnswer {
                try await http(
                    "POST",
                    "\(url)/\(path)",
                    headers: ["Content-Type": "text/plain;charset=UTF-8"],
                    bytes: body.bytes
                )
            }
            let found = try await form(
                "installations",
                [
                    "_method": "GET", "_ApplicationId": .string(app.id),
                    "_ApplicationKey": .string("\(app.masterKey),master"),
                    "where": ["badge": ["$lt": 2]], "order": "badge",
                ]
            )
            expect(found, 200)
            #expect(badges(found) == [0, 1])
            let changed = try await form(
                "installations/\(ids[0])",
                [
                    "_method": "PUT", "_ApplicationId": .string(app.id),
                    "_ApplicationKey": .string(app.appKey), "badge": 7,
                ]
            )
            expect(changed, 200)
            let created = try await form(
                "installations",
                [
                    "_ApplicationId": .string(app.id), "_ApplicationKey": .string(app.appKey),
                    "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
                ]
            )
            expect(created, 201)
            let stranger = try await form(
                "installations",
                ["_ApplicationId": .string(app.id), "_ApplicationKey": "wrong"]
            )
            expect(stranger, 401, code: 401)
            let old = try await http(
                "GET",
                "\(url)/installations/\(ids[0])?",
                headers: [
                    "X-AVOSCloud-Application-Id": app.id,
                    "X-AVOSCloud-Application-Key": app.appKey, "X-LC-Session": "whatever",
                    "Content-Type": "application/json;charset=UTF-8",
                ],
                bytes: Array("null".utf8)
            )
            expect(old, 200)
            #expect(old.json?["badge"] == 7)
            let asked = try await http("OPTIONS", "\(url)/classes/_Installation")
            #expect(asked.status == 200)
            #expect(asked.header("access-control-allow-headers")?.contains("X-LC-Sign") == true)
        }

        @Test("A scan walks through all of a class, and says where it ends")
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

        @Test("CQL asks what a where asks, and what it cannot ask is refused by 300 and its name")
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

        @Test("A request id of the last five minutes is sent once, even by ten at the same time")
        func requestIDs() async throws {
            let api = try await API()
            let token = makeAPNsToken()
            _ = try await api.bench.registerPhone(token: token, channels: ["news"])
            let body: JSONValue = [
                "channels": ["news"], "data": ["alert": "Once"], "req_id": "r1",
                "notification_id": "camp1",
            ]
            let ids = try await withThrowingTaskGroup(of: String?.self) { group in
                for _ in 0..<10 {
                    group.addTask {
                        try await api.call("POST", "push", body: body).json?["objectId"]?.string
                    }
                }
                var ids: Set<String?> = []
                for try await id in group { ids.insert(id) }
                return ids
            }
            #expect(ids.count == 1)
            let id = try #require(ids.first ?? nil)
            let another = try await api.call(
                "POST",
                "push",
                body: [
                    "channels": "news", "data": ["alert": "Twice"], "req_id": "r2",
                    "notification_id": "camp1",
                ]
            )
            expect(another, 200)
            #expect(another.json?["objectId"]?.string != id)
            _ = try await api.bench.simulator.waitFor(2, for: token)
            expect(
                try await api.call(
                    "POST",
                    "push",
                    body: ["data": ["alert": "x"], "req_id": "not alphanumeric"]
                ),
                400,
                code: 1,
                naming: "req_id"
            )
            // Both are counted together under the label that they share.
            let label = try await eventually("both pushes of the label are delivered") {
                let record = try await api.call("GET", "notifications/camp1")
                return record.json?["successes"]?.integer == 2 ? record : nil
            }
            expect(label, 200)
            #expect(label.json?["notificationId"] == "camp1")
            #expect(label.json?["devices"] == 2)
            #expect(label.json?["iosSuccesses"] == 2)
        }

        @Test("Push records are found, read and taken away as objects of _Notification")
        func records() async throws {
            let api = try await API()
            _ = try await api.bench.registerPhone(token: makeAPNsToken(), channels: ["news"])
            var ids: [String] = []
            for number in 0..<3 {
                let answer = try await api.call(
                    "POST",
                    "push",
                    body: ["channels": ["news"], "data": ["alert": "No. \(number)"]],
                    headers: number == 2 ? ["X-LC-Prod": "0"] : [:]
                )
                ids.append(try #require(answer.json?["objectId"]?.string))
            }
            _ = try await eventually("all pushes are done") {
                let done = try await api.call(
                    "GET",
                    "classes/_Notification",
                    ["where": #"{"status":"done"}"#, "count": "1", "limit": "0"]
                )
                return done.json?["count"] == 3 ? true : nil
            }
            let page = try await api.call(
                "GET",
                "classes/_Notification",
                ["where": #"{"prod":"prod"}"#, "order": "-createdAt", "limit": "1", "count": "1"]
            )
            expect(page, 200)
            #expect(page.json?["count"] == 2)
            let record = try #require(page.json?["results"]?[0])
            #expect(record["objectId"]?.string == ids[1])
            #expect(record["notificationId"]?.string == ids[1])
            #expect(record["data"] == ["alert": "No. 1"])
            #expect(record["from-service"] == "push")
            #expect(record["devices"] == 1)
            #expect(record["successes"] == 1)
            #expect(record["iosSuccesses"] == 1)
            #expect(record["androidSuccesses"] == 0)
            #expect(record["wpSuccesses"] == 0)
            for path in ["classes/_Notification/\(ids[1])", "tables/Notifications/\(ids[1])"] {
                #expect(try await api.call("GET", path).json == record)
                let seen = try await api.call("GET", path, asClient: true)
                #expect(seen.json?["successes"] == 1)
                #expect(seen.json?["data"] == nil)
            }
            let ours = try await api.call(
                "GET",
                "classes/_Notification",
                ["where": #"{"from-service":"push","objectId":"\#(ids[0])"}"#]
            )
            #expect(ours.json?["results"]?.array?.count == 1)
            let single = try await api.call(
                "GET",
                "classes/_Notification",
                ["where": #"{"objectId":"\#(ids[2])"}"#]
            )
            #expect(single.json?["results"]?.array?.count == 1)
            #expect(single.json?["results"]?[0]?["prod"] == "dev")
            expect(
                try await api.call("GET", "classes/_Notification", ["where": #"{"data.a":1}"#]),
                400,
                code: 102,
                naming: "data.a"
            )
            expect(try await api.call("DELETE", "notifications/\(ids[1])"), 200)
            for path in ["classes/_Notification/\(ids[1])", "notifications/\(ids[1])"] {
                expect(try await api.call("GET", path), 404, code: 101)
            }
            let rest = try await api.call("GET", "notifications")
            #expect(rest.json?["results"]?.array?.count == 2)
            // The ledger of what was sent stays the operator's.
            let shown = try await api.bench.stack.carillon("push", "show", ids[1], "--json")
            #expect(try JSONValue.parse(shown)["delivered"] == 1)
        }

        @Test(
            "A push too large, for other makers' phones, or of fields that are not known is refused"
        )
        func refusedPushes() async throws {
            let api = try await API()
            let long = String(repeating: "x", count: 4096)
            expect(
                try await api.call("POST", "push", body: ["data": ["alert": .string(long)]]),
                413,
                code: 413
            )
            for (body, word) in [
                (["device_type": "ios", "device_ids": ["aa"]], "data"),
                (["device_type": "tv", "device_ids": ["a"], "data": [:]], "device_type"),
                (["device_type": "ios", "device_ids": [], "data": [:]], "device_ids"),
                (
                    [
                        "device_type": "android", "device_ids": ["a"], "data": [:],
                        "vendor": "mi",
                    ], "vendor"
                ),
                (
                    ["device_type": "ios", "device_ids": ["a"], "data": [:], "where": [:]],
                    "where"
                ),
            ] as [(JSONValue, String)] {
                expect(
                    try await api.call("POST", "push/devices", body: body),
                    400,
                    code: 1,
                    naming: word
                )
            }
            expect(
                try await api.call("POST", "push", body: ["data": ["alert": "x"]], asClient: true),
                403,
                code: 119
            )
        }

        @Test("A push is taken as the SDKs of Apple's and of Android's phones write it")
        func pushesOfSDKs() async throws {
            let api = try await API()
            let token = makeAPNsToken()
            _ = try await api.bench.registerPhone(token: token, channels: ["Giants"])
            _ = try await api.bench.registerPhone(token: makeAPNsToken(), channels: ["Mets"])
            let end = Instant.now().adding(milliseconds: 3_600_000).iso8601
            for (number, fields)
                in ([
                    ["expiration_interval": 3600.5, "push_time": .string(Instant.now().iso8601)],
                    ["expiration_time": ["__type": "Date", "iso": .string(end)]], [:],
                ] as [JSONObject]).enumerated()
            {
                var body = fields
                body["where"] = #"{"channels":"Giants","deviceType":{"$in":["ios"]}}"#
                body["data"] = ["alert": .string("No. \(number)")]
                let answer = try await api.call(
                    "POST",
                    "push",
                    body: .object(body),
                    headers: number == 2 ? ["X-AVOSCloud-Application-Production": "0"] : [:]
                )
                expect(answer, 200)
                let id = try #require(answer.json?["objectId"]?.string)
                let record = try await eventually("push \(number) is done") {
                    let record = try await api.call("GET", "tables/Notifications/\(id)")
                    return record.json?["status"] == "done" ? record : nil
                }
                #expect(record.json?["devices"] == 1, "\(record.text)")
                #expect(record.json?["successes"] == 1, "\(record.text)")
                #expect(record.json?["where"]?["channels"] == "Giants")
                #expect(record.json?["prod"]?.string == (number == 2 ? "dev" : "prod"))
            }
            let received = try await api.bench.simulator.received(for: token)
            #expect(received.count == 3)
            for (field, value, code) in [
                ("where", "{\"channels\":", 107), ("where", "\"Giants\"", 1),
                ("notification_id", "not-one", 1), ("expiration_time", ["__type": "Date"], 1),
            ] as [(String, JSONValue, Int)] {
                let content: JSONValue = ["alert": "x"]
                let body = JSONObject([("data", content), (field, value)])
                expect(
                    try await api.call("POST", "push", body: .object(body)),
                    400,
                    code: code,
                    naming: field
                )
            }
        }

        @Test("push/devices rings the devices of its list, and no others")
        func devices() async throws {
            let api = try await API()
            let (first, second, stranger) = (makeAPNsToken(), makeAPNsToken(), makeAPNsToken())
            _ = try await api.bench.registerPhone(token: first, channels: [])
            _ = try await api.bench.registerPhone(token: second, channels: [])
            _ = try await api.create(
                "installations",
                [
                    "deviceType": "android", "installationId": "droid-1",
                    "registrationId": "fcm-token-of-droid-1",
                ]
            )
            for (type, list) in [
                ("ios", [first.uppercased()]), ("ios", [stranger]), ("android", ["droid-1"]),
            ] {
                let answer = try await api.call(
                    "POST",
                    "push/devices",
                    body: [
                        "device_type": .string(type),
                        "device_ids": .array(list.map(JSONValue.string)),
                        "data": ["alert": "You alone"], "topic": .string(api.bench.app.bundleID),
                    ]
                )
                expect(answer, 200)
                let id = try #require(answer.json?["objectId"]?.string)
                let record = try await eventually("the push is done") {
                    let record = try await api.call("GET", "tables/Notifications/\(id)")
                    return record.json?["status"] == "done" ? record : nil
                }
                #expect(record.json?["targeted"] == 1, "\(record.text)")
                #expect(record.json?["delivered"] == 1, "\(record.text)")
            }
        }

        @Test("Scheduled pushes are listed by their fields")
        func schedules() async throws {
            let api = try await API()
            let time = Instant.now().adding(milliseconds: 3_600_000).iso8601
            for label in ["one", "two"] {
                let answer = try await api.call(
                    "POST",
                    "push",
                    body: [
                        "data": ["alert": "Later"], "push_time": .string(time),
                        "notification_id": .string(label),
                    ]
                )
                expect(answer, 200)
            }
            let all = try await api.call("GET", "scheduledPushMessages")
            #expect(all.json?["results"]?.array?.count == 2)
            let one = try await api.call(
                "GET",
                "scheduledPushMessages",
                ["where": #"{"notificationId":"one"}"#]
            )
            let item = try #require(one.json?["results"]?[0])
            #expect(one.json?["results"]?.array?.count == 1)
            #expect(item["push_msg"]?["notificationId"] == "one")
            #expect(item["push_msg"]?.object?["through?"] == .null)
            let number = try #require(item["id"]?.integer)
            expect(try await api.call("DELETE", "scheduledPushMessages/\(number)"), 200)
            expect(
                try await api.call("DELETE", "scheduledPushMessages/\(number)"),
                404,
                code: 101
            )
        }

        @Test("What is not part of the service is refused by its name")
        func notPart() async throws {
            let api = try await API()
            for (method, path, status, code, word) in [
                ("GET", "classes/Post", 404, 101, "Post"),
                ("POST", "classes/Post", 404, 101, "Post"),
                ("GET", "classes/Post/x", 404, 101, "Post"),
                ("POST", "functions/hello", 400, 1, "functions"),
                ("POST", "login", 400, 1, "login"), ("GET", "roles", 400, 1, "roles"),
                ("POST", "files/a.png", 400, 1, "files"),
                ("PUT", "classes/_Notification/x", 405, 1, "method"),
                ("GET", "nonsense", 404, 1, "nothing"),
            ] {
                let body: JSONValue? = method == "GET" ? nil : [:]
                expect(
                    try await api.call(method, path, body: body),
                    status,
                    code: code,
                    naming: word
                )
            }
            let date = try await api.call("GET", "date")
            #expect(date.json?["__type"] == "Date")
        }
    }
}
