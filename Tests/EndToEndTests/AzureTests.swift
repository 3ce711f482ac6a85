import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Azure's clients",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(5)),
        .enabled(if: TestEnvironment.python != nil, "CARILLON_PYTHON is not set")
    )
    struct AzureTests {
        // MARK: Tokens and installations

        @Test("A device registers with the app key, and is read back, patched and deleted")
        func installations() async throws {
            let hub = try await Hub()
            let id = TestEnvironment.unique("device-")
            let path = "installations/\(id)"
            let put = try await hub.call(
                "PUT",
                path,
                by: .listen,
                body: [
                    "installationId": .string(id), "platform": "apns", "pushChannel": "AbCd12",
                    "tags": ["news", "user:1"], "userId": "u@1",
                    "templates": ["t": ["body": #"{"aps":{"alert":"$(m)"}}"#]],
                ]
            )
            #expect(put.status == 200)
            #expect(put.body.isEmpty)
            #expect(put.header("TrackingId") != nil)
            #expect(put.header("x-ms-correlation-request-id") != nil)
            let got = try await hub.call("GET", path, by: .listen)
            #expect(got.status == 200)
            #expect(
                got.json == [
                    "installationId": .string(id), "pushChannel": "AbCd12",
                    "pushChannelExpired": false, "platform": "apns",
                    "expirationTime": "9999-12-31T23:59:59.9999999Z", "userId": "u@1",
                    "tags": ["news", "user:1"],
                    "templates": ["t": ["body": #"{"aps":{"alert":"$(m)"}}"#, "tags": ["t"]]],
                ]
            )
            let patch = try await hub.call(
                "PATCH",
                path,
                by: .listen,
                body: [
                    ["op": "add", "path": "/tags", "value": "vip"],
                    ["op": "remove", "path": "/tags/news"],
                    ["op": "replace", "path": "/pushChannel", "value": "beef"],
                ]
            )
            #expect(patch.status == 200)
            #expect(patch.body.isEmpty)
            let bad = try await hub.call(
                "PATCH",
                path,
                by: .listen,
                body: [
                    ["op": "add", "path": "/tags", "value": "lost"],
                    ["op": "add", "path": "/nothing", "value": "x"],
                ]
            )
            #expect(bad.status == 400)
            let again = try await hub.call("GET", path, by: .listen)
            #expect(again.json?["tags"] == ["user:1", "vip"])
            #expect(again.json?["pushChannel"] == "beef")
            // The other surface knows it too, and does not mind its tags.
            let seen = try await http(
                "GET",
                "\(hub.bench.registration)/1.1/installations/\(try await objectID(of: id, hub))",
                headers: hub.bench.app.masterHeaders
            )
            #expect(seen.json?["channels"] == ["user:1", "vip"])
            #expect(seen.json?["deviceToken"] == "beef")
            for _ in 0..<2 {
                #expect(try await hub.call("DELETE", path, by: .listen).status == 204)
            }
            let gone = try await hub.call("GET", path, by: .listen)
            #expect(gone.status == 404)
            #expect(gone.header("content-type") == "application/xml; charset=utf-8")
            #expect(
                gone.text.hasPrefix(
                    "<Error><Code>404</Code><Detail>Installation not found.TrackingId:"
                )
            )
            #expect(
                try await hub.call(
                    "PATCH",
                    path,
                    by: .listen,
                    body: [["op": "add", "path": "/tags", "value": "x"]]
                ).status == 404
            )
        }

        @Test("A channel is one device's: a patch of something else takes it back from nobody")
        func channels() async throws {
            let hub = try await Hub()
            let token = makeAPNsToken()
            func put(_ id: String) async throws {
                let body: JSONValue = [
                    "installationId": .string(id), "platform": "apns",
                    "pushChannel": .string(token), "tags": [.string(id)],
                ]
                let answer = try await hub.call(
                    "PUT",
                    "installations/\(id)",
                    by: .listen,
                    body: body
                )
                #expect(answer.status == 200)
            }
            try await put("first")
            try await put("second")
            let patch: JSONValue = [["op": "add", "path": "/tags", "value": "more"]]
            for id in ["first", "second"] {
                #expect(
                    try await hub.call(
                        "PATCH",
                        "installations/\(id)",
                        by: .listen,
                        body: patch
                    ).status == 200
                )
            }
            let body = #"{"aps":{"alert":"x"}}"#
            for (tag, state) in [("first", "NoTargetFound"), ("second", "Completed")] {
                let sent = try await hub.send(
                    "apple",
                    body,
                    headers: ["ServiceBusNotification-Tags": "more && \(tag)"]
                )
                let details = try await hub.details(try hub.id(sent))
                #expect(details.contains("<State>\(state)</State>"), "\(tag)")
            }
            #expect(try await hub.bench.simulator.received(for: token).count == 1)
        }

        private func objectID(of installationID: String, _ hub: Hub) async throws -> String {
            let condition = "%7B%22installationId%22%3A%22\(installationID)%22%7D"
            let found = try await http(
                "GET",
                "\(hub.bench.registration)/1.1/installations?where=\(condition)",
                headers: hub.bench.app.masterHeaders
            )
            return try #require(found.json?["results"]?[0]?["objectId"]?.string)
        }

        @Test("A token that another key, host, hub or time made is 401, with a body that SDKs read")
        func tokens() async throws {
            let hub = try await Hub()
            let url = hub.bench.registration
            func status(_ token: String) async throws -> Int {
                let answer = try await http(
                    "GET",
                    "\(url)/\(hub.name)/installations/none?api-version=2020-06",
                    headers: ["Authorization": token]
                )
                if answer.status == 401 {
                    #expect(answer.text.hasPrefix("<Error><Code>401</Code><Detail>Invalid"))
                }
                return answer.status
            }
            let app = hub.bench.app
            let listen = "DefaultListenSharedAccessSignature"
            let full = "DefaultFullSharedAccessSignature"
            let whole = "\(url)/\(app.id)/installations/none/"
            for (name, key) in [(listen, app.appKey), (full, app.masterKey)] {
                for style in ["js", "dotnet"] {
                    for resource in [url + "/", whole, "\(url)/\(app.id)"] {
                        let token = try await Hub.token(resource, name, key, style: style)
                        #expect(try await status(token) == 404, "\(style) \(resource)")
                    }
                }
            }
            for (resource, name, key, age) in [
                (url, listen, app.masterKey, 3600), (url, full, app.appKey, 3600),
                (url, "RootManageSharedAccessKey", app.masterKey, 3600),
                (url, full, app.masterKey, -10),
                ("http://other.example/", full, app.masterKey, 3600),
                (url + "/other", full, app.masterKey, 3600),
                ("\(url)/\(app.id)2", full, app.masterKey, 3600),
            ] {
                let token = try await Hub.token(resource, name, key, lifetime: age)
                #expect(try await status(token) == 401, "\(resource) \(name) \(age)")
            }
            #expect(try await status("") == 401)
            #expect(try await status("Bearer x") == 401)
            // The app key registers; it sends nothing and reads nothing of what was sent.
            #expect(
                try await hub.send("apple", #"{"aps":{"alert":"x"}}"#, by: .listen).status == 403
            )
            #expect(try await hub.call("GET", "messages/x", by: .listen).status == 401)
            // A hub is an app without case.
            let token = try await Hub.token(url, full, app.masterKey)
            let shouted = try await http(
                "GET",
                "\(url)/\(app.id.uppercased())/installations/none",
                headers: ["Authorization": token]
            )
            #expect(shouted.status == 404)
        }

        // MARK: Sends

        @Test("A send goes to the devices of its platform whose tags match, once, however repeated")
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
            // By the user, whom no tag names; and a broadcast in another format.
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
            // A tag that nobody has, and what JavaScript's SDK sends for no tag at all.
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

        @Test("Of gcm and fcmv1 a device is rung by the one that it registered for, and once")
        func twoFormats() async throws {
            let hub = try await Hub()
            var tokens: [String: String] = [:]
            for platform in ["gcm", "fcm", "fcmV1"] {
                tokens[platform] = TestEnvironment.unique("fcm-\(platform)-")
                try await hub.register(platform, tokens[platform] ?? "", tags: ["news"])
            }
            // What no client of Azure's registered is of the newer kind, as it is read back.
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

        @Test("A direct send, and a batch of tokens, need no installation")
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

        @Test("A scheduled send waits for its time, and can be taken back until then")
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

        @Test("Patches of one installation that come at once all count")
        func patchesAtOnce() async throws {
            let hub = try await Hub()
            let id = TestEnvironment.unique("device-")
            let path = "installations/\(id)"
            let put = try await hub.call(
                "PUT",
                path,
                by: .listen,
                body: [
                    "installationId": .string(id), "platform": "apns",
                    "pushChannel": .string(makeAPNsToken()),
                ]
            )
            #expect(put.status == 200)
            let tags = (0..<30).map { "t\($0)" }
            try await withThrowingTaskGroup(of: Int.self) { tasks in
                for tag in tags {
                    tasks.addTask {
                        try await hub.call(
                            "PATCH",
                            path,
                            by: .listen,
                            body: [["op": "add", "path": "/tags", "value": .string(tag)]]
                        ).status
                    }
                }
                for try await status in tasks { #expect(status == 200) }
            }
            let got = try await hub.call("GET", path, by: .listen)
            let kept = got.json?["tags"]?.array?.compactMap(\.string) ?? []
            #expect(Set(kept) == Set(tags))
        }

        @Test("Phones alone do not fill the names of templates that a hub may have")
        func templateNames() async throws {
            let hub = try await Hub()
            func templates(_ range: Range<Int>) -> JSONValue {
                var object = JSONObject()
                for number in range { object["t\(number)"] = ["body": "{}"] }
                return .object(object)
            }
            for start in [0, 20] {
                try await hub.register(
                    "apns",
                    makeAPNsToken(),
                    templates: templates(start..<start + 20)
                )
            }
            func put(by key: Hub.Key) async throws -> HTTPAnswer {
                let id = TestEnvironment.unique("device-")
                return try await hub.call(
                    "PUT",
                    "installations/\(id)",
                    by: key,
                    body: [
                        "installationId": .string(id), "platform": "apns",
                        "pushChannel": .string(makeAPNsToken()), "templates": templates(35..<51),
                    ]
                )
            }
            let refused = try await put(by: .listen)
            #expect(refused.status == 403)
            #expect(refused.text.contains("only its full key may add another"))
            #expect(try await put(by: .full).status == 200)
            #expect(try await put(by: .listen).status == 200)
        }

        @Test("A template send fills what each device holds, one message for each that matches")
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
            // A template's name is a tag; another send reaches that one alone.
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

        @Test("A test send says what became of each of its devices")
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
            // The dead channel is told of by its own address, which is a credential.
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

        // MARK: Refusals

        @Test("What cannot be done says so in XML, under the status that SDKs expect")
        func refusals() async throws {
            let hub = try await Hub()
            let body = #"{"aps":{"alert":"x"}}"#
            for (path, method) in [
                ("registrations", "POST"), ("registrationIDs", "POST"), ("registrationids", "POST"),
                ("registrations/1", "PUT"), ("tags/a%23b/registrations", "GET"), ("jobs", "POST"),
            ] {
                let answer = try await hub.call(method, path, by: .full)
                #expect(answer.status == 501, "\(path)")
                #expect(answer.text.hasPrefix("<Error><Code>501</Code><Detail>"))
            }
            for tags in ["", "a &&", "(a", "a b", "!"] {
                let answer = try await hub.send(
                    "apple",
                    body,
                    headers: ["ServiceBusNotification-Tags": tags]
                )
                #expect(answer.status == 400, "\(tags)")
            }
            // What is said twice is not guessed at, and what cannot be read is refused in XML, too.
            let twice = try await hub.send(
                "apple",
                body,
                headers: ["ServiceBusNotification-Tags": "a\r\nServiceBusNotification-Tags: b"]
            )
            #expect(twice.status == 400)
            #expect(twice.text.contains("ServiceBusNotification-Tags is there more than once"))
            let broken = try await hub.call("GET", "installations/%ff", by: .listen)
            #expect(broken.status == 400)
            #expect(broken.text.hasPrefix("<Error><Code>400</Code><Detail>"))
            #expect(try await hub.send("amiga", body).status == 400)
            #expect(try await hub.send("baidu", body).status == 501)
            let long = #"{"aps":{"alert":"\#(String(repeating: "x", count: 70_000))"}}"#
            let large = try await hub.send("apple", long)
            #expect(large.status == 413)
            #expect(large.text.hasPrefix("<Error><Code>413</Code>"))
            #expect(try await hub.call("GET", "messages/none", by: .full).status == 404)
            let wrong = try await hub.call("GET", "schedulednotifications", by: .full)
            #expect(wrong.status == 405)
            #expect(wrong.text.hasPrefix("<Error><Code>405</Code>"))
            // Paths of other surfaces are theirs, whatever an app could be called.
            let lean = try await http(
                "PATCH",
                "\(hub.bench.registration)/1.1/installations/x",
                headers: hub.bench.app.masterHeaders
            )
            #expect(lean.status == 405)
            #expect(lean.json?["code"] != nil)
        }
    }
}

/// A hub as its clients call it.
private struct Hub {
    enum Key {
        case listen, full
    }

    let bench: Bench
    private let listen: String
    private let full: String

    var name: String { bench.app.id }

    init() async throws {
        bench = try await Bench()
        let resource = bench.registration + "/"
        listen = try await Self.token(
            resource,
            "DefaultListenSharedAccessSignature",
            bench.app.appKey
        )
        full = try await Self.token(
            resource,
            "DefaultFullSharedAccessSignature",
            bench.app.masterKey
        )
    }

    // Python's own HMAC and percent-encoding: nothing of Carillon's checks itself here.
    private static let script = """
        import base64, hashlib, hmac, sys, time, urllib.parse
        resource, name, key, lifetime, style = sys.argv[1:6]
        sr = urllib.parse.quote(resource.lower(), safe="")
        if style == "dotnet":
            parts = urllib.parse.urlsplit(resource.lower())
            path = parts.path if parts.path.endswith("/") else parts.path + "/"
            sr = urllib.parse.quote("http://" + parts.hostname + path, safe="").lower()
        se = str(int(time.time()) + int(lifetime))
        mac = hmac.new(key.encode(), (sr + "\\n" + se).encode(), hashlib.sha256).digest()
        sig = urllib.parse.quote(base64.b64encode(mac).decode(), safe="")
        print(f"SharedAccessSignature sr={sr}&sig={sig}&se={se}&skn={name}", end="")
        """

    static func token(
        _ resource: String,
        _ keyName: String,
        _ key: String,
        lifetime: Int = 3600,
        style: String = "js"
    ) async throws -> String {
        try await run(
            TestEnvironment.python ?? "",
            ["-c", script, resource, keyName, key, String(lifetime), style]
        ).successful("python")
    }

    func raw(
        _ method: String,
        _ path: String,
        query: String = "",
        by key: Key = .full,
        headers: [String: String] = [:],
        bytes: [UInt8] = []
    ) async throws -> HTTPAnswer {
        let more = query.isEmpty ? "" : "&\(query)"
        return try await http(
            method,
            "\(bench.registration)/\(name)/\(path)?api-version=2020-06\(more)",
            headers: headers.merging(["Authorization": key == .listen ? listen : full]) { $1 },
            bytes: bytes
        )
    }

    func call(
        _ method: String,
        _ path: String,
        by key: Key,
        body: JSONValue? = nil
    ) async throws -> HTTPAnswer {
        try await raw(
            method,
            path,
            by: key,
            headers: ["Content-Type": "application/json"],
            bytes: body?.bytes ?? []
        )
    }

    func send(
        _ format: String,
        _ body: String,
        path: String = "messages",
        query: String = "",
        headers: [String: String] = [:],
        by key: Key = .full
    ) async throws -> HTTPAnswer {
        try await raw(
            "POST",
            path,
            query: query,
            by: key,
            headers: headers.merging([
                "ServiceBusNotification-Format": format,
                "Content-Type": "application/json;charset=utf-8",
            ]) { $1 },
            bytes: Array(body.utf8)
        )
    }

    func register(
        _ platform: String,
        _ channel: String,
        tags: [String] = [],
        user: String? = nil,
        templates: JSONValue? = nil
    ) async throws {
        let id = TestEnvironment.unique("device-")
        var body: JSONObject = [
            "installationId": .string(id), "platform": .string(platform),
            "pushChannel": .string(channel), "tags": .array(tags.map { .string($0) }),
        ]
        body["userId"] = user.map { .string($0) }
        body["templates"] = templates
        let answer = try await call("PUT", "installations/\(id)", by: .listen, body: .object(body))
        guard answer.status == 200 else {
            throw TestFailure("PUT installations: \(answer.status) \(answer.text)")
        }
    }

    /// The notification's id as both SDKs find it: the third segment of the address, and its last.
    func id(_ answer: HTTPAnswer) throws -> String {
        guard let location = answer.header("location"), let url = URL(string: location),
            location.hasPrefix(bench.registration), url.pathComponents.count == 4,
            url.pathComponents[1] == name
        else {
            throw TestFailure("\(answer.status) \(answer.text): \(answer.header("location") ?? "")")
        }
        return url.pathComponents[3]
    }

    /// The telemetry of a send, once it is over.
    func details(
        _ id: String,
        ends: [String] = ["Completed", "NoTargetFound"]
    ) async throws -> String {
        try await eventually("the send \(id) is over") {
            let answer = try await call("GET", "messages/\(id)", by: .full)
            guard answer.status == 200 else {
                throw TestFailure("GET messages: \(answer.status) \(answer.text)")
            }
            return ends.contains { answer.text.contains("<State>\($0)</State>") }
                ? answer.text : nil
        }
    }
}
