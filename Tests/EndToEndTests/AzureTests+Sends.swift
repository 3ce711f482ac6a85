import Foundation
import JSON
import Support
import Testing

extension EndToEndTests.AzureTests {
    // MARK: Sends

    @Test("A send goes to the matching devices of its platform once, however often it is repeated")
    func tags() async throws {
        let hub = try await Hub()
        let (both, muted, other) = (makeAPNsToken(), makeAPNsToken(), makeAPNsToken())
        try await hub.register("apns", both, tags: ["news", "sports"])
        try await hub.register("apns", muted, tags: ["news", "muted"], user: "u-2")
        try await hub.register("apns", other, tags: ["weather"])
        let android = TestEnvironment.unique("fcm-token-")
        try await hub.register("fcmV1", android, tags: ["news"])
        let headers = [
            "ServiceBusNotification-Tags": "news && !muted", "apns-push-type": "alert",
            "x-ms-client-request-id": TestEnvironment.unique("request-"),
        ]
        let body = #"{"aps":{"alert":"Mets"},"k":"v"}"#
        let sent = try await hub.send("apple", body, headers: headers)
        #expect(sent.status == 201)
        #expect(sent.body.isEmpty)
        let id = try hub.id(sent)
        let repeated = try await hub.send("apple", body, headers: headers)
        #expect(repeated.status == 201)
        #expect(try hub.id(repeated) == id)
        let details = try await hub.details(id)
        #expect(details.contains("<State>Completed</State>"))
        #expect(details.contains("<Tags>news &amp;&amp; !muted</Tags>"))
        #expect(details.contains("<TargetPlatforms>apple</TargetPlatforms>"))
        #expect(
            details.contains(
                "<ApnsOutcomeCounts><Outcome><Name>Success</Name><Count>1</Count></Outcome>"
                    + "</ApnsOutcomeCounts>"
            )
        )
        #expect(!details.contains("FcmV1OutcomeCounts"))
        let received = try await hub.bench.simulator.received(for: both)
        #expect(received.map(\.status) == [200])
        #expect(received.first?.body["k"] == "v")
        for token in [muted, other] {
            #expect(try await hub.bench.simulator.received(for: token).isEmpty)
        }
        // The sends are to a user, whom no tag names, and to every device in another format.
        let toUser = try await hub.send(
            "apple",
            body,
            headers: ["ServiceBusNotification-Tags": "$UserId:{u-2}"]
        )
        _ = try await hub.details(try hub.id(toUser))
        #expect(try await hub.bench.simulator.received(for: muted).count == 1)
        let toAll = try await hub.send(
            "fcmV1",
            #"{"message":{"data":{"a":"b"}}}"#
        )
        let counts = try await hub.details(try hub.id(toAll))
        #expect(
            counts.contains("<FcmV1OutcomeCounts><Outcome><Name>Success</Name><Count>1</Count>")
        )
        // An unknown tag, and the one that JavaScript's SDK sends if there is no tag.
        for tag in ["unknown-tag", "undefined"] {
            let nobody = try await hub.send(
                "apple",
                body,
                headers: ["ServiceBusNotification-Tags": tag]
            )
            #expect(nobody.status == 201)
            #expect(
                try await hub.details(try hub.id(nobody)).contains(
                    "<State>NoTargetFound</State>"
                )
            )
        }
    }

    @Test("A device gets gcm or fcmv1 sends by the form that it registered for, and once")
    func twoFormats() async throws {
        let hub = try await Hub()
        var tokens: [String: String] = [:]
        for platform in ["gcm", "fcm", "fcmV1"] {
            tokens[platform] = TestEnvironment.unique("fcm-\(platform)-")
            try await hub.register(platform, tokens[platform] ?? "", tags: ["news"])
        }
        // A device that no client of Azure's registered has the newer form, also when read back.
        tokens["other"] = TestEnvironment.unique("fcm-other-")
        _ = try await hub.bench.register([
            "deviceType": "android", "registrationId": .string(tokens["other"] ?? ""),
            "channels": ["news"],
        ])
        for tag in ["news", ""] {
            let headers = tag.isEmpty ? [:] : ["ServiceBusNotification-Tags": tag]
            for (format, body, name) in [
                ("gcm", #"{"data":{"format":"gcm"}}"#, "GcmOutcomeCounts"),
                ("fcmv1", #"{"message":{"data":{"format":"v1"}}}"#, "FcmV1OutcomeCounts"),
            ] {
                let sent = try await hub.send(format, body, headers: headers)
                let details = try await hub.details(try hub.id(sent))
                #expect(
                    details.contains(
                        "<\(name)><Outcome><Name>Success</Name><Count>2</Count>"
                    )
                )
            }
        }
        for (platform, format) in [
            ("gcm", "gcm"), ("fcm", "gcm"), ("fcmV1", "v1"), ("other", "v1"),
        ] {
            let received = try await hub.bench.simulator.received(for: tokens[platform] ?? "")
            let formats = received.map { $0.body["message"]?["data"]?["format"]?.string }
            #expect(formats == [format, format], "\(platform)")
        }
    }

    @Test("A direct send and a batch of tokens need no installation")
    func direct() async throws {
        let hub = try await Hub()
        let token = makeAPNsToken()
        let body = #"{"aps":{"alert":"Direct"}}"#
        for query in ["direct", "direct=true"] {
            let sent = try await hub.send(
                "apple",
                body,
                query: query,
                headers: ["ServiceBusNotification-DeviceHandle": token]
            )
            #expect(sent.status == 201)
            _ = try await hub.details(try hub.id(sent))
        }
        #expect(try await hub.bench.simulator.received(for: token).count == 2)
        let tokens = (0..<3).map { _ in TestEnvironment.unique("fcm-batch-") }
        let list = JSONValue.array(tokens.map { .string($0) }).text
        let lines = [
            "--nh-boundary-7", "Content-type: application/json;charset=utf-8",
            "Content-Disposition: inline; name=notification", "",
            #"{"data":{"n":1},"priority":"high"}"#, "--nh-boundary-7",
            "Content-type: application/json", "Content-Disposition: inline; name=devices", "",
            list, "--nh-boundary-7--",
        ]
        let batch = try await hub.raw(
            "POST",
            "messages/$batch",
            query: "direct=true",
            headers: [
                "Content-Type": #"multipart/mixed; boundary = "nh-boundary-7""#,
                "ServiceBusNotification-Format": "gcm",
            ],
            bytes: Array(lines.joined(separator: "\r\n").utf8)
        )
        #expect(batch.status == 201)
        let details = try await hub.details(try hub.id(batch))
        #expect(
            details.contains("<GcmOutcomeCounts><Outcome><Name>Success</Name><Count>3</Count>")
        )
        for token in tokens {
            let received = try await hub.bench.simulator.received(for: token)
            #expect(received.first?.body["message"]?["data"]?["n"] == "1")
        }
    }

    @Test("A scheduled send waits for its time and can be cancelled until then")
    func scheduled() async throws {
        let hub = try await Hub()
        let token = makeAPNsToken()
        try await hub.register("apns", token, tags: ["news"])
        func schedule(after seconds: Double) async throws -> HTTPAnswer {
            let time = Date(timeIntervalSinceNow: seconds)
            return try await hub.send(
                "apple",
                #"{"aps":{"alert":"Later"}}"#,
                path: "schedulednotifications/",
                headers: [
                    "ServiceBusNotification-ScheduleTime": time.formatted(.iso8601),
                    "ServiceBusNotification-Tags": "news",
                ]
            )
        }
        let late = try await schedule(after: 3600)
        #expect(late.status == 201)
        #expect(late.header("location")?.contains("/schedulednotifications/") == true)
        let id = try hub.id(late)
        let waiting = try await hub.call("GET", "messages/\(id)", by: .full)
        #expect(waiting.text.contains("<State>Enqueued</State>"))
        let path = "schedulednotifications/\(id)"
        #expect(try await hub.call("DELETE", path, by: .full).status == 200)
        #expect(try await hub.call("DELETE", path, by: .full).status == 404)
        let cancelled = try await hub.call("GET", "messages/\(id)", by: .full)
        #expect(cancelled.text.contains("<State>Cancelled</State>"))
        let soon = try hub.id(try await schedule(after: 2))
        #expect(
            try await hub.details(soon, ends: ["Completed"]).contains("<Count>1</Count>")
        )
        #expect(try await hub.bench.simulator.received(for: token).count == 1)
        #expect(
            try await hub.call("DELETE", "schedulednotifications/\(soon)", by: .full).status
                == 404
        )
        #expect(try await schedule(after: 8 * 86_400).status == 400)
    }

    @Test("A template send fills each device's templates, with one message for each match")
    func templates() async throws {
        let hub = try await Hub()
        let (plain, polite) = (makeAPNsToken(), makeAPNsToken())
        let android = TestEnvironment.unique("fcm-template-")
        let bare = makeAPNsToken()
        try await hub.register(
            "apns",
            plain,
            tags: ["news"],
            templates: [
                "alert": ["body": ##"{"aps":{"alert":"$(title)","badge":"#(count)"}}"##]
            ]
        )
        try await hub.register(
            "apns",
            polite,
            templates: [
                "alert": [
                    "body": #"{"aps":{"alert":"{'Dear you: ' + $(title)}"}}"#,
                    "headers": ["apns-priority": "5"], "tags": ["news"],
                ]
            ]
        )
        try await hub.register(
            "gcm",
            android,
            tags: ["news"],
            templates: [
                "alert": ["body": #"{"data":{"short":".(title, 8)"}}"#],
                "silent.2": ["body": #"{"data":{"n":"$(count)"}}"#],
            ]
        )
        try await hub.register("apns", bare, tags: ["news"])
        let words = #"{"title":"Mets \"win\" again","COUNT":"3"}"#
        let sent = try await hub.send(
            "template",
            words,
            headers: ["ServiceBusNotification-Tags": "news"]
        )
        #expect(sent.status == 201)
        let details = try await hub.details(try hub.id(sent))
        #expect(details.contains("<ApnsOutcomeCounts><Outcome><Name>Success</Name><Count>2"))
        #expect(details.contains("<FcmV1OutcomeCounts><Outcome><Name>Success</Name><Count>2"))
        #expect(
            details.contains(
                "<TargetPlatforms>appletemplate,fcmv1template</TargetPlatforms>"
            )
        )
        let simulator = hub.bench.simulator
        let first = try #require(try await simulator.received(for: plain).first)
        #expect(first.body["aps"]?["alert"] == #"Mets "win" again"#)
        #expect(first.body["aps"]?["badge"] == 3)
        let second = try #require(try await simulator.received(for: polite).first)
        #expect(second.body["aps"]?["alert"] == #"Dear you: Mets "win" again"#)
        #expect(second.header("apns-priority") == "5")
        let data = try await simulator.received(for: android).compactMap {
            $0.body["message"]?["data"]?.text
        }
        #expect(Set(data) == [#"{"short":"Mets ..."}"#, #"{"n":"3"}"#])
        #expect(try await simulator.received(for: bare).isEmpty)
        // A template's name is a tag; another send reaches only that one.
        let named = try await hub.send(
            "template",
            words,
            headers: ["ServiceBusNotification-Tags": "silent.2"]
        )
        #expect(
            try await hub.details(try hub.id(named)).contains("<Name>Success</Name><Count>1<")
        )
        #expect(try await simulator.received(for: android).count == 3)
    }

    @Test("A test send reports the outcome of each of its devices")
    func testSend() async throws {
        let hub = try await Hub()
        let (good, dead) = (makeAPNsToken(), makeAPNsToken())
        try await hub.register("apns", good, tags: ["qa"])
        try await hub.register("apns", dead, tags: ["qa"])
        try await hub.bench.simulator.setRules([
            [
                "provider": "apns", "token": .string(dead), "status": 410,
                "reason": "Unregistered",
            ]
        ])
        let sent = try await hub.send(
            "apple",
            #"{"aps":{"alert":"Test"}}"#,
            query: "test=true",
            headers: ["ServiceBusNotification-Tags": "qa"]
        )
        #expect(sent.status == 201)
        #expect(sent.header("location") != nil)
        #expect(sent.text.contains("<Success>1</Success><Failure>1</Failure><Results>"))
        #expect(sent.text.contains("<PnsHandle>\(good)</PnsHandle>"))
        #expect(sent.text.contains("<Outcome>ExpiredChannel</Outcome>"))
        // The dead channel is reported by its own address, which is a credential.
        let container = try await hub.call("GET", "feedbackcontainer", by: .full)
        #expect(container.status == 200)
        let list = try await eventually("the dead channel is listed") {
            let answer = try await http("GET", container.text)
            return answer.status == 200 && !answer.body.isEmpty ? answer : nil
        }
        let line = try #require(try? JSONValue.parse(list.body))
        #expect(line["PnsHandle"] == .string(dead))
        #expect(line["Platform"] == "apns")
        #expect(try await http("GET", container.text + "x").status == 401)
        let nobody = try await hub.send(
            "apple",
            #"{"aps":{"alert":"Test"}}"#,
            query: "test",
            headers: ["ServiceBusNotification-Tags": "nobody"]
        )
        #expect(
            nobody.text.contains("<Success>0</Success><Failure>0</Failure><Results></Results>")
        )
    }
}
