import Glibc
import JSON
import PushCore
import Support
import Testing

extension EndToEndTests {
    @Suite("The time of a push", .runningStack, .serialized, .timeLimit(.minutes(2)))
    struct TimeTests {
        private func inSeconds(_ seconds: Int64) -> String {
            Instant.now().adding(milliseconds: seconds * 1000).iso8601
        }

        private func carillon(_ bench: Bench, _ words: String...) async throws -> ProgramAnswer {
            try await run(
                Stack.executable("carillon"),
                words,
                environment: bench.stack.environment
            )
        }

        /// Sends a push for later over HTTP; returns its id.
        private func push(_ bench: Bench, _ fields: JSONObject) async throws -> String {
            var body = fields
            body["data"] = ["alert": "Later"]
            let answer = try await http(
                "POST",
                "\(bench.registration)/1.1/push",
                headers: bench.app.masterHeaders,
                body: .object(body)
            )
            #expect(answer.status == 200, "\(answer.text)")
            return try #require(answer.json?["objectId"]?.string)
        }

        private func scheduled(_ bench: Bench) async throws -> [JSONValue] {
            let answer = try await http(
                "GET",
                "\(bench.registration)/1.1/scheduledPushMessages",
                headers: bench.app.masterHeaders
            )
            #expect(answer.status == 200, "\(answer.text)")
            return answer.json?["results"]?.array ?? []
        }

        private func status(_ bench: Bench, _ id: String) async throws -> String? {
            try await http(
                "GET",
                "\(bench.registration)/1.1/tables/Notifications/\(id)",
                headers: bench.app.masterHeaders
            ).json?["status"]?.string
        }

        @Test("A scheduled push is not sent before its time, to a channel and by name")
        func notBefore() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            let installation = try await bench.registerPhone(token: token, channels: ["news"])
            let time = inSeconds(2)
            let (first, broadcast) = bench.event(["news"])
            let second = TestEnvironment.unique("event-")
            var request = broadcast.object ?? [:]
            request["push_time"] = .string(time)
            var named = request
            named["channels"] = nil
            named["installations"] = [.string(installation)]
            named["id"] = .string(second)
            named["expiration_interval"] = 600
            try await bench.stack.send(.object(request), .object(named))

            let received = try await bench.simulator.waitFor(2, for: token)
            #expect(received.allSatisfy { $0.at >= time }, "\(received.map(\.at)) after \(time)")
            for id in [first, second] {
                let push = try await bench.stack.finishedPush(event: id)
                #expect(push["delivered"]?.integer == 1)
                #expect(push["releaseAt"]?.string == time)
                #expect(push.booksBalance)
            }
            // It counts from its time, and is in APNs' own field.
            let expirations = received.compactMap { $0.header("apns-expiration") }
            let end = try #require(Instant(iso8601: time)).adding(milliseconds: 600_000)
            #expect(expirations == [String(end.seconds)])
        }

        @Test(
            "A scheduled push is listed with its status, and can be cancelled until it is released"
        )
        func takenBack() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["news"])
            let time = inSeconds(3600)
            let id = try await push(bench, ["channels": ["news"], "push_time": .string(time)])
            let other = try await push(bench, ["push_time": .string(inSeconds(7200))])
            #expect(try await status(bench, id) == "scheduled")
            let listed = try await scheduled(bench)
            #expect(listed.compactMap { $0["push_msg"]?["id"]?.string } == [id, other])
            let item = try #require(listed.first)
            let milliseconds = Instant(iso8601: time).map { Int($0.milliseconds) }
            #expect(item["expire_time"]?.integer == milliseconds)
            #expect(item["push_msg"]?["msg"]?["alert"]?.string == "Later")
            #expect(item["push_msg"]?["where"]?["query"]?["valid"]?.bool == true)
            #expect(item["push_msg"]?["app-id"]?.string == bench.app.id)
            let number = try #require(item["id"]?.integer)

            let path = "\(bench.registration)/1.1/scheduledPushMessages/\(number)"
            let refused = try await http("DELETE", path, headers: bench.app.clientHeaders)
            #expect(refused.status == 403)
            let first = try await http("DELETE", path, headers: bench.app.masterHeaders)
            #expect(first.status == 200, "\(first.text)")
            #expect(first.json == [:])
            let second = try await http("DELETE", path, headers: bench.app.masterHeaders)
            #expect(second.status == 404)
            #expect(second.json?["code"]?.integer == 101)
            #expect(try await status(bench, id) == "cancelled")

            let words = try await carillon(bench, "push", "list", "--scheduled", bench.app.id)
            #expect(words.output.contains(other), "\(words)")
            #expect(!words.output.contains(id))
            let cancelled = try await carillon(bench, "push", "cancel", other, "--json")
            #expect(cancelled.exit == .status(0), "\(cancelled)")
            #expect(try JSONValue.parse(cancelled.output)["status"]?.string == "cancelled")
            #expect(try await scheduled(bench).isEmpty)
            let unknown = try await carillon(
                bench,
                "push",
                "cancel",
                "00000000-0000-4000-8000-000000000000"
            )
            #expect(unknown.exit == .status(1))
            #expect(try await bench.simulator.received(for: token).isEmpty)
        }

        @Test("A finished push cannot be cancelled, --at sends later, and --wait waits for it")
        func sentLater() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["news"])
            let before = Instant.now()
            let sent = try await carillon(
                bench,
                "push",
                "send",
                bench.app.id,
                "--channel",
                "news",
                "--alert",
                "Later",
                "--at",
                "1s",
                "--wait",
                "--json"
            )
            #expect(sent.exit == .status(0), "\(sent)")
            let push = try JSONValue.parse(sent.output)
            #expect(push["delivered"]?.integer == 1)
            let received = try await bench.simulator.received(for: token)
            #expect(received.count == 1)
            #expect(
                received.allSatisfy { $0.at >= before.adding(milliseconds: 1000).iso8601 }
            )
            let over = try await carillon(
                bench,
                "push",
                "cancel",
                push["pushId"]?.string ?? ""
            )
            #expect(over.exit == .status(1))
            #expect(over.errors.contains("done"))
            let audit = try await carillon(bench, "audit", bench.app.id, "--json")
            let entry = try JSONValue.parse(
                String(audit.output.split(separator: "\n").first ?? "")
            )
            #expect(entry["action"] == "push cancel" && entry["status"] == 1)
            #expect(entry["detail"]?["refusal"] == "the push had already ended: done")
            let told = try await carillon(bench, "audit", bench.app.id)
            #expect(told.output.contains("the push had already ended: done"))
        }

        @Test("Each device gets a device-local push when its own clock shows the time")
        func local() async throws {
            let bench = try await Bench()
            let (tokyo, none, honolulu) = (makeAPNsToken(), makeAPNsToken(), makeAPNsToken())
            for (token, zone) in [
                (tokyo, "Asia/Tokyo"), (none, ""), (honolulu, "Pacific/Honolulu"),
            ] {
                var fields: JSONObject = [
                    "deviceType": "ios", "deviceToken": .string(token), "channels": ["news"],
                    "apnsTopic": .string(bench.app.bundleID), "apnsEnvironment": "production",
                ]
                if !zone.isEmpty { fields["timeZone"] = .string(zone) }
                _ = try await bench.register(.object(fields))
            }
            // It was nine hours ago in Tokyo, and is in ten hours in Honolulu.
            let time = inSeconds(3)
            let id = try await push(
                bench,
                ["channels": ["news"], "push_time": .string(String(time.dropLast()))]
            )
            #expect(try await bench.simulator.waitFor(1, for: tokyo).count == 1)
            let received = try await bench.simulator.waitFor(1, for: none)
            #expect(received.allSatisfy { $0.at >= time })
            let cancelled = try await carillon(bench, "push", "cancel", id, "--json")
            let push = try JSONValue.parse(cancelled.output)
            #expect(push["targeted"]?.integer == 3, "\(cancelled)")
            // A dispatcher reports the outcome before the ledger has it.
            let ended = try await eventually("the end of what was cancelled") {
                let shown = try await carillon(bench, "push", "show", id, "--json")
                let push = try JSONValue.parse(shown.output)
                return push["pending"]?.integer == 0 ? push : nil
            }
            #expect(ended["suppressed"]?.integer == 1)
            #expect(try await bench.simulator.received(for: honolulu).isEmpty)
        }

        @Test("--watch ends with its push, by lines or objects, and Ctrl-C ends it early")
        func watches() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["news"])
            let id = try await push(
                bench,
                ["channels": ["news"], "push_time": .string(inSeconds(2))]
            )
            async let objects = carillon(bench, "push", "show", id, "--watch", "--json")
            let lines = try await carillon(bench, "push", "show", id, "--watch")
            #expect(lines.exit == .status(0), "\(lines)")
            #expect(lines.output.contains("1/1 (100.0 %)"))
            #expect(!lines.output.contains("\r"))
            let answer = try await objects
            #expect(answer.exit == .status(0), "\(answer)")
            let parsed = try answer.output.split(separator: "\n").map {
                try JSONValue.parse(String($0))
            }
            #expect(parsed.count >= 2)
            #expect(parsed.allSatisfy { $0["pushId"]?.string == id })
            #expect(parsed.last?["status"]?.string == "done")

            let later = try await push(bench, ["push_time": .string(inSeconds(3600))])
            let watching = try await ChildProcess.start(
                Stack.executable("carillon"),
                ["push", "show", later, "--watch"],
                environment: bench.stack.environment
            )
            _ = try await watching.line("the first line") { $0.hasPrefix("scheduled for") }
            watching.signal(SIGINT)
            #expect(await watching.exit() == .status(130))
        }

        @Test("Tokens that were disabled by mistake are valid again after installations restore")
        func restores() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            let installation = try await bench.registerPhone(token: token, channels: ["news"])
            try await bench.simulator.setRules([
                [
                    "provider": "apns", "token": .string(token), "status": 410,
                    "reason": "Unregistered",
                    "timestamp": .integer(Instant.now().milliseconds + 1000),
                ]
            ])
            let (id, event) = bench.event(["news"])
            try await bench.stack.send(event)
            _ = try await bench.stack.finishedPush(event: id)
            try await bench.simulator.setRules([])
            #expect(try await bench.installation(installation)["valid"]?.bool == false)

            let words = [
                "installations", "restore", "--since", "1h", "--reason", "Unregistered", "--app",
                bench.app.id, "--json",
            ]
            for (extra, restored, isValid) in [(["--dry-run"], 0, false), ([], 1, true)] {
                let answer = try await run(
                    Stack.executable("carillon"),
                    words + extra,
                    environment: bench.stack.environment
                )
                #expect(answer.exit == .status(0), "\(answer)")
                let told = try JSONValue.parse(answer.output)
                #expect(told["invalid"]?.integer == 1)
                #expect(told["restored"]?.integer == restored)
                #expect(try await bench.installation(installation)["valid"]?.bool == isValid)
            }
        }
    }
}
