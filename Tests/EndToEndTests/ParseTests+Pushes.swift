import Foundation
import JSON
import Support
import Testing

extension EndToEndTests.ParseTests {
    @Test("A push reaches its audience, as its status shows")
    func pushes() async throws {
        let parse = try await ParseBench()
        var tokens: [String] = []
        for channel in ["Giants", "Mets", "Yanks"] {
            let token = makeAPNsToken()
            tokens.append(token)
            _ = try await parse.bench.registerPhone(token: token, channels: [channel])
        }
        let sent = try await parse.master(
            "POST",
            "/push",
            [
                "channels": ["Giants", "Mets"],
                "data": ["alert": "The Giants won!", "badge": "increment"],
                "expiration_interval": 518_400,
            ]
        )
        #expect(sent.status == 200 && sent.json == ["result": true])
        #expect(
            sent.header("access-control-expose-headers")
                == "X-Parse-Job-Status-Id, X-Parse-Push-Status-Id"
        )
        let id = try #require(sent.header("x-parse-push-status-id"))
        let status = try await parse.status(of: id, "succeeded")
        #expect(status["numSent"] == 2 && status["numFailed"] == 0)
        #expect(status["sentPerType"] == ["ios": 2])
        #expect(status["source"] == "rest" && status["ACL"] == [:])
        #expect(status["query"] == #"{"channels":{"$in":["Giants","Mets"]}}"#)
        #expect(status["pushHash"] == "4d39fcf58cebbbffeb5249a2389ee884")
        #expect(status["expiry"]?.integer != nil && status["pushTime"]?.string != nil)
        let payload = try JSONValue.parse(status["payload"]?.string ?? "")
        #expect(payload["alert"] == "The Giants won!")

        let byWhere = try await parse.package(
            "/push",
            [
                "where": ["channels": "Yanks"],
                "data": ["alert": "Yanks", "badge": ["__op": "Increment", "amount": 3]],
            ],
            master: true
        )
        let second = try #require(byWhere.header("x-parse-push-status-id"))
        _ = try await parse.status(of: second, "succeeded")
        for (token, badge) in zip(tokens, [1, 1, 3]) {
            let received = try await parse.bench.simulator.received(for: token)
            #expect(received.map { $0.body["aps"]?["badge"]?.integer } == [badge])
        }

        // A number is sent and stored, and Parse's own names set Apple's headers.
        let set = try await parse.master(
            "POST",
            "/push",
            [
                "where": ["channels": "Yanks"],
                "data": ["alert": "Yanks", "badge": 9, "push_type": "alert", "priority": 5],
            ]
        )
        let third = try #require(set.header("x-parse-push-status-id"))
        let shown = try await parse.status(of: third, "succeeded")
        let words = try JSONValue.parse(shown["payload"]?.string ?? "")
        #expect(words["badge"] == 9 && words["priority"] == 5)
        let last = try #require(
            try await parse.bench.simulator.received(for: tokens[2]).last
        )
        #expect(last.body["aps"]?["badge"] == 9)
        #expect(last.header("apns-priority") == "5")
        #expect(last.body["priority"] == nil && last.body["push_type"] == nil)
        let raised = try await parse.master(
            "GET",
            "/installations",
            query: ["where": #"{"channels":"Yanks"}"#]
        )
        #expect(raised.json?["results"]?[0]?["badge"] == 9)

        // The package repeats the same call like this: it is one push.
        let repeated = try await parse.repeatedPush(["where": ["channels": "Yanks"]], times: 3)
        #expect(repeated.count == 1)

        let later = try await parse.master(
            "POST",
            "/push",
            [
                "where": [:], "data": ["alert": "later"],
                "push_time": JSONValue(Int(Date.now.timeIntervalSince1970) + 3600),
            ]
        )
        let waiting = try #require(later.header("x-parse-push-status-id"))
        _ = try await parse.status(of: waiting, "scheduled")
        for (condition, count) in [
            (#"{"status": "succeeded"}"#, 4), (#"{"status": "scheduled"}"#, 1),
            (#"{"status": "failed"}"#, 0), (#"{"numSent": {"$gte": 2}}"#, 1),
        ] {
            let found = try await parse.master(
                "GET",
                "/classes/_PushStatus",
                query: ["where": condition, "order": "-createdAt"]
            )
            #expect(found.json?["results"]?.array?.count == count, "\(condition)")
        }
        let hidden = try await parse.rest("GET", "/classes/_PushStatus/\(id)")
        #expect(hidden.status == 400 && hidden.code == 119)
    }

    @Test("An invalid push is refused at once, and never as a server error")
    func refusedPushes() async throws {
        let parse = try await ParseBench()
        let data: JSONValue = ["alert": "x"]
        for (body, code): (JSONValue, Int) in [
            (["data": data], 115), (["channels": ["a"], "where": [:], "data": data], 115),
            (["channels": ["a"]], 115),
            (["channels": [.string(String(repeating: "a", count: 257))], "data": data], 112),
            (["where": ["a": ["$above": 1]], "data": data], 102),
            (["where": [:], "data": ["badge": "many"]], 115),
            (["where": [:], "data": data, "push_time": "soon"], 115),
            (["where": [:], "data": data, "expiration_interval": "1"], 115),
            (
                ["where": [:], "data": data, "expiration_interval": 1, "expiration_time": 1],
                115
            ),
            (["where": [:], "data": data, "app": "other"], 115),
        ] {
            let answer = try await parse.master("POST", "/push", body)
            #expect((400..<500).contains(answer.status), "\(body): \(answer.status)")
            #expect(answer.code == code, "\(body): \(answer.text)")
            #expect(answer.header("x-parse-push-status-id") == nil)
        }
        let stranger = try await parse.rest("POST", "/push", ["where": [:], "data": data])
        #expect(stranger.status == 403 && stranger.code == 119)
    }

    @Test("A batch executes each of its requests, and fails as a whole only if Parse's does")
    func batches() async throws {
        let parse = try await ParseBench()
        func item(_ method: String, _ path: String, _ body: JSONValue) -> JSONValue {
            ["method": .string(method), "path": .string(path), "body": body]
        }
        let phone: JSONValue = [
            "deviceType": "ios", "deviceToken": .string(makeAPNsToken()),
            "badge": ["__op": "Increment", "amount": 2],
        ]
        let answer = try await parse.package(
            "/batch",
            [
                "requests": [
                    item("POST", "/parse/classes/_Installation", phone),
                    item("PUT", "/parse/classes/_Installation/unknown", ["badge": 1]),
                    item("POST", "/parse/users", ["username": "ann"]),
                    item("GET", "/parse/classes/_User?count=1", [:]),
                    item("POST", "/parse/classes/Team", ["a": 1]),
                ]
            ],
            master: true
        )
        #expect(answer.status == 200)
        let results = try #require(answer.json?.array)
        #expect(results.count == 5)
        #expect(results[0]["success"]?["badge"] == 2)
        #expect(results[0]["success"]?["objectId"]?.string != nil)
        #expect(results[1]["error"]?["code"] == 101)
        #expect(results[2]["success"]?["objectId"]?.string != nil)
        #expect(results[3]["success"]?["count"] == 1)
        #expect(results[4]["error"]?["code"] == 119)
        for (body, code): (JSONValue, Int) in [
            (["requests": [item("POST", "/parse/batch", ["requests": []])]], 107),
            (["requests": 1], 107), ([:], 107),
            (["requests": [item("GET", "/1.1/installations/x", [:])]], 107),
            (["requests": [], "transaction": true], 108),
            (["requests": [item("GET", "/parse/users/a\0b", [:])]], 107),
            (
                [
                    "requests": .array(
                        Array(repeating: item("GET", "/parse/users/x", [:]), count: 1001)
                    )
                ], 107
            ),
        ] {
            let answer = try await parse.package("/batch", body, master: true)
            #expect(answer.status == 400 && answer.code == code)
        }
    }

    @Test("Identities are stored without passwords, and pointed to")
    func identities() async throws {
        let parse = try await ParseBench()
        let made = try await parse.master(
            "POST",
            "/users",
            ["username": "ann", "city": "Oslo", "age": ["__op": "Increment", "amount": 30]]
        )
        #expect(made.status == 201 && made.json?["age"] == 30)
        let id = try #require(made.json?["objectId"]?.string)
        let pointer: JSONValue = [
            "__type": "Pointer", "className": "_User", "objectId": .string(id),
        ]
        let phone = try await parse.rest(
            "POST",
            "/installations",
            ["deviceType": "ios", "deviceToken": .string(makeAPNsToken()), "user": pointer]
        )
        #expect(phone.status == 201)
        for include in ["user", "*", "user.boss,city.part"] {
            let found = try await parse.package(
                "/classes/_Installation",
                [
                    "_method": "GET", "include": .string(include),
                    "where": [
                        "user": ["$inQuery": ["className": "_User", "where": ["city": "Oslo"]]]
                    ],
                ],
                master: true
            )
            let user = found.json?["results"]?.array?.first?["user"]
            #expect(user?["city"] == "Oslo" && user?["__type"] == "Object")
        }
        let refused = try await parse.master(
            "POST",
            "/users",
            ["username": "eve", "password": "hunter2"]
        )
        #expect(refused.status == 400 && refused.text.contains("password"))
        let deleted = try await parse.master("DELETE", "/users/\(id)")
        #expect(deleted.status == 200)
    }
}
