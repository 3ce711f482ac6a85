import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("A broadcast reaches every device", .serialized)
    struct BroadcastTests {
        /// An app with many phones, and one push to all of them.
        private struct Audience {
            let stack: Stack
            let app: Stack.App
            let count: Int
            let event: String

            /// Writes the phones to the table in batches: registration is not tested here.
            init(_ count: Int, on stack: Stack) async throws {
                self.stack = stack
                self.count = count
                app = try await stack.makeApp()
                event = TestEnvironment.unique("broadcast-")
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, provider, token,
                        token_hash, environment, apns_topic, token_updated_at, created_at)
                    select '\(app.id)', lpad(to_hex(n), 24, '0'), 'ios', 'apns', token,
                        sha256(convert_to(token, 'UTF8')), 'production', '\(app.bundleID)',
                        now() - interval '1 h', now() - interval '1 h'
                    from (select n, encode(sha256(convert_to('\(app.id)' || n, 'UTF8')), 'hex')
                        as token from generate_series(1, \(count)) n) phones
                    """
                )
            }

            func send(_ more: [String: JSONValue] = [:]) async throws {
                var request: JSONObject = [
                    "id": .string(event), "source": "e2e", "app": .string(app.id),
                    "data": ["alert": "To everybody"],
                ]
                for (key, value) in more { request[key] = value }
                try await stack.send(.object(request))
            }

            /// Returns the push as `push show` prints it, once it has ended.
            func over(_ status: String = "done") async throws -> JSONValue {
                try await eventually("the broadcast is \(status)", within: .seconds(90)) {
                    let push = try await show()
                    guard push?["status"]?.string == status, push?["pending"]?.integer == 0 else {
                        return nil
                    }
                    return push
                }
            }

            func show(_ options: String...) async throws -> JSONValue? {
                let answer = try await run(
                    Stack.executable("carillon"),
                    ["push", "show", "--event", event, "--json"] + options,
                    environment: stack.environment
                )
                return answer.exit == .status(0) ? try? JSONValue.parse(answer.output) : nil
            }

            /// Returns the rows counted by outcome, to compare the ledger with the deliveries.
            func rows() async throws -> [String] {
                try await stack.database.query(
                    """
                    select state, count(*) from all_deliveries where app = '\(app.id)'
                    group by state order by state
                    """
                )
            }

            /// Returns the installations with an outcome on Kafka, or with this one, and the number
            /// of outcomes.
            func outcomes(
                _ outcome: String? = nil
            ) async throws -> (installations: Set<String>, records: Int) {
                let records = try await stack.kafka.records(on: stack.topic("push.outcomes"))
                    .compactMap(\.json).filter { $0["eventId"]?.string == event }
                    .filter { outcome == nil || $0["outcome"]?.string == outcome }
                return (Set(records.compactMap { $0["installationId"]?.string }), records.count)
            }
        }

        @Test(
            "kill -9, then SIGTERM, during 20,000 deliveries misses no device, with bounded repeats",
            .timeLimit(.minutes(4))
        )
        func killed() async throws {
            let (inFlight, shards, every) = (512, 2, 250)
            try await Stack.with([
                "DISPATCH_IN_FLIGHT": "\(inFlight)", "DISPATCH_SHARDS": "\(shards)",
                "DISPATCH_CHECKPOINT_EVERY": "\(every)",
            ]) { stack in
                let audience = try await Audience(20_000, on: stack)
                let collected = Collected(stack.simulator)
                try await audience.send()
                // It is fast at first, then slow, so that the kill comes in the middle on a busy
                // machine too.
                let rules: [JSONValue] = [
                    ["provider": "apns", "times": 6000],
                    ["provider": "apns", "delayMs": [500, 1500]],
                ]
                try await stack.simulator.setRules(rules)
                let first = try await stack.start("carillon-dispatcher")
                _ = try await eventually("6,000 requests", within: .seconds(60)) {
                    try await stack.simulator.count("apns", status: 200) >= 6200 ? true : nil
                }
                first.process.signal(SIGKILL)
                #expect(await first.process.exit() == .signal(SIGKILL))
                try await collected.update()
                try await stack.simulator.setRules(rules)

                let second = try await stack.start("carillon-dispatcher")
                _ = try await eventually("as many again", within: .seconds(60)) {
                    try await stack.simulator.count("apns", status: 200) >= 12_400 ? true : nil
                }
                #expect(await second.process.stop() == .status(0), "\(second.process.finalBytes)")
                try await collected.update()
                #expect(await collected.names.count < audience.count, "the end came too late")
                try await stack.simulator.setRules([])

                let third = try await stack.start("carillon-dispatcher")
                let push = try await audience.over()
                try await collected.update()
                #expect(await third.process.stop() == .status(0), "\(third.process.finalBytes)")

                #expect(await collected.names.count == audience.count)
                let differing = await collected.names.values.filter { Set($0).count != 1 }
                #expect(differing.isEmpty, "repeats with another apns-id: \(differing.count)")
                let repeats = await collected.requests - audience.count
                print("kill -9 in a broadcast of 20,000: \(repeats) requests were repeats")
                #expect(repeats <= shards * every + inFlight)
                #expect(push["delivered"]?.integer == audience.count)
                #expect(push.booksBalance)
                #expect(try await audience.rows() == ["1|\(audience.count)"])
                let outcomes = try await audience.outcomes()
                #expect(outcomes.installations.count == audience.count)
                #expect(outcomes.records - audience.count <= shards * every + inFlight)
            }
        }

        @Test(
            "GOAWAY after 1,000 requests, 5 % 503 and 1 % unanswered on one stream lose no delivery",
            .timeLimit(.minutes(4))
        )
        func faults() async throws {
            try await Stack.with { stack in
                let audience = try await Audience(4000, on: stack)
                let collected = Collected(stack.simulator)
                try await stack.simulator.setSettings(["goawayAfter": 1000])
                try await stack.simulator.setRules([
                    [
                        "provider": "apns", "percent": 5, "status": 503,
                        "reason": "ServiceUnavailable", "headers": ["retry-after": "1"],
                    ],
                    ["provider": "apns", "percent": 1, "then": "hang"],
                ])
                let dispatcher = try await stack.start("carillon-dispatcher")
                try await audience.send()
                // The second is sent over one stream while the first waits for its answers.
                _ = try await eventually("all were sent to", within: .seconds(60)) {
                    try await collected.update()
                    return await collected.names.count == audience.count ? true : nil
                }
                try await stack.simulator.setRules([])
                try await stack.simulator.setSettings(["maxConcurrentStreams": 1])
                let narrow = try await Audience(1000, on: stack)
                try await narrow.send()
                let push = try await audience.over()
                let narrowPush = try await narrow.over()
                try await collected.update()

                for (push, audience) in [(push, audience), (narrowPush, narrow)] {
                    let delivered = push["delivered"]?.integer ?? 0
                    let inDoubt = push["inDoubt"]?.integer ?? 0
                    #expect(delivered + inDoubt == audience.count, "\(push.text)")
                    #expect(push.booksBalance)
                    #expect(try await audience.outcomes().installations.count == audience.count)
                }
                // A device that was sent to several times has as many attempts in its row.
                let attempts = try await stack.database.query(
                    "select sum(attempts) from all_deliveries where state <> 0"
                )
                #expect(attempts == ["\(await collected.requests)"])
                #expect(
                    await dispatcher.process.stop() == .status(0),
                    "\(dispatcher.process.finalBytes)"
                )
            }
        }

        @Test(
            "A spread takes its time at any audience size, also after kill -9, and misses no device",
            .timeLimit(.minutes(3))
        )
        func spread() async throws {
            try await Stack.with { stack in
                let audience = try await Audience(12_000, on: stack)
                let first = try await stack.start("carillon-dispatcher")
                try await audience.send(["spread": 10])
                let begun = try await eventually("it has begun") {
                    try await stack.simulator.count("apns", status: 200) > 0
                        ? ContinuousClock.now : nil
                }
                _ = try await eventually("a good part is told", within: .seconds(60)) {
                    try await stack.simulator.count("apns", status: 200) >= 3000 ? true : nil
                }
                // 1200 a second, with a tenth of it at once.
                #expect(ContinuousClock.now - begun > .seconds(1.5))
                first.process.signal(SIGKILL)
                #expect(await first.process.exit() == .signal(SIGKILL))
                let told = try await stack.simulator.count("apns", status: 200)
                #expect(told < 9000, "the end came too late")
                let second = try await stack.start("carillon-dispatcher")
                let again = try await eventually("it goes on", within: .seconds(60)) {
                    try await stack.simulator.count("apns", status: 200) > told
                        ? ContinuousClock.now : nil
                }
                let push = try await audience.over()
                #expect(ContinuousClock.now - again > .seconds(Double(12_000 - told) / 1800))
                #expect(push["targeted"]?.integer == audience.count)
                #expect(push["delivered"]?.integer == audience.count)
                #expect(push.booksBalance)
                let outcomes = try await audience.outcomes("delivered")
                #expect(outcomes.installations.count == audience.count)
                #expect(await second.process.stop() == .status(0))
            }
        }

        @Test("A paced broadcast that is cancelled in the middle stops", .timeLimit(.minutes(3)))
        func cancelled() async throws {
            try await Stack.with { stack in
                let audience = try await Audience(20_000, on: stack)
                let dispatcher = try await stack.start("carillon-dispatcher")
                try await audience.send(["pace": 1000])
                let push = try await eventually("some of it is sent") {
                    try await stack.simulator.count("apns", status: 200) >= 500
                        ? try await audience.show() : nil
                }
                try await stack.cancel(push: push["pushId"]?.string ?? "")
                let after = try await audience.over("cancelled")
                // Without the cancellation far more would follow within these two seconds.
                try await Task.sleep(for: .seconds(1))
                let sent = try await stack.simulator.count("apns", status: 200)
                try await Task.sleep(for: .seconds(1))
                #expect(try await stack.simulator.count("apns", status: 200) == sent)
                #expect(sent < audience.count)
                let last = try await eventually("what was sent is on the books") {
                    let push = try await audience.show()
                    return push?["delivered"]?.integer == sent ? push : nil
                }
                #expect(last.booksBalance)
                #expect(last["suppressed"]?.integer == audience.count - sent)
                #expect(after["targeted"]?.integer == audience.count)
                let told = try await audience.outcomes("suppressed")
                #expect(told.installations.count == audience.count - sent)
                #expect(told.records == told.installations.count)
                #expect(
                    await dispatcher.process.stop() == .status(0),
                    "\(dispatcher.process.finalBytes)"
                )
            }
        }

        @Test(
            "kill -9 while a cancelled broadcast is reported leaves each outcome as in the ledger",
            .timeLimit(.minutes(3))
        )
        func killedWhileCancelled() async throws {
            let (inFlight, shards, every) = (512, 2, 250)
            try await Stack.with([
                "DISPATCH_IN_FLIGHT": "\(inFlight)", "DISPATCH_SHARDS": "\(shards)",
                "DISPATCH_CHECKPOINT_EVERY": "\(every)",
            ]) { stack in
                let audience = try await Audience(20_000, on: stack)
                let first = try await stack.start("carillon-dispatcher")
                try await audience.send(["pace": 500])
                let push = try await eventually("some of it is sent") {
                    try await stack.simulator.count("apns", status: 200) >= 200
                        ? try await audience.show() : nil
                }
                try await stack.cancel(push: push["pushId"]?.string ?? "")
                _ = try await eventually("some of it is suppressed") {
                    let rows = try await stack.database.query(
                        "select 1 from deliveries where app = '\(audience.app.id)' and state = 4 limit 1"
                    )
                    return rows.isEmpty ? nil : true
                }
                first.process.signal(SIGKILL)
                #expect(await first.process.exit() == .signal(SIGKILL))
                let left = try #require(try await audience.show()?["pending"]?.integer)
                #expect(left > 0, "the end came too late")
                let second = try await stack.start("carillon-dispatcher")
                let over = try await audience.over("cancelled")
                #expect(over.booksBalance)
                #expect(over["targeted"]?.integer == audience.count)
                let (all, told) = (
                    try await audience.outcomes(), try await audience.outcomes("suppressed")
                )
                #expect(all.installations.count == audience.count)
                #expect(told.installations.count == over["suppressed"]?.integer)
                let repeats = all.records - all.installations.count
                #expect(repeats <= inFlight + shards * every)
                #expect(await second.process.stop() == .status(0))
            }
        }
    }
}
