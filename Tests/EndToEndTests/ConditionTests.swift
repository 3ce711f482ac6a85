import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Pushes to a condition", .runningStack, .serialized, .timeLimit(.minutes(3)))
    struct ConditionTests {
        /// Makes phones with custom fields, and returns them by name.
        private func phones(_ bench: Bench) async throws -> [String: String] {
            var tokens: [String: String] = [:]
            for (name, fields) in [
                ("old ios", ["age": 70, "city": "Oslo"]), ("young ios", ["age": 20]),
                ("owned ios", ["age": 33, "city": "Oslo"]), ("array ios", [:]),
            ] as [(String, JSONObject)] {
                let token = makeAPNsToken()
                tokens[name] = token
                var object = fields
                object["deviceType"] = "ios"
                object["deviceToken"] = .string(token)
                object["apnsTopic"] = .string(bench.app.bundleID)
                object["apnsEnvironment"] = "production"
                object["channels"] = name == "old ios" ? ["Mets", "muted"] : ["Mets"]
                if name.hasPrefix("owned") {
                    object["owner"] = [
                        "__type": "Pointer", "className": "_User", "objectId": "near",
                    ]
                }
                let id = try await bench.register(.object(object))
                guard name == "array ios" else { continue }
                // It was saved before its class had a type for this field.
                _ = try await bench.stack.database.query(
                    """
                    update installations set fields = fields || '{"age": [12, 71]}'
                    where app = '\(bench.app.id)' and object_id = '\(id)'
                    """
                )
            }
            let place = #"{"__type": "GeoPoint", "latitude": 30.001, "longitude": -20}"#
            _ = try await bench.stack.database.query(
                """
                insert into identities (app, id, fields)
                values ('\(bench.app.id)', 'near', '{"location": \(place)}')
                on conflict (app, id) do update set fields = excluded.fields
                """
            )
            return tokens
        }

        private func rung(_ tokens: [String: String], _ bench: Bench) async throws -> [String] {
            let received = Set(try await bench.simulator.received().all.map(\.token))
            return tokens.filter { received.contains($0.value) }.keys.sorted()
        }

        @Test(
            "Kafka: where, tags and both select exactly their devices",
            arguments: [
                (#"{"where": {"age": {"$gt": 30}}}"#, ["array ios", "old ios", "owned ios"]),
                (
                    #"{"where": {"age": {"$gt": 30}}, "tags": "Mets && !muted"}"#,
                    ["array ios", "owned ios"]
                ),
                (#"{"where": [{"city": "Oslo"}, {"age": {"$lt": 50}}]}"#, ["owned ios"]),
                (
                    """
                    {"where": {"owner": {"$inQuery": {"location": {"$nearSphere": {"__type":
                        "GeoPoint", "latitude": 30.0, "longitude": -20.0},
                        "$maxDistanceInMiles": 1.0}}}}}
                    """, ["owned ios"]
                ),
                (
                    #"{"channels": ["Mets"], "where": {"age": {"$nin": [20, 12]}}}"#,
                    ["old ios", "owned ios"]
                ),
                (
                    #"{"cql": "select * from _Installation where age > 30 and city = 'Oslo'"}"#,
                    ["old ios", "owned ios"]
                ),
                (#"{"where": {"age": {"$gt": 100}}}"#, []),
            ]
        )
        func rings(selectors: String, names: [String]) async throws {
            let bench = try await Bench()
            let tokens = try await phones(bench)
            let id = TestEnvironment.unique("event-")
            var request = try #require(try JSONValue.parse(selectors).object)
            request["id"] = .string(id)
            request["app"] = .string(bench.app.id)
            request["data"] = ["alert": "To some"]
            try await bench.stack.send(.object(request))
            let push = try await bench.stack.finishedPush(event: id)
            #expect(push["delivered"]?.integer == names.count)
            #expect(push["targeted"]?.integer == names.count)
            #expect(push.booksBalance)
            #expect(try await rung(tokens, bench) == names)
        }

        @Test("An unknown operator is refused by its name over HTTP, on Kafka and by the command")
        func unknownOperator() async throws {
            let bench = try await Bench()
            let condition: JSONValue = ["score": ["$roughly": 3]]
            let answer = try await http(
                "POST",
                "\(bench.registration)/1.1/push",
                headers: bench.app.masterHeaders,
                body: ["where": condition, "data": ["alert": "x"]]
            )
            #expect(answer.status == 400)
            #expect(answer.json?["code"]?.integer == 102)
            let text = answer.json?["error"]?.string ?? ""
            #expect(text.contains("$roughly") && text.contains("score"), "\(text)")
            let key = TestEnvironment.unique("key-")
            let ofNoClass: JSONValue = ["$inQuery": ["className": "Team", "where": [:]]]
            for inner in [condition, ["owner": ofNoClass]] {
                let request: JSONValue = [
                    "app": .string(bench.app.id), "where": inner, "data": ["alert": "x"],
                ]
                try await bench.stack.kafka.produce(
                    [(key: key, value: request.text)],
                    to: bench.stack.topic("push.requests")
                )
            }
            let letters = try await bench.stack.deadLetters(2, key: key)
            let details = letters.compactMap { $0.header("error.detail") }.joined(separator: "\n")
            #expect(details.contains("$roughly") && details.contains("Team"), "\(details)")
            let refused = try await run(
                Stack.executable("carillon"),
                ["push", "send", bench.app.id, "--alert", "x", "--where", condition.text],
                environment: bench.stack.environment
            )
            #expect(refused.exit == .status(64))
            #expect(refused.errors.contains("$roughly"))
        }

        @Test("An operator can explain an audience, index a field, and send to that audience")
        func operatorsTools() async throws {
            let bench = try await Bench()
            let tokens = try await phones(bench)
            let app = bench.app.id
            let condition = #"{"age": {"$gte": 70}}"#
            let explained = try JSONValue.parse(
                try await bench.stack.carillon(
                    "audience",
                    "explain",
                    app,
                    "--where",
                    condition,
                    "--channel",
                    "Mets",
                    "--json"
                )
            )
            #expect(explained["targeted"]?.integer == 2)
            #expect(explained["installations"]?.integer == 2)
            #expect(explained["byPlatform"]?["apns"]?.integer == 2)
            #expect(explained["plan"]?["cost"]?.double ?? 0 > 0)
            let text = try await bench.stack.carillon(
                "audience",
                "explain",
                app,
                "--tags",
                "muted"
            )
            #expect(text.contains("targeted  1: apns 1"), "\(text)")

            for expected in ["built", "there already"] {
                let done = try await bench.stack.carillon("app", "index", app, "age")
                #expect(done.contains(expected), "\(done)")
            }
            let list = try JSONValue.parse(
                try await bench.stack.carillon("app", "index", app, "--list", "--json")
            )
            #expect(list.array?.count == 1)
            #expect(list.array?.first?["field"]?.string == "age")
            #expect(list.array?.first?["isUsable"]?.bool == true)
            let sent = try JSONValue.parse(
                try await bench.stack.carillon(
                    "push",
                    "send",
                    app,
                    "--where",
                    condition,
                    "--channel",
                    "Mets",
                    "--alert",
                    "Hello",
                    "--wait",
                    "--json"
                )
            )
            #expect(sent["delivered"]?.integer == 2)
            #expect(try await rung(tokens, bench) == ["array ios", "old ios"])
            let dropped = try await bench.stack.carillon("app", "index", app, "age", "--drop")
            #expect(dropped.contains("dropped"))
        }
    }

    @Suite("Conditions that take too long", .serialized, .timeLimit(.minutes(2)))
    struct SlowConditionTests {
        @Test("A slow condition fails its push with the reason, and delays no other push")
        func failsItsPush() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, provider, token,
                        token_hash, channels, fields, created_at)
                    values ('\(app.id)', lpad('1', 24, '0'), 'web', 'apns', 'ab',
                        sha256('ab'), '{a}', '{"d": {"__type": "Date", "iso": "x"}}',
                        now() - interval '1 h');
                    create or replace function carillon_instant(value jsonb) returns bigint
                    language plpgsql immutable strict as
                    'begin raise exception ''slow'' using errcode = ''57014''; end'
                    """
                )
                let dispatcher = try await stack.start("carillon-dispatcher")
                let id = TestEnvironment.unique("event-")
                try await stack.send([
                    "id": .string(id), "app": .string(app.id), "data": ["alert": "x"],
                    "where": ["d": ["$lt": ["__type": "Date", "iso": "2026-01-01T00:00:00Z"]]],
                ])
                let push = try await eventually("the push has failed", within: .seconds(60)) {
                    let answer = try await run(
                        Stack.executable("carillon"),
                        ["push", "show", "--event", id, "--json"],
                        environment: stack.environment
                    )
                    let push = try? JSONValue.parse(answer.output)
                    return push?["status"]?.string == "failed" ? push : nil
                }
                let reason = push["error"]?.string ?? ""
                #expect(reason.contains("statement timeout"), "\(push.text)")
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }
    }
}
