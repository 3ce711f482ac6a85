import Foundation
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests.LeanCloudSurfaceTests {
    @Test("Operators return their results, and an invalid value is refused by its key")
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
        "Apple's SDKs create at each save, which updates their object until it is deleted"
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
        // The same phone has a new token.
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

    @Test("A conditional update or delete is applied if its condition is true, or else is 305")
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
        // Several are deleted at once.
        expect(try await api.call("DELETE", "installations/\(ids[0]),\(ids[1])"), 200)
        expect(try await api.call("DELETE", "installations/\(ids[0]),x"), 404, code: 101)
        let left = try await api.call("GET", "installations", ["count": "1", "limit": "0"])
        #expect(left.json?["count"] == 3)
    }

    @Test(
        "Identities are stored with their fields, found, and pointed to, without passwords"
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
}
