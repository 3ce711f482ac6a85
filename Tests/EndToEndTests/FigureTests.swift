import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite("The figures of charts agree with the ledger", .serialized)
    struct FigureTests {
        /// Returns the sums of outcomes in the ledger.
        private func ledger(_ condition: String, _ stack: Stack) async throws -> [String] {
            try await stack.database.query(
                """
                select sum(delivered), sum(failed), sum(expired), sum(suppressed), sum(in_doubt)
                from all_pushes where \(condition)
                """
            )
        }

        private func figures(_ condition: String, _ stack: Stack) async throws -> [String] {
            try await stack.database.query(
                """
                select sum(delivered), sum(failed), sum(expired), sum(suppressed), sum(in_doubt)
                from push_figures where \(condition)
                """
            )
        }

        @Test(
            "Two dispatchers, one of which stops amid a broadcast and singles, count each outcome once",
            .timeLimit(.minutes(4))
        )
        func agree() async throws {
            try await Stack.with(["DISPATCH_IN_FLIGHT": "200"]) { stack in
                let app = try await stack.makeApp()
                let devices = 6000
                _ = try await stack.database.query(
                    """
                    insert into installations (app, object_id, device_type, provider, token,
                        token_hash, environment, apns_topic, token_updated_at, created_at)
                    select '\(app.id)', lpad(to_hex(n), 24, '0'), 'ios', 'apns', token,
                        sha256(convert_to(token, 'UTF8')), 'production', '\(app.bundleID)',
                        now() - interval '1 h', now() - interval '1 h'
                    from (select n, encode(sha256(convert_to('\(app.id)' || n, 'UTF8')), 'hex')
                        as token from generate_series(1, \(devices)) n) phones
                    """
                )
                try await stack.simulator.setRules([
                    [
                        "provider": "apns", "percent": 3, "status": 400,
                        "reason": "PayloadEmpty",
                    ],
                    [
                        "provider": "apns", "percent": 2, "status": 503,
                        "reason": "ServiceUnavailable", "headers": ["retry-after": "1"],
                    ],
                    ["provider": "apns", "delayMs": [5, 40]],
                ])
                try await stack.send([
                    "id": "all", "source": "e2e", "app": .string(app.id),
                    "data": ["alert": "To everybody"],
                ])
                let singles = (0..<500).map { number -> (key: String, value: String) in
                    let request: JSONValue = [
                        "id": "single-\(number)", "app": .string(app.id),
                        "tokens": [
                            [
                                "platform": "apns", "token": .string(makeAPNsToken()),
                                "environment": "production",
                            ]
                        ],
                        "topic": .string(app.bundleID), "data": ["alert": "One of many"],
                    ]
                    return ("single-\(number)", request.text)
                }
                try await stack.kafka.produce(singles, to: stack.topic("push.requests"))
                let first = try await stack.start("carillon-dispatcher")
                let second = try await stack.start("carillon-dispatcher")
                _ = try await eventually("2,000 requests", within: .seconds(60)) {
                    try await stack.simulator.count("apns", status: 200) >= 2000 ? true : nil
                }
                #expect(await first.process.stop() == .status(0), "\(first.process.finalBytes)")
                _ = try await eventually("all have ended", within: .seconds(90)) {
                    let sums = try await stack.database.query(
                        "select count(*), sum(pending) from all_pushes where status = 'done'"
                    )
                    return sums == ["501|0"] ? true : nil
                }
                // What the second has counted by now is written at its stop.
                #expect(await second.process.stop() == .status(0), "\(second.process.finalBytes)")

                let all = "push_id = '00000000-0000-0000-0000-000000000000'"
                let ledger = try await ledger("true", stack)
                #expect(try await figures("\(all) and minutes = 1", stack) == ledger)
                #expect(try await figures("\(all) and minutes = 60", stack) == ledger)
                let own = try await self.ledger("event_id = 'all'", stack)
                #expect(try await figures("not \(all)", stack) == own, "the broadcast's own")
                let replicas = try await stack.database.query(
                    "select count(distinct replica) from push_figures where \(all)"
                )
                #expect(replicas == ["2"])
                // Each single has a latency, the broadcast's members have none.
                let latencies = try await stack.database.query(
                    """
                    select sum(n) from push_figures, unnest(latency) as n
                    where \(all) and minutes = 1
                    """
                )
                #expect(latencies == ["500"])
            }
        }
    }
}
