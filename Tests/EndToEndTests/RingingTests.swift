import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("From an event to notifications", .runningStack, .serialized, .timeLimit(.minutes(2)))
    struct RingingTests {
        @Test("One Kafka record reaches an iPhone, an Android phone and a Windows PC")
        func threeKinds() async throws {
            let bench = try await Bench()
            let phone = makeAPNsToken()
            let android = TestEnvironment.unique("fcm-registration-token-")
            let channelURI = TestEnvironment.unique("wns-channel-")
            _ = try await bench.registerPhone(token: phone, channels: ["Mets"])
            _ = try await bench.register([
                "deviceType": "android", "registrationId": .string(android), "vendor": "fcm",
                "channels": ["Mets"],
            ])
            _ = try await bench.register([
                "deviceType": "windows", "channels": ["Mets"],
                "subscriptionUri": .string("\(bench.stack.origin)/wns/?token=\(channelURI)"),
            ])
            // A device of another channel gets nothing.
            let other = makeAPNsToken()
            _ = try await bench.registerPhone(token: other, channels: ["Giants"])

            let (id, event) = bench.event(["Mets"], alert: "The Mets scored!")
            try await bench.stack.send(event)
            let push = try await bench.stack.finishedPush(event: id)

            #expect(push["targeted"]?.integer == 3)
            #expect(push["delivered"]?.integer == 3)
            #expect(push.booksBalance)
            for token in [phone, android, channelURI] {
                let received = try await bench.simulator.received(for: token)
                #expect(received.map(\.status) == [200], "\(received)")
            }
            let atAPNs = try await bench.simulator.received(for: phone)
            #expect(atAPNs.first?.body["aps"]?["alert"]?.text.contains("The Mets scored!") == true)
            #expect(try await bench.simulator.received(for: other).isEmpty)
            let outcomes = try await bench.stack.outcomes(3, event: id)
            #expect(Set(outcomes.compactMap { $0["provider"]?.string }) == ["apns", "fcm", "wns"])
            #expect(outcomes.allSatisfy { $0["outcome"]?.string == "delivered" })
            #expect(Set(outcomes.compactMap { $0["pushId"]?.string }).count == 1)
            #expect(Set(outcomes.compactMap { $0["installationId"]?.string }).count == 3)
        }

        @Test("Each phone gets the push in its own language")
        func languages() async throws {
            let bench = try await Bench()
            var tokens: [String: String] = [:]
            for locale in ["fr_CA", "fr_FR", "en_US"] {
                let token = makeAPNsToken()
                tokens[locale] = token
                _ = try await bench.register([
                    "deviceType": "ios", "deviceToken": .string(token),
                    "apnsTopic": .string(bench.app.bundleID), "apnsEnvironment": "production",
                    "localeIdentifier": .string(locale), "channels": ["Mets"],
                ])
            }
            let (id, event) = bench.event(["Mets"], alert: "Hello")
            var request = event.object ?? [:]
            request["data"] = ["alert": "Hello", "alert-fr": "Bonjour", "alert-fr-CA": "Allô"]
            try await bench.stack.send(.object(request))
            let push = try await bench.stack.finishedPush(event: id)
            #expect(push["delivered"]?.integer == 3)
            for (locale, text) in ["fr_CA": "Allô", "fr_FR": "Bonjour", "en_US": "Hello"] {
                let token = try #require(tokens[locale])
                let received = try await bench.simulator.received(for: token)
                #expect(received.map { $0.body["aps"]?["alert"]?.string } == [text])
            }
        }

        @Test("Placeholders become each installation's own fields, in a broadcast and by name")
        func placeholders() async throws {
            let bench = try await Bench()
            var tokens: [String: String] = [:]
            var ids: [JSONValue] = []
            for name in ["Ann", "", "B\"o<b>"] {
                let token = makeAPNsToken()
                tokens[name] = token
                let id = try await bench.register([
                    "deviceType": "ios", "deviceToken": .string(token),
                    "apnsTopic": .string(bench.app.bundleID), "apnsEnvironment": "production",
                    "profile": ["nick": .string(name)], "channels": ["Mets"],
                ])
                ids.append(.string(id))
            }
            for audience: JSONObject in [["channels": ["Mets"]], ["installations": .array(ids)]] {
                let (id, event) = bench.event(["Mets"])
                var request = event.object ?? [:]
                request.removeValue(forKey: "channels")
                for (key, value) in audience { request[key] = value }
                request["data"] = ["alert": "Hi {{profile.nick|fan}}!"]
                try await bench.stack.send(.object(request))
                let push = try await bench.stack.finishedPush(event: id)
                #expect(push["delivered"]?.integer == 3)
            }
            for (name, token) in tokens {
                let received = try await bench.simulator.received(for: token)
                let text = "Hi \(name.isEmpty ? "fan" : name)!"
                #expect(received.map { $0.body["aps"]?["alert"]?.string } == [text, text])
            }
        }

        @Test("A badge counts up with every push, by name and by broadcast, and can be read back")
        func badges() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            let id = try await bench.registerPhone(token: token, channels: ["Mets"])
            for audience: JSONObject in [
                ["channels": ["Mets"]], ["installations": [.string(id)]], ["channels": ["Mets"]],
            ] {
                let (event, made) = bench.event(["Mets"])
                var request = made.object ?? [:]
                request.removeValue(forKey: "channels")
                for (key, value) in audience { request[key] = value }
                request["data"] = ["alert": "Ding", "badge": "Increment"]
                try await bench.stack.send(.object(request))
                _ = try await bench.stack.finishedPush(event: event)
            }
            let received = try await bench.simulator.received(for: token)
            #expect(received.map { $0.body["aps"]?["badge"]?.integer } == [1, 2, 3])
            #expect(try await bench.installation(id)["badge"]?.integer == 3)
        }

        @Test(
            "CloudEvents of the official Python package are push requests",
            .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set"),
            arguments: ["binary", "structured"]
        )
        func cloudEvents(mode: String) async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["orders"])
            let id = TestEnvironment.unique("cloud-event-")
            let made = try await run(
                try #require(TestEnvironment.python),
                ["-c", cloudEventProgram, mode, id, bench.app.id]
            ).successful("python")
            let message = try JSONValue.parse(made)
            let value = try #require(Data(base64Encoded: message["value"]?.string ?? ""))
            let headers = try #require(message["headers"]?.object).map {
                ($0.key, $0.value.string ?? "")
            }

            // It is sent twice, as by a producer that missed the acknowledgement.
            for _ in 0..<2 {
                try await bench.stack.kafka.produce(
                    key: id,
                    headers: headers.map { (name: $0.0, value: $0.1) },
                    value: [UInt8](value),
                    to: bench.stack.topic("push.requests")
                )
            }
            let (markerID, marker) = bench.event(["orders"], alert: "after")
            try await bench.stack.kafka.produce(
                [(key: id, value: marker.text)],
                to: bench.stack.topic("push.requests")
            )

            let push = try await bench.stack.finishedPush(event: id)
            #expect(push["delivered"]?.integer == 1)
            _ = try await bench.stack.finishedPush(event: markerID)
            #expect(try await bench.simulator.received(for: token).count == 2)
        }

        @Test("The same event id twice is one push, and with another source it is another push")
        func sameEventTwice() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["orders"])
            let (id, event) = bench.event(["orders"])
            var elsewhere = event.object ?? [:]
            elsewhere["source"] = "elsewhere"
            let (markerID, marker) = bench.event(["orders"])

            // They have one key, so one partition, so this order.
            try await bench.stack.kafka.produce(
                [event, event, .object(elsewhere), marker].map { (key: id, value: $0.text) },
                to: bench.stack.topic("push.requests")
            )
            _ = try await bench.stack.finishedPush(event: markerID)
            let received = try await bench.simulator.waitFor(3, for: token)

            #expect(received.count == 3)
            #expect(Set(received.compactMap { $0.header("apns-id") }).count == 3)
        }

        @Test("An invalid record becomes a dead letter with its reason, and stops no other")
        func deadLetters() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["orders"])
            let key = TestEnvironment.unique("key-")
            let garbage = "{this is no JSON"
            let unknownApp = #"{"id": "1", "app": "no-such-app", "data": {"alert": "x"}}"#
            let wrongType =
                #"{"id": "2", "app": "\#(bench.app.id)", "channels": 42, "data": {"alert": "x"}}"#
            let (id, good) = bench.event(["orders"])

            try await bench.stack.kafka.produce(
                [garbage, unknownApp, wrongType, good.text].map { (key: key, value: $0) },
                to: bench.stack.topic("push.requests")
            )

            let push = try await bench.stack.finishedPush(event: id)
            #expect(push["delivered"]?.integer == 1)
            let letters = try await bench.stack.deadLetters(3, key: key)
            #expect(Set(letters.map(\.value)) == [garbage, unknownApp, wrongType])
            #expect(Set(letters.compactMap { $0.header("error.reason") }).count == 3)
            let named = letters.first { $0.value == wrongType }?.header("error.detail")
            #expect(named?.contains("channels") == true)
            for letter in letters {
                #expect(letter.header("source.topic") == bench.stack.topic("push.requests"))
                #expect(letter.header("source.partition").flatMap { Int($0) } != nil)
                #expect(letter.header("source.offset").flatMap { Int($0) } != nil)
            }
        }

        @Test("An HTTP push is sent, and its record shows the outcome")
        func pushOverHTTP() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["news"])

            let accepted = try await http(
                "POST",
                "\(bench.registration)/1.1/push",
                headers: bench.app.masterHeaders,
                body: ["channels": ["news"], "data": ["alert": "Over HTTP"]]
            )
            #expect(accepted.status == 200, "\(accepted.text)")
            let id = try #require(accepted.json?["objectId"]?.string)

            let record = try await eventually("the record of the push says done") {
                let answer = try await http(
                    "GET",
                    "\(bench.registration)/1.1/tables/Notifications/\(id)",
                    headers: bench.app.masterHeaders
                )
                return answer.json?["status"]?.string == "done" ? answer.json : nil
            }
            #expect(record["delivered"]?.integer == 1)
            #expect(record.booksBalance)
            #expect(try await bench.simulator.received(for: token).map(\.status) == [200])
        }

        @Test("The command sends and waits: 0 when all were delivered, 4 when there was no target")
        func commandLine() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["news"])
            let carillon = Stack.executable("carillon")

            let sent = try await run(
                carillon,
                [
                    "push", "send", bench.app.id, "--channel", "news", "--alert", "Hear!", "--wait",
                    "--json",
                ],
                environment: bench.stack.environment
            )
            #expect(sent.exit == .status(0), "\(sent)")
            #expect(sent.output.contains("pushId"))
            #expect(try await bench.simulator.received(for: token).count == 1)
            let nobody = try await run(
                carillon,
                ["push", "send", bench.app.id, "--channel", "nobody", "--alert", "?", "--wait"],
                environment: bench.stack.environment
            )
            #expect(nobody.exit == .status(4), "\(nobody)")
        }
    }
}

/// Makes one event with PyPI's `cloudevents` and prints its Kafka message as JSON.
private let cloudEventProgram = """
    import base64, json, sys
    from cloudevents.http import CloudEvent
    from cloudevents.kafka import to_binary, to_structured
    mode, id, app = sys.argv[1:]
    event = CloudEvent(
        {"type": "com.example.order.shipped", "source": "/orders", "id": id,
         "datacontenttype": "application/json"},
        {"app": app, "channels": ["orders"], "data": {"alert": "From a CloudEvent"}},
    )
    message = to_binary(event) if mode == "binary" else to_structured(event)
    print(json.dumps({
        "headers": {name: value.decode() for name, value in message.headers.items()},
        "value": base64.b64encode(message.value).decode(),
    }))
    """
