import JSON
import PushCore
import Support
import Testing

extension EndToEndTests {
    /// A dispatcher on a host whose clock is wrong, by Debian's `libfaketime`.
    @Suite(
        "A dispatcher whose clock is ahead",
        .timeLimit(.minutes(3)),
        .enabled(if: TestEnvironment.fakeTimeLibrary != nil, "libfaketime is not installed")
    )
    struct ClockTests {
        private struct Registration {
            let stack: Stack
            let app: Stack.App
            let url: String

            func post(_ path: String, _ body: JSONObject) async throws -> JSONValue {
                let answer = try await http(
                    "POST",
                    url + path,
                    headers: app.masterHeaders,
                    body: .object(body)
                )
                #expect((200..<300).contains(answer.status), "\(answer.text)")
                return answer.json ?? .null
            }
        }

        @Test(
            "Sends at its time, expires nothing early, and its tokens are taken",
            arguments: [120, 3600]
        )
        func ahead(seconds: Int) async throws {
            try await Stack.with { stack in
                let registration = try await stack.start("carillon-registration")
                let dispatcher = try await ChildProcess.start(
                    Stack.executable("carillon-dispatcher"),
                    environment: stack.environment.merging([
                        "LD_PRELOAD": TestEnvironment.fakeTimeLibrary ?? "",
                        "FAKETIME": "+\(seconds)s", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
                        "OPERATIONS_PORT": "0",
                    ]) { $1 }
                )
                let operations = try await dispatcher.port(surface: "operations")
                let there = Registration(
                    stack: stack,
                    app: try await stack.makeApp(),
                    url: registration.url
                )
                let token = makeAPNsToken()
                let installation = try await there.post(
                    "/1.1/installations",
                    ["deviceType": "ios", "deviceToken": .string(token)]
                )
                let id = try #require(installation["objectId"])
                let time = Instant.now().adding(milliseconds: 5000).iso8601
                _ = try await there.post(
                    "/1.1/push",
                    [
                        "data": ["alert": "Now"], "installations": [id],
                        "expiration_interval": 100,
                    ]
                )
                _ = try await there.post(
                    "/1.1/push",
                    ["data": ["alert": "Later"], "installations": [id], "push_time": .string(time)]
                )
                _ = try await there.post(
                    "/1.1/push",
                    ["data": ["alert": "All"], "where": ["deviceType": "ios"]]
                )
                let received = try await stack.simulator.waitFor(3, for: token)
                let later = received.filter { $0.body.text.contains("Later") }
                #expect(later.count == 1 && later.allSatisfy { $0.at >= time })
                let ready = try await http("GET", "http://127.0.0.1:\(operations)/readyz")
                #expect(ready.status == 200)
                let warning = ready.json?["warnings"]?[0]?["reason"]?.string ?? ""
                #expect(warning.hasSuffix(" s ahead of Postgres'"), "\(ready.text)")
                await dispatcher.stop()
                await registration.process.stop()
            }
        }
    }
}
