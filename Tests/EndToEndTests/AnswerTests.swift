import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    @Suite(
        "Effects of provider answers",
        .runningStack,
        .serialized,
        .timeLimit(.minutes(2))
    )
    struct AnswerTests {
        @Test("A token that was answered 410 is not sent to again")
        func unregistered() async throws {
            let bench = try await Bench()
            let gone = makeAPNsToken()
            let there = makeAPNsToken()
            let goneID = try await bench.registerPhone(token: gone, channels: ["all"])
            let thereID = try await bench.registerPhone(token: there, channels: ["all"])
            let now = Int64(Date().timeIntervalSince1970 * 1000)
            try await bench.simulator.setRules([
                [
                    "provider": "apns", "token": .string(gone), "status": 410,
                    "reason": "Unregistered", "timestamp": .integer(now + 1000),
                ]
            ])

            let (first, firstEvent) = bench.event(["all"])
            try await bench.stack.send(firstEvent)
            let firstPush = try await bench.stack.finishedPush(event: first)
            #expect(firstPush["targeted"]?.integer == 2)
            #expect(firstPush["delivered"]?.integer == 1)
            #expect(firstPush["failed"]?.integer == 1)
            let outcome = try #require(
                try await bench.stack.outcomes(2, event: first)
                    .first { $0["installationId"]?.string == goneID }
            )
            #expect(outcome["outcome"]?.string == "failed")
            #expect(outcome["reason"]?.string == "Unregistered")
            #expect(outcome["status"]?.integer == 410)
            #expect(try await bench.installation(goneID)["valid"]?.bool == false)
            #expect(try await bench.installation(thereID)["valid"]?.bool != false)

            let (second, secondEvent) = bench.event(["all"])
            try await bench.stack.send(secondEvent)
            let secondPush = try await bench.stack.finishedPush(event: second)
            #expect(secondPush["delivered"]?.integer == 1)
            #expect(secondPush.booksBalance)
            #expect(try await bench.simulator.received(for: gone).count == 1)
            #expect(try await bench.simulator.received(for: there).count == 2)
        }

        @Test(
            "A payload error or a credential's 403 disables no device",
            arguments: [
                (400, "BadTopic"), (413, "PayloadTooLarge"), (403, "InvalidProviderToken"),
                (403, "TopicDisallowed"),
            ]
        )
        func disablesNobody(status: Int, reason: String) async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            let id = try await bench.registerPhone(token: token, channels: ["all"])
            try await bench.simulator.setRules([
                [
                    "provider": "apns", "token": .string(token), "status": .integer(Int64(status)),
                    "reason": .string(reason),
                ]
            ])
            let (refused, refusedEvent) = bench.event(["all"])
            try await bench.stack.send(refusedEvent)
            let push = try await bench.stack.finishedPush(event: refused)
            #expect(push["failed"]?.integer == 1)
            #expect(push.booksBalance)
            #expect(try await bench.installation(id)["valid"]?.bool != false)

            try await bench.simulator.setRules([])
            let (next, nextEvent) = bench.event(["all"])
            try await bench.stack.send(nextEvent)
            #expect(try await bench.stack.finishedPush(event: next)["delivered"]?.integer == 1)
        }

        @Test("A transient failure is retried after the time that the provider asks for")
        func transient() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["all"])
            try await bench.simulator.setRules([
                [
                    "provider": "apns", "token": .string(token), "status": 503,
                    "reason": "ServiceUnavailable", "headers": ["retry-after": "1"], "times": 1,
                ]
            ])
            let (id, event) = bench.event(["all"])
            let start = ContinuousClock.now
            try await bench.stack.send(event)
            let push = try await bench.stack.finishedPush(event: id)
            #expect(push["delivered"]?.integer == 1)
            #expect(ContinuousClock.now - start >= .seconds(1))
            let received = try await bench.simulator.received(for: token)
            #expect(received.map(\.status) == [503, 200])
            // The repeat overwrites the first: both have the same name.
            #expect(Set(received.compactMap { $0.header("apns-id") }).count == 1)
        }

        @Test("One JWT serves both environments and all apps of a (team, key)")
        func sharedToken() async throws {
            let benches = [try await Bench(), try await Bench()]
            var received: [SimulatorControl.Received] = []
            for round in 0..<2 {
                for (bench, environment) in zip(
                    benches + benches,
                    ["production", "production", "sandbox", "sandbox"]
                ) {
                    let token = makeAPNsToken()
                    let channel = "round-\(round)-\(environment)"
                    _ = try await bench.registerPhone(
                        token: token,
                        channels: [channel],
                        environment: environment
                    )
                    let (id, event) = bench.event([channel])
                    try await bench.stack.send(event)
                    _ = try await bench.stack.finishedPush(event: id)
                    received += try await bench.simulator.received(for: token)
                }
            }
            #expect(received.map(\.status) == Array(repeating: 200, count: 8))
            #expect(Set(received.map(\.environment)) == ["production", "sandbox"])
            #expect(Set(received.compactMap(\.connection)).count >= 2)
            #expect(Set(received.compactMap { $0.header("authorization") }).count == 1)
        }

        @Test("An ExpiredProviderToken leads to a new JWT, with which the notification is sent")
        func expiredToken() async throws {
            let bench = try await Bench()
            let token = makeAPNsToken()
            _ = try await bench.registerPhone(token: token, channels: ["all"])
            try await bench.simulator.setRules([
                [
                    "provider": "apns", "token": .string(token), "status": 403,
                    "reason": "ExpiredProviderToken", "times": 1,
                ]
            ])
            for _ in 0..<2 {
                let (id, event) = bench.event(["all"])
                try await bench.stack.send(event)
                #expect(try await bench.stack.finishedPush(event: id)["delivered"]?.integer == 1)
            }
            let received = try await bench.simulator.received(for: token)
            #expect(received.map(\.status) == [403, 200, 200])
            let tokens = received.compactMap { $0.header("authorization") }
            try #require(tokens.count == 3)
            #expect(tokens[0] != tokens[1])
            // There is only one new token: the next notification does not sign again.
            #expect(tokens[1] == tokens[2])
        }
    }
}
