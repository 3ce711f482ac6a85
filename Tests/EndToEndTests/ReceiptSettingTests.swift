import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("Push ids in pushes", .runningStack, .serialized, .timeLimit(.minutes(2)))
    struct ReceiptSettingTests {
        private func told(_ bench: Bench, _ token: String, _ count: Int) async throws -> String? {
            let last = try await bench.simulator.waitFor(count, for: token).last
            return last?.body["pushId"]?.string
        }

        private func pushID(_ bench: Bench, _ event: String) async throws -> String? {
            try await eventually("the push is written") {
                let answer = try await run(
                    Stack.executable("carillon"),
                    ["push", "show", "--event", event, "--json"],
                    environment: bench.stack.environment
                )
                guard answer.exit == .status(0) else { return nil }
                return try JSONValue.parse(answer.output)["pushId"]?.string
            }
        }

        @Test(
            "Pushes to few devices and to all have the push id exactly while the app's setting is on"
        )
        func turns() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["all"])
            let (_, before) = bench.event(["all"])
            try await bench.stack.send(before)
            #expect(try await told(bench, token, 1) == nil)

            try await bench.stack.carillon("app", "set", bench.app.id, "receipts=on")
            let began = ContinuousClock.now
            var count = 1
            while true {
                let (id, event) = bench.event(["all"])
                try await bench.stack.send(event)
                count += 1
                if let told = try await told(bench, token, count) {
                    #expect(try await pushID(bench, id) == told)
                    break
                }
                guard ContinuousClock.now - began < .seconds(5) else {
                    Issue.record("the setting is not taken up within five seconds")
                    return
                }
            }
            let everybody = TestEnvironment.unique("event-")
            try await bench.stack.send([
                "id": .string(everybody), "source": "e2e", "app": .string(bench.app.id),
                "data": ["alert": "To everybody"],
            ])
            count += 1
            let told = try await told(bench, token, count)
            #expect(told != nil)
            #expect(try await pushID(bench, everybody) == told)

            let long = JSONValue.string(String(repeating: "x", count: 4060))
            let body: JSONValue = [
                "data": ["alert": long],
                "tokens": [["platform": "apns", "token": .string(token)]],
            ]
            func push() async throws -> Int {
                try await http(
                    "POST",
                    "\(bench.registration)/1.1/push",
                    headers: bench.app.masterHeaders,
                    body: body
                ).status
            }
            #expect(try await push() == 413)
            try await bench.stack.carillon("app", "set", bench.app.id, "receipts=off")
            let status = try await eventually("it is taken again", within: .seconds(5)) {
                let status = try await push()
                return status == 413 ? nil : status
            }
            #expect(status == 200)
        }
    }
}
