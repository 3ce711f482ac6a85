import Cryptography
import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Content hidden from Apple and Google", .serialized, .timeLimit(.minutes(10)))
    struct SecureTests {
        // MARK: The tutorial's app, unchanged except for its address

        /// A device of the tutorial's user, by platform.
        private struct Device {
            let platform: String
            let handle: String
            /// The simulator's key for it.
            let token: String
        }

        private func devices(_ stack: Stack) -> [Device] {
            let (phone, wns) = (makeAPNsToken(), TestEnvironment.unique("channel-"))
            let fcm = "reg:" + TestEnvironment.unique("fcm-")
            let mpns = "/mpns/" + TestEnvironment.unique("channel-")
            return [
                Device(platform: "apns", handle: phone, token: phone),
                Device(platform: "gcm", handle: fcm, token: fcm),
                Device(
                    platform: "wns",
                    handle: "\(stack.origin)/wns/?token=\(wns)",
                    token: wns
                ),
                Device(platform: "mpns", handle: stack.simulator.url + mpns, token: mpns),
            ]
        }

        /// Calls as the tutorial's app does: by Basic only.
        private func curl(
            _ bench: SecureBench,
            _ method: String,
            _ path: String,
            as user: String,
            _ body: JSONValue? = nil
        ) async throws -> (status: Int, text: String) {
            var arguments = ["-s", "-X", method, "-u", user, "-w", "\n%{http_code}"]
            if let body { arguments += ["-H", "Content-Type: application/json", "-d", body.text] }
            let output = try await run("/usr/bin/curl", arguments + [bench.service.url + path])
                .successful("curl \(path)")
            let lines = output.split(separator: "\n", omittingEmptySubsequences: false)
            return (Int(lines.last ?? "") ?? 0, lines.dropLast().joined(separator: "\n"))
        }

        @Test(
            "Each platform gets an id, its user fetches the content, and no other caller ever gets it",
            arguments: ["random", "int31"]
        )
        func tutorial(form: String) async throws {
            try await SecureBench.run(withDispatcher: true) { bench in
                let stack = bench.stack
                try await stack.carillon(
                    "app",
                    "set",
                    bench.app.id,
                    "secure-unnamed=on",
                    "secure-ids=\(form)"
                )
                let ann = "ann:" + (try await bench.secret(of: "ann"))
                let devices = devices(stack)
                for device in devices {
                    let made = try await curl(bench, "POST", "/api/register", as: ann)
                    let id = try #require(try JSONValue.parse(made.text).string)
                    let put = try await curl(
                        bench,
                        "PUT",
                        "/api/register/\(id)",
                        as: ann,
                        [
                            "Platform": .string(device.platform),
                            "Handle": .string(device.handle), "Tags": ["news"],
                        ]
                    )
                    #expect(put.status == 200, "\(put.text)")
                }
                let content = "the-content-" + TestEnvironment.unique("secret-")
                let kept = try await bench.keep(content)
                if form == "int31" {
                    #expect(kept.json.integer.map { (1...2_147_483_647).contains($0) } == true)
                } else {
                    #expect(kept.id.utf8.count == 32 && kept.json.string != nil)
                }
                try await checkSilent(devices, kept.id, stack)
                let shown = try await bench.keep(content, ["visibleText": "Hi <you> & all"])
                try await checkVisible(devices, shown.id, stack)

                // Each device fetches the id that it got; the first one to do so is the first
                // reader.
                for (number, _) in devices.enumerated() {
                    let answer = try await curl(
                        bench,
                        "GET",
                        "/api/notifications/\(kept.id)",
                        as: ann
                    )
                    #expect(answer.status == 200)
                    let expected: JSONObject = [
                        "Id": kept.json, "Payload": .string(content), "Read": .bool(number > 0),
                    ]
                    #expect(try JSONValue.parse(answer.text) == .object(expected))
                }
                let books = try await stack.finishedPush(event: "secure/\(kept.id)")
                #expect(books.booksBalance && books["delivered"] == 4, "\(books.text)")
                #expect(books["confirmed"] == 1)
                let outcomes = try await stack.outcomes(5, event: "secure/\(kept.id)")
                let confirmed = try #require(outcomes.first { $0["outcome"] == "confirmed" })
                var told = try #require(confirmed.object)
                #expect(told.removeValue(forKey: "at")?.string?.hasSuffix("Z") == true)
                let expected: JSONObject = [
                    "pushId": .string(kept.pushID), "eventId": .string("secure/\(kept.id)"),
                    "app": .string(bench.app.id), "identity": "ann", "provider": "secure",
                    "outcome": "confirmed", "attempt": 1,
                ]
                #expect(JSONValue.object(told) == .object(expected))
                let keys = try await stack.kafka.records(on: stack.topic("push.outcomes"))
                    .filter { $0.json?["outcome"] == "confirmed" }.map(\.key)
                #expect(keys == ["identity:ann"])
                try await expectNowhere(content, bench)
            }
        }

        private func checkSilent(
            _ devices: [Device],
            _ id: String,
            _ stack: Stack
        ) async throws {
            let got = try await received(1, devices, stack)
            #expect(got[0].body == ["aps": ["content-available": 1], "secureId": .string(id)])
            #expect(got[0].header("apns-push-type") == "background")
            #expect(got[0].header("apns-priority") == "5")
            #expect(got[1].body["message"]?["data"] == ["secureId": .string(id)])
            #expect(got[1].body["message"]?["notification"] == nil)
            #expect(got[1].body["message"]?["android"]?["priority"]?.string?.lowercased() == "high")
            #expect(raw(got[2]) == id && got[2].header("x-wns-type") == "wns/raw")
            #expect(raw(got[3]) == id && got[3].header("x-windowsphone-target") == nil)
        }

        /// Returns the value as it was sent; the simulator shows digits as a number.
        private func raw(_ received: SimulatorControl.Received) -> String {
            received.body.string ?? received.body.text
        }

        private func checkVisible(
            _ devices: [Device],
            _ id: String,
            _ stack: Stack
        ) async throws {
            let got = try await received(2, devices, stack)
            let aps: JSONValue = [
                "alert": "Hi <you> & all", "mutable-content": 1, "content-available": 1,
            ]
            #expect(got[0].body == ["aps": aps, "secureId": .string(id)])
            #expect(got[0].header("apns-push-type") == "alert")
            #expect(got[0].header("apns-priority") == "10")
            #expect(
                got[1].body["message"]?["data"]
                    == ["secureId": .string(id), "visibleText": "Hi <you> & all"]
            )
            #expect(got[1].body["message"]?["notification"] == nil)
            let toast = "Hi &lt;you&gt; &amp; all</text>"
            #expect(got[2].header("x-wns-type") == "wns/toast")
            #expect(got[2].body.string?.contains(toast) == true)
            #expect(got[2].body.string?.contains("launch=\"secureId=\(id)\"") == true)
            #expect(got[3].header("x-windowsphone-target") == "toast")
            #expect(got[3].body.string?.contains("<wp:Param>?secureId=\(id)</wp:Param>") == true)
        }

        /// Returns the request of that number that each device got.
        private func received(
            _ number: Int,
            _ devices: [Device],
            _ stack: Stack
        ) async throws -> [SimulatorControl.Received] {
            var all: [SimulatorControl.Received] = []
            for device in devices {
                let got = try await stack.simulator.waitFor(number, for: device.token)
                #expect(got.count == number && got.allSatisfy { (200..<300).contains($0.status) })
                all.append(got[number - 1])
            }
            return all
        }

        /// Expects that no provider and none of our stores and logs has a byte of it in plain text.
        private func expectNowhere(_ content: String, _ bench: SecureBench) async throws {
            let stack = bench.stack
            var places: [(String, String)] = [
                ("providers", try await http("GET", "\(stack.simulator.url)/received").text),
                ("metrics", try await http("GET", "\(bench.service.url)/metrics").text),
                ("audit", try await stack.carillon("audit", bench.app.id, "--json")),
                ("log", bench.service.process.lines().joined(separator: "\n")),
                ("dump", try await run("pg_dump", [stack.database.url]).successful("pg_dump")),
            ]
            for topic in Stack.topics {
                let records = try await stack.kafka.records(on: stack.topic(topic))
                places.append((topic, records.map(\.value).joined(separator: "\n")))
            }
            #expect(try #require(places.first { $0.0 == "push.requests" }).1.contains("secureId"))
            #expect(try #require(places.first { $0.0 == "dump" }).1.contains("secure_payloads"))
            let bytes = Array(content.utf8)
            let forms = [
                content, Hex.encode(bytes), Base64.encode(bytes),
                String(Base64.encodeURL(bytes).dropLast(2)),
            ]
            for (place, text) in places {
                for form in forms { #expect(!text.contains(form), "in \(place)") }
            }
        }

        // MARK: Repeats

        @Test("The same request is one, however often it is repeated, also concurrently")
        func repeats() async throws {
            try await SecureBench.run { bench in
                let body: JSONValue = ["identity": "ann", "payload": "content"]
                let headers = bench.app.masterHeaders.merging(["Idempotency-Key": "k-1"]) { $1 }
                let answers = try await withThrowingTaskGroup(of: HTTPAnswer.self) { group in
                    for _ in 0..<20 {
                        group.addTask {
                            try await bench.ask("POST", "/api/notifications", headers, body)
                        }
                    }
                    return try await group.reduce(into: []) { $0.append($1) }
                }
                #expect(answers.allSatisfy { $0.status == 201 && $0.body == answers[0].body })
                #expect(
                    answers[0].header("location")?.hasSuffix(answers[0].json?["Id"]?.string ?? "-")
                        == true
                )
                let counts = try await bench.stack.database.query(
                    """
                    SELECT (SELECT count(*) FROM secure_payloads), (SELECT count(*) FROM pushes
                        WHERE event_source = 'carillon/secure')
                    """
                )
                #expect(counts == ["1|1"])
                let other = try await bench.ask(
                    "POST",
                    "/api/notifications",
                    headers,
                    ["identity": "ann", "payload": "other"]
                )
                #expect(other.status == 422)
                // The same key of another app is another key.
                let elsewhere = bench.beside(try await bench.stack.makeApp())
                let theirs = try await elsewhere.keep(
                    "content",
                    headers: ["Idempotency-Key": "k-1"]
                )
                #expect(theirs.json != answers[0].json?["Id"])
                for key in ["", String(repeating: "k", count: 256)] {
                    let refused = try await bench.ask(
                        "POST",
                        "/api/notifications",
                        bench.app.masterHeaders.merging(["Idempotency-Key": key]) { $1 },
                        body
                    )
                    #expect(refused.status == 400)
                }
            }
        }
    }
}
