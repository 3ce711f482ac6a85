import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Pushes to an audience topic", .runningStack, .serialized, .timeLimit(.minutes(3)))
    struct TopicTests {
        /// Returns the messages of FCM to one topic.
        private func messages(_ bench: Bench, to topic: String) async throws -> [JSONValue] {
            try await bench.simulator.received().all
                .filter { $0.provider == "fcm" && $0.topic == topic && $0.status == 200 }
                .map(\.body)
        }

        private func outcomes(
            _ bench: Bench,
            event: String,
            _ count: Int
        ) async throws -> [KafkaRead] {
            try await eventually("\(count) outcomes of \(event)") {
                let all = try await bench.stack.kafka.records(
                    on: bench.stack.topic("push.outcomes")
                ).filter { $0.json?["eventId"]?.string == event }
                return all.count >= count ? all : nil
            }
        }

        @Test("A record of PUSH_RC is one topic message, and a silent push to iPhones and PCs")
        func announcement() async throws {
            let bench = try await Bench()
            let (phone, other) = (makeAPNsToken(), makeAPNsToken())
            _ = try await bench.registerPhone(token: phone, channels: ["PUSH_RC"])
            _ = try await bench.registerPhone(token: other, channels: ["news"])
            let android = TestEnvironment.unique("fcm-registration-token-")
            _ = try await bench.register([
                "deviceType": "android", "registrationId": .string(android), "vendor": "fcm",
                "channels": ["PUSH_RC"],
            ])
            let channelURI = TestEnvironment.unique("wns-channel-")
            _ = try await bench.register([
                "deviceType": "windows", "channels": ["PUSH_RC"],
                "subscriptionUri": .string("\(bench.stack.origin)/wns/?token=\(channelURI)"),
            ])
            let version = String(Int.random(in: 1_000_000...9_000_000))
            let event = "config/firebase/\(version)"
            let data: JSONValue = ["CONFIG_STATE": "STALE", "CONFIG_VERSION": .string(version)]
            let record: JSONValue = [
                "id": .string(event), "source": "carillon/config", "app": .string(bench.app.id),
                "topic": "PUSH_RC", "data": data, "configVersion": .string(version),
                "namespace": "firebase", "updateType": "INCREMENTAL_UPDATE",
            ]
            let stack = bench.stack
            // A relay may produce it twice.
            for _ in 0..<2 {
                try await stack.kafka.produce(
                    [(bench.app.id, record.text)],
                    to: stack.topic("PUSH_RC")
                )
            }
            let push = try await stack.finishedPush(event: event)
            #expect(push["targeted"]?.integer == 3)
            #expect(push["delivered"]?.integer == 3)
            #expect(push.booksBalance)
            let expected: JSONValue = [
                "message": [
                    "topic": "PUSH_RC", "data": data, "android": ["priority": "NORMAL"],
                ]
            ]
            #expect(try await messages(bench, to: "PUSH_RC") == [expected])
            let atAPNs = try await bench.simulator.received(for: phone)
            #expect(
                atAPNs.map(\.body) == [
                    [
                        "aps": ["content-available": 1], "CONFIG_STATE": "STALE",
                        "CONFIG_VERSION": .string(version),
                    ]
                ]
            )
            #expect(atAPNs.first?.header("apns-push-type") == "background")
            #expect(atAPNs.first?.header("apns-priority") == "5")
            let atWNS = try await bench.simulator.received(for: channelURI)
            #expect(atWNS.map(\.body) == [data])
            #expect(atWNS.first?.header("x-wns-type") == "wns/raw")
            for token in [other, android] {
                #expect(try await bench.simulator.received(for: token).isEmpty)
            }
            let told = try await outcomes(bench, event: event, 3)
            let atFCM = try #require(told.first { $0.key == "topic:PUSH_RC" }?.json)
            #expect(atFCM["installationId"]?.isNull == true)
            #expect(atFCM["outcome"] == "delivered")
            #expect(atFCM["provider"] == "fcm")
            #expect(told.count == 3)
            // An invalid one is a dead letter, and does not stop the next.
            try await stack.kafka.produce(
                [("broken-\(version)", #"{"topic":"PUSH_RC","data":{"CONFIG_STATE":1}}"#)],
                to: stack.topic("PUSH_RC")
            )
            let letter = try await stack.deadLetters(1, key: "broken-\(version)").first
            #expect(letter?.header("source.topic") == stack.topic("PUSH_RC"))
            #expect(letter?.header("error.detail")?.contains("data.CONFIG_STATE") == true)
        }

        @Test(
            "A topic that FCM reports as gone disables no phone, even one whose token has its name"
        )
        func gone() async throws {
            let bench = try await Bench()
            let topic = TestEnvironment.unique("topic-")
            let id = try await bench.register([
                "deviceType": "android", "registrationId": .string(topic), "vendor": "fcm",
            ])
            try await bench.simulator.setRules([
                [
                    "provider": "fcm", "token": .string(topic), "status": 404,
                    "reason": "UNREGISTERED",
                ]
            ])
            let event = TestEnvironment.unique("gone-")
            try await bench.stack.send([
                "id": .string(event), "source": "e2e", "app": .string(bench.app.id),
                "audience_topic": .string(topic), "data": ["alert": "Hi"],
            ])
            let push = try await bench.stack.finishedPush(event: event)
            try await bench.simulator.setRules([])
            #expect(push["failed"]?.integer == 1)
            #expect(push.booksBalance)
            #expect(try await bench.installation(id)["valid"] == true)
            let told = try await outcomes(bench, event: event, 1)
            #expect(told.map(\.key) == ["topic:\(topic)"])
            #expect(told.first?.json?["reason"] == "UNREGISTERED")
        }

        @Test(
            "Without an answer an announcement is sent once more, and another push is in doubt"
        )
        func unanswered() async throws {
            let bench = try await Bench()
            for (source, isOurs) in [("carillon/config", true), ("e2e", false)] {
                let topic = TestEnvironment.unique("topic-")
                try await bench.simulator.setRules([
                    [
                        "provider": "fcm", "token": .string(topic), "then": "reset", "times": 1,
                    ]
                ])
                let event = TestEnvironment.unique("unanswered-")
                try await bench.stack.kafka.produce(
                    [
                        (
                            bench.app.id,
                            JSONValue.object([
                                "id": .string(event), "source": .string(source),
                                "app": .string(bench.app.id), "topic": .string(topic),
                                "data": ["CONFIG_STATE": "STALE"],
                            ]).text
                        )
                    ],
                    to: bench.stack.topic("PUSH_RC")
                )
                let push = try await bench.stack.finishedPush(event: event)
                #expect(push["delivered"]?.integer == (isOurs ? 1 : 0), "\(push.text)")
                #expect(push["inDoubt"]?.integer == (isOurs ? 0 : 1))
                #expect(push.booksBalance)
                #expect(try await messages(bench, to: topic).count == (isOurs ? 1 : 0))
            }
            try await bench.simulator.setRules([])
        }

        @Test("A spread reaches a few phones over all of its time, and the topic at once")
        func spread() async throws {
            let bench = try await Bench()
            let topic = TestEnvironment.unique("spread-")
            var tokens: [String] = []
            for _ in 0..<6 {
                tokens.append(makeAPNsToken())
                _ = try await bench.registerPhone(token: tokens.last ?? "", channels: [topic])
            }
            let event = TestEnvironment.unique("spread-")
            let begun = Date()
            try await bench.stack.send([
                "id": .string(event), "source": "e2e", "app": .string(bench.app.id),
                "audience_topic": .string(topic), "data": ["alert": "Hi"], "spread": 6,
            ])
            _ = try await eventually("the topic is told") {
                try await messages(bench, to: topic).isEmpty ? nil : true
            }
            #expect(Date().timeIntervalSince(begun) < 4)
            let push = try await bench.stack.finishedPush(event: event)
            #expect(push["delivered"]?.integer == 7)
            var times: [Date] = []
            for token in tokens {
                let received = try #require(try await bench.simulator.received(for: token).first)
                let style = Date.ISO8601FormatStyle(includingFractionalSeconds: true)
                times.append(try style.parse(received.at))
            }
            times.sort()
            // There is a second between two of them.
            let span = try #require(times.last).timeIntervalSince(try #require(times.first))
            #expect(span > 4 && span < 9, "\(times)")
            for (earlier, later) in zip(times, times.dropFirst()) {
                #expect(later.timeIntervalSince(earlier) > 0.5, "\(times)")
            }
        }

        @Test("Over HTTP a topic is counted by a dry run, and refused beside a selector or a pace")
        func overHTTP() async throws {
            let bench = try await Bench()
            func ask(_ fields: JSONObject) async throws -> HTTPAnswer {
                var body: JSONObject = ["data": ["alert": "Hi"]]
                for (key, value) in fields { body[key] = value }
                return try await http(
                    "POST",
                    "\(bench.registration)/1.1/push",
                    headers: bench.app.masterHeaders,
                    body: .object(body)
                )
            }
            for (fields, words) in [
                (["audience_topic": "a", "channels": ["b"]], "audience_topic"),
                (["audience_topic": "a b"], "audience_topic"),
                (["channels": ["b"], "spread": 5, "pace": 5], "spread"),
            ] as [(JSONObject, String)] {
                let refused = try await ask(fields)
                #expect(refused.status == 400)
                #expect(refused.json?["error"]?.string?.contains(words) == true, "\(refused.text)")
            }
            let topic = TestEnvironment.unique("topic-")
            _ = try await bench.registerPhone(token: makeAPNsToken(), channels: [topic])
            let answer = try await ask(["audience_topic": .string(topic), "dry_run": true])
            #expect(answer.status == 200, "\(answer.text)")
            let id = try #require(answer.json?["objectId"]?.string)
            let shown = try await eventually("the dry run has its result") {
                let shown = try JSONValue.parse(
                    try await bench.stack.carillon("push", "show", id, "--json")
                )
                return shown["status"] == "done" ? shown : JSONValue?.none
            }
            let result = try #require(shown["notes"]?["dryRun"], "\(shown.text)")
            #expect(result["fcm"]?["count"]?.integer == 1)
            #expect(result["apns"]?["count"]?.integer == 1)
            let body = result["fcm"]?["payload"]?["body"]
            #expect(body?["message"]?["topic"]?.string == topic, "\(result.text)")
            #expect(try await messages(bench, to: topic).isEmpty)
        }
    }
}
