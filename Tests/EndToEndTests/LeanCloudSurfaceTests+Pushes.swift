import Foundation
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests.LeanCloudSurfaceTests {
    @Test("A request id of the last five minutes is sent once, even by ten concurrent requests")
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
        // Both are counted together under their common label.
        let label = try await eventually("both pushes of the label are delivered") {
            let record = try await api.call("GET", "notifications/camp1")
            return record.json?["successes"]?.integer == 2 ? record : nil
        }
        expect(label, 200)
        #expect(label.json?["notificationId"] == "camp1")
        #expect(label.json?["devices"] == 2)
        #expect(label.json?["iosSuccesses"] == 2)
    }

    @Test("Push records are found, read and deleted as objects of _Notification")
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
        // The ledger of a sent push stays visible to the operator.
        let shown = try await api.bench.stack.carillon("push", "show", ids[1], "--json")
        #expect(try JSONValue.parse(shown)["delivered"] == 1)
    }

    @Test(
        "A push that is too large, for unsupported phones, or with unknown fields is refused"
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

    @Test("A push is accepted as Apple's and Android's SDKs write it")
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

    @Test("push/devices sends to the devices of its list only")
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

    @Test("Scheduled pushes are listed with their fields")
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

    @Test("Statistics of old SDKs are answered as they expect, and opens are counted")
    func statistics() async throws {
        let api = try await API()
        let report: JSONValue = [
            "events": [
                "event": [
                    ["name": "!AV!AppOpen", "ts": 1], ["name": "!AV!PushOpen", "ts": 1],
                    ["name": "other", "ts": 1],
                ]
            ],
            "device": ["iid": "5f0a1b2c3d4e5f6071829304"],
        ]
        let opened: JSONValue = [
            "client": ["id": "b"], "session": ["id": "s"], "events": [["event": "!AV!AppOpen"]],
        ]
        for (method, path, body) in [
            ("POST", "stats/collect", report), ("POST", "stats/open/collect", opened),
            ("POST", "stats/crash", ["reason": "x"]),
            ("PUT", "always_collect", ["attributes": [:]]),
        ] {
            let answer = try await api.call(method, path, body: body, asClient: true)
            expect(answer, 200)
            #expect(answer.json == [:])
            let stranger = try await http(
                method,
                "\(api.bench.registration)/1.1/\(path)",
                headers: ["X-LC-Id": api.bench.app.id, "X-LC-Key": "wrong"],
                body: body
            )
            #expect(stranger.status == 401)
        }
        let policy = try await api.call(
            "GET",
            "statistics/apps/\(api.bench.app.id)/sendPolicy",
            asClient: true
        )
        expect(policy, 200)
        #expect(policy.json == ["policy": 6, "enable": true, "parameters": [:]])
        let large = JSONValue.string(String(repeating: "x", count: 300 << 10))
        #expect(
            try await api.call("POST", "stats/collect", body: ["x": large], asClient: true).status
                == 413
        )
        let shown = try JSONValue.parse(
            try await api.bench.stack.carillon("app", "show", api.bench.app.id, "--json")
        )
        let days = try #require(shown["opens"]?.array)
        // Two where midnight was between.
        #expect(days.compactMap { $0["opens"]?.integer }.reduce(0, +) == 2)
        #expect(days.compactMap { $0["pushOpens"]?.integer }.reduce(0, +) == 1)
    }
}
