import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Remote config, from a publish to the devices", .serialized, .timeLimit(.minutes(5)))
    struct ConfigTests {
        // MARK: The push

        @Test(
            "A publish notifies FCM's topic and subscribed iPhones once, and the books balance"
        )
        func rings() async throws {
            // This is long enough for a fetch to be recorded.
            try await ConfigBench.run(["CONFIG_COALESCE": "5s"], withDispatcher: true) { bench in
                let registration = try await bench.stack.start("carillon-registration")
                let (phone, knows) = (makeAPNsToken(), makeAPNsToken())
                for (token, name) in [(phone, "listens"), (knows, "knows")] {
                    let answer = try await http(
                        "POST",
                        "\(registration.url)/1.1/installations",
                        headers: bench.app.clientHeaders,
                        body: [
                            "deviceType": "ios", "deviceToken": .string(token),
                            "apnsTopic": .string(bench.app.bundleID),
                            "apnsEnvironment": "production", "channels": ["PUSH_RC"],
                            "installationId": .string(name),
                        ]
                    )
                    #expect(answer.status == 201)
                }
                #expect(try await bench.publish(ConfigBench.template("silver")) == "1")
                // A device that has fetched it needs no notification.
                #expect(try await bench.fetch("knows").json?["templateVersion"] == "1")
                _ = try await eventually("the fetch is noted") {
                    let noted = try await bench.stack.database.query(
                        "SELECT version FROM config_fetched"
                    )
                    return noted == ["1"] ? () : nil
                }
                let push = try await bench.stack.simulator.waitFor(1, for: phone)
                let ring = try #require(push.first)
                #expect(ring.header("apns-push-type") == "background")
                #expect(ring.header("apns-priority") == "5")
                #expect(
                    ring.body == [
                        "aps": ["content-available": 1], "CONFIG_STATE": "STALE",
                        "CONFIG_VERSION": "1",
                    ]
                )
                let topic = try await eventually("FCM's topic message") {
                    let all = try await bench.stack.simulator.received().all
                        .filter { $0.provider == "fcm" }
                    return all.isEmpty ? nil : all
                }
                #expect(topic.count == 1)
                let message = try #require(topic.first?.body["message"])
                #expect(message["topic"] == "PUSH_RC")
                #expect(message["data"] == ["CONFIG_STATE": "STALE", "CONFIG_VERSION": "1"])
                #expect(message["notification"] == nil)
                #expect(message["android"]?["priority"]?.string.map { $0 == "NORMAL" } != false)
                let books = try await bench.stack.finishedPush(event: "config/firebase/1")
                #expect(books.booksBalance)
                #expect(books["targeted"] == 2 && books["delivered"] == 2, "\(books.text)")
                #expect(try await bench.stack.simulator.received(for: knows).isEmpty)
                #expect(await registration.process.stop() == .status(0))
            }
        }

        @Test(
            "Rapid publishes are one announcement of the last, and a rollback is announced normally"
        )
        func coalesces() async throws {
            // This is longer than five publishes take on a busy machine.
            try await ConfigBench.run(["CONFIG_COALESCE": "4s"]) { bench in
                for number in 1...5 { try await bench.publish(ConfigBench.template("\(number)")) }
                let first = try await bench.announced(1)
                #expect(first.map { $0["configVersion"] } == ["5"])
                #expect(
                    first.first?["data"] == ["CONFIG_STATE": "STALE", "CONFIG_VERSION": "5"]
                )
                #expect(first.first?["id"] == "config/firebase/5")
                #expect(first.first?["topic"] == "PUSH_RC")
                let back = try await http(
                    "POST",
                    "\(bench.project)/remoteConfig:rollback?versionNumber=2",
                    headers: bench.bearer
                )
                #expect(back.json?["version"]?["versionNumber"] == "6", "\(back.text)")
                let both = try await bench.announced(2)
                #expect(both.map { $0["configVersion"] } == ["5", "6"])
                #expect(both.last?["updateType"] == "ROLLBACK")
                let metrics = try await eventually("both announcements are counted") {
                    let text = try await http("GET", bench.watcher.url + "/metrics").text
                    return text.contains("config_announcement_delay_seconds_count 2\n") ? text : nil
                }
                // No announcement comes sooner, whatever the setting.
                #expect(
                    metrics.contains("config_announcement_delay_seconds_bucket{le=\"0.5\"} 0\n")
                )
                #expect(try await bench.fetch().json?["entries"]?["bell"] == "2")
            }
        }

        @Test(
            "A function call, a row and a record of other writers are announced, and bad ones named"
        )
        func otherWriters() async throws {
            try await ConfigBench.run { bench in
                let (app, stack) = (bench.app.id, bench.stack)
                let template = ConfigBench.template("by SQL").text
                _ = try await stack.database.query(
                    "SELECT carillon_publish_config('\(app)', 'firebase', '\(template)', 'psql')"
                )
                #expect(try await bench.announced(1).last?["configVersion"] == "1")
                #expect(try await bench.fetch().json?["entries"]?["bell"] == "by SQL")

                _ = try await stack.database.query(
                    """
                    INSERT INTO config_versions (app, namespace, version, template)
                    VALUES ('\(app)', 'firebase', 2, '{"parameters": {"1bell": {}}}')
                    """
                )
                let status = try await eventually("the broken row is named") {
                    let status = try await stack.carillon("config", "status", app)
                    return status.contains("1bell") ? status : nil
                }
                #expect(status.contains("2"))
                #expect(try await doctor(stack).contains("1bell"))
                #expect(try await bench.fetch().json?["templateVersion"] == "1")
                #expect(try await bench.publish(ConfigBench.template("after it")) == "3")
                #expect(try await bench.announced(2).last?["configVersion"] == "3")

                // Another system's, whose template is not here.
                let other = try await stack.makeApp()
                try await stack.carillon(
                    "app",
                    "link",
                    other.id,
                    "--fcm-project",
                    "\(other.id)-project"
                )
                try await stack.kafka.produce(
                    [
                        ("k", "{\"project\": \"\(other.id)-project\", \"version\": \"41\"}"),
                        ("k", "{\"project\": \"\(other.id)-project\", \"version\": 40}"),
                        ("nobody", "{\"project\": \"nobody\", \"version\": 1}"),
                        ("above", "{\"project\": \"\(app)\", \"version\": 99}"),
                        ("zero", "{\"project\": \"\(app)\", \"version\": 0}"),
                        ("text", "not json"),
                    ],
                    to: stack.topic("config.published")
                )
                for key in ["nobody", "above", "zero", "text"] {
                    _ = try await stack.deadLetters(1, key: key)
                }
                let all = try await bench.announced(3)
                #expect(all.count == 3)
                let foreign = all.filter { $0["app"] == .string(other.id) }
                #expect(foreign.map { $0["configVersion"] } == ["41"])
            }
        }

        private func doctor(_ stack: Stack) async throws -> String {
            try await run(
                Stack.executable("carillon"),
                ["doctor"],
                environment: stack.environment
            ).output
        }

        // MARK: Fetching, as the SDKs do

        @Test("Requests of the Android, iOS and JavaScript SDKs get the responses that they read")
        func recorded() async throws {
            try await ConfigBench.run { bench in
                try await bench.stack.carillon(
                    "app",
                    "link",
                    bench.app.id,
                    "--fcm-project",
                    "881233445566",
                    "--firebase-api-key",
                    "AIzaSyA-0123456789abcdefghijklmnopqrstu"
                )
                try await bench.publish([
                    "conditions": [
                        ["name": "phones", "expression": "device.os == 'ios'"],
                        [
                            "name": "loud",
                            "expression": "app.customSignal['mood'].exactlyMatches(['loud'])",
                        ],
                    ],
                    "parameters": [
                        "bell": [
                            "defaultValue": ["value": "brass"],
                            "conditionalValues": [
                                "loud": ["value": "gong"], "phones": ["value": "silver"],
                            ],
                        ],
                        "quiet": ["defaultValue": ["useInAppDefault": true]],
                    ],
                ])
                let key = "AIzaSyA-0123456789abcdefghijklmnopqrstu"
                let base = "\(bench.watcher.url)/v1/projects"
                let android = try await http(
                    "POST",
                    "\(base)/881233445566/namespaces/firebase:fetch",
                    headers: [
                        "X-Goog-Api-Key": key, "X-Android-Package": "com.example",
                        "X-Firebase-RC-Fetch-Type": "BASE/1", "Content-Type": "application/json",
                        "Accept": "application/json",
                    ],
                    bytes: Array(
                        #"{"appInstanceId":"a","appId":"1:881233445566:android:ff","languageCode":"en-US","customSignals":{"mood":"loud"},"firstOpenTime":"2026-01-01T00:00:00.000Z","timeZone":"GMT"}"#
                            .utf8
                    )
                )
                #expect(android.status == 200, "\(android.text)")
                #expect(android.json?["state"] == "UPDATE")
                #expect(android.json?["entries"] == ["bell": "gong"])
                #expect(android.json?["templateVersion"] == "1")
                let etag = try #require(android.header("etag"))
                #expect(etag.hasPrefix("etag-\(bench.app.id)-firebase-fetch-1-"))

                // iOS sends real gzip and relaxed JSON.
                let relaxed =
                    "{app_instance_id:'i', app_id:'1:881233445566:ios:ff', country_code:'CH', "
                    + "language_code:'de-CH', platform_version:'18.0', sdk_version:'12.0', "
                    + "custom_signals:{\"mood\":\"calm\"}}"
                let ios = try await http(
                    "POST",
                    "\(base)/\(bench.app.id)/namespaces/firebase:fetch?key=\(key)",
                    headers: [
                        "Content-Type": "application/json", "Content-Encoding": "gzip",
                        "If-None-Match": etag,
                    ],
                    bytes: try await gzipped(relaxed)
                )
                #expect(ios.status == 200, "\(ios.text)")
                #expect(ios.json?["entries"] == ["bell": "silver"])
                #expect(ios.header("etag") != nil)

                // JavaScript's header is wrong; after that nothing has changed.
                func javaScript(_ ifNoneMatch: String) async throws -> HTTPAnswer {
                    try await http(
                        "POST",
                        "\(base)/\(bench.app.id)/namespaces/firebase:fetch?key=\(key)",
                        headers: [
                            "Content-Type": "application/json", "Content-Encoding": "gzip",
                            "If-None-Match": ifNoneMatch, "Origin": "https://shop.example",
                        ],
                        bytes: Array(
                            #"{"sdk_version":"11.0","app_instance_id":"j","app_instance_id_token":"t","app_id":"1:1:web:ff","language_code":"en"}"#
                                .utf8
                        )
                    )
                }
                let web = try await javaScript("*")
                #expect(web.json?["state"] == "UPDATE" && web.json?["entries"] == ["bell": "brass"])
                #expect(web.header("access-control-allow-origin") == "*")
                #expect(web.header("access-control-expose-headers")?.contains("ETag") == true)
                let same = try await javaScript(try #require(web.header("etag")))
                #expect(same.status == 200 && same.json?["state"] == "NO_CHANGE")
                #expect(same.json?["entries"] == nil && same.header("etag") == web.header("etag"))

                let preflight = try await http(
                    "OPTIONS",
                    "\(base)/\(bench.app.id)/namespaces/firebase:fetch",
                    headers: [
                        "Origin": "https://shop.example", "Access-Control-Request-Method": "POST",
                    ]
                )
                #expect((200..<300).contains(preflight.status))
                #expect(
                    preflight.header("access-control-allow-headers")?.contains("if-none-match")
                        == true
                )
                let refused = try await http(
                    "POST",
                    "\(base)/\(bench.app.id)/namespaces/firebase:fetch?key=wrong",
                    headers: ["Origin": "https://shop.example"],
                    body: [:]
                )
                #expect(refused.status == 403)
                #expect(refused.json?["error"]?["status"] == "PERMISSION_DENIED")
                #expect(refused.header("access-control-allow-origin") == "*")
            }
        }

        private func gzipped(_ text: String) async throws -> [UInt8] {
            let base64 = try await run(
                "/bin/sh",
                ["-c", "printf %s \"$TEXT\" | gzip -n | base64 -w 0"],
                environment: ["TEXT": text, "PATH": "/usr/bin:/bin"]
            )
            .successful("gzip")
            return [UInt8](try #require(Data(base64Encoded: base64)))
        }

        @Test("An instance has a number of fetches an hour, and is told when to retry")
        func throttled() async throws {
            try await ConfigBench.run { bench in
                try await bench.stack.carillon(
                    "app",
                    "set",
                    bench.app.id,
                    "config-fetches-per-hour=3"
                )
                try await bench.publish(ConfigBench.template("silver"))
                let last = try await eventually("the limit holds") {
                    let answer = try await bench.fetch("greedy")
                    return answer.status == 429 ? answer : nil
                }
                #expect(last.json?["error"]?["status"] == "RESOURCE_EXHAUSTED")
                #expect(last.header("retry-after").flatMap(Int.init).map { $0 > 0 } == true)
                #expect(try await bench.fetch("modest").status == 200)
                // Unreadable requests are counted by address.
                var statuses: [Int] = []
                for _ in 0..<4 {
                    let answer = try await http(
                        "POST",
                        "\(bench.project)/namespaces/firebase:fetch",
                        headers: ["X-Goog-Api-Key": bench.app.appKey],
                        bytes: Array("{{".utf8)
                    )
                    statuses.append(answer.status)
                }
                #expect(statuses == [400, 400, 400, 429])
                #expect(try await bench.fetch("another").status == 200)
            }
        }

        // MARK: Streams

        @Test("A stream sends a newer version at once, then each announcement, and ends gracefully")
        func streams() async throws {
            try await ConfigBench.run { bench in
                try await bench.publish(ConfigBench.template("one"))
                let lines = try await ChildProcess.start(
                    "/usr/bin/curl",
                    [
                        "-sN", "-X", "POST", "-H", "X-Goog-Api-Key: \(bench.app.appKey)", "-d",
                        #"{"lastKnownVersionNumber":"0","appInstanceId":"s","appId":"1:1:web:ff"}"#,
                        "\(bench.project)/namespaces/firebase:streamFetchInvalidations",
                    ],
                    environment: [:]
                )
                let events = try await ChildProcess.start(
                    "/usr/bin/curl",
                    [
                        "-sN", "-H", "Last-Event-ID: 1",
                        "\(bench.project)/remoteConfig:stream?key=\(bench.app.appKey)",
                    ],
                    environment: [:]
                )
                let first = #"{"latestTemplateVersionNumber":"1"}"#
                _ = try await lines.line("the first version") { $0 == first }
                try await bench.publish(ConfigBench.template("two"))
                let second = #"{"latestTemplateVersionNumber":"2"}"#
                _ = try await lines.line("the second version") { $0 == second }
                _ = try await events.line("the second version's id") { $0 == "id: 2" }
                #expect(await bench.watcher.process.stop() == .status(0))
                #expect(await lines.exit() == .status(0))
                #expect(await events.exit() == .status(0))
                let goodbye = try JSONValue.parse(lines.lines().last { !$0.isEmpty } ?? "")
                #expect(goodbye["latestTemplateVersionNumber"] == "2")
                #expect((1...30).contains(goodbye["retryIntervalSeconds"]?.integer ?? 0))
                let heard = events.lines()
                #expect(heard.contains("event: config"))
                #expect(heard.contains(#"data: {"CONFIG_STATE":"STALE","CONFIG_VERSION":"2"}"#))
                #expect(!heard.contains("id: 1"))
                #expect(heard.contains { $0.hasPrefix("retry:") })
            }
        }

        @Test("Streams of a deleted app end gracefully, and those of other apps continue")
        func deletedApps() async throws {
            try await ConfigBench.run { bench in
                let other = try await bench.stack.makeApp()
                try await bench.publish(ConfigBench.template("one"))
                func listen(to app: Stack.App) async throws -> ChildProcess {
                    let project = "\(bench.watcher.url)/v1/projects/\(app.id)"
                    return try await ChildProcess.start(
                        "/usr/bin/curl",
                        [
                            "-sN", "-X", "POST", "-H", "X-Goog-Api-Key: \(app.appKey)", "-d",
                            #"{"lastKnownVersionNumber":"0","appInstanceId":"s"}"#,
                            "\(project)/namespaces/firebase:streamFetchInvalidations",
                        ],
                        environment: [:]
                    )
                }
                let deleted = try await listen(to: bench.app)
                let first = #"{"latestTemplateVersionNumber":"1"}"#
                _ = try await deleted.line("the first version") { $0 == first }
                let stays = try await listen(to: other)
                func open(_ count: Int) async throws {
                    try await eventually("\(count) streams are open") {
                        let text = try await http("GET", bench.watcher.url + "/metrics").text
                        return text.contains("config_streams \(count)\n") ? () : nil
                    }
                }
                try await open(2)
                try await bench.stack.carillon("app", "delete", bench.app.id, "--yes")
                #expect(await deleted.exit() == .status(0))
                let goodbye = try JSONValue.parse(deleted.lines().last { !$0.isEmpty } ?? "")
                #expect(goodbye["latestTemplateVersionNumber"] == "1")
                #expect((1...30).contains(goodbye["retryIntervalSeconds"]?.integer ?? 0))
                try await open(1)
                #expect(await bench.watcher.process.stop() == .status(0))
                #expect(await stays.exit() == .status(0))
            }
        }

        // MARK: Crashes

        @Test("Promise 1: a version published before a kill is announced after it, by one push")
        func killed() async throws {
            try await Stack.with { stack in
                let first = try await ConfigBench.startWatcher(on: stack)
                let app = try await stack.makeApp()
                let token = try await stack.configToken(of: app.id, named: "ci")
                let bench = ConfigBench(stack: stack, watcher: first, app: app, token: token)
                try await bench.publish(ConfigBench.template("one"))
                first.process.signal(SIGKILL)
                #expect(await first.process.exit() == .signal(SIGKILL))
                let second = try await ConfigBench.startWatcher(on: stack)
                let again = ConfigBench(stack: stack, watcher: second, app: app, token: token)
                #expect(try await again.announced(1).first?["configVersion"] == "1")
                #expect(try await again.fetch().json?["templateVersion"] == "1")
                #expect(await second.process.stop() == .status(0))
            }
        }
    }
}
