import Foundation
import JSON
import Support
import Testing

extension EndToEndTests {
    /// One app's floods, and another app's phone beside them.
    @Suite("A neighbour's flood delays no other app", .serialized, .timeLimit(.minutes(3)))
    struct NeighbourTests {
        private func populate(
            _ app: Stack.App,
            _ count: Int,
            identity: String,
            on stack: Stack
        ) async throws {
            _ = try await stack.database.query(
                """
                insert into installations (app, object_id, device_type, provider, token,
                    token_hash, environment, apns_topic, identity, channels, token_updated_at,
                    created_at)
                select '\(app.id)', lpad(to_hex(n), 24, '0'), 'ios', 'apns', token,
                    sha256(convert_to(token, 'UTF8')), 'production', '\(app.bundleID)',
                    '\(identity)', array['all'], now() - interval '1 h', now() - interval '1 h'
                from (select n, encode(sha256(convert_to('\(app.id)' || n, 'UTF8')), 'hex')
                    as token from generate_series(1, \(count)) n) phones
                """
            )
        }

        private static func objectID(_ number: Int) -> String {
            let hex = String(number, radix: 16)
            return String(repeating: "0", count: 24 - hex.count) + hex
        }

        private func token(_ app: Stack.App, _ number: Int, on stack: Stack) async throws -> String
        {
            let rows = try await stack.database.query(
                """
                select token from installations
                where app = '\(app.id)' and object_id = lpad(to_hex(\(number)), 24, '0')
                """
            )
            return try #require(rows.first)
        }

        private func count(_ question: String, on stack: Stack) async throws -> Int {
            try #require(try await stack.database.query(question).first.flatMap { Int($0) })
        }

        private func event(_ app: Stack.App, _ more: JSONObject) -> JSONValue {
            var request: JSONObject = [
                "id": .string(TestEnvironment.unique("event-")), "source": "e2e",
                "app": .string(app.id), "data": ["alert": "Ding dong"],
            ]
            for (key, value) in more { request[key] = value }
            return .object(request)
        }

        @Test(
            "A broadcast whose members cannot be read gives its slot to another app's"
        )
        func unreadable() async throws {
            try await Stack.with(["DISPATCH_SHARDS": "1"]) { stack in
                let (broken, quiet) = (try await stack.makeApp(), try await stack.makeApp())
                try await populate(broken, 20, identity: "all", on: stack)
                try await populate(quiet, 1, identity: "one", on: stack)
                _ = try await stack.database.query(
                    "update installations set provider = 'nobody' where app = '\(broken.id)'"
                )
                let phone = try await token(quiet, 1, on: stack)
                let dispatcher = try await stack.start("carillon-dispatcher")
                try await stack.send(event(broken, [:]))
                _ = try await eventually("its shard has the only place") {
                    let owned = try await count(
                        "select count(*) from shards where app = '\(broken.id)' and owner is not null",
                        on: stack
                    )
                    return owned == 1 ? true : nil
                }
                try await stack.send(event(quiet, [:]))
                _ = try await stack.simulator.waitFor(1, for: phone)
                let left = try await count(
                    "select pending from all_pushes where app = '\(broken.id)'",
                    on: stack
                )
                #expect(left == 20)
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("40 broadcasts of one app are planned in turns with another app's small push")
        func broadcasts() async throws {
            try await Stack.with { stack in
                let (busy, quiet) = (try await stack.makeApp(), try await stack.makeApp())
                try await populate(busy, 110_000, identity: "all", on: stack)
                try await populate(quiet, 1, identity: "one", on: stack)
                let phone = try await token(quiet, 1, on: stack)
                let dispatcher = try await stack.start("carillon-dispatcher")
                // One device a second: the test is about the planning.
                for _ in 0..<40 { try await stack.send(event(busy, ["pace": 1])) }
                _ = try await eventually("all are known", within: .seconds(60)) {
                    let known = try await count(
                        "select count(*) from all_pushes where app = '\(busy.id)'",
                        on: stack
                    )
                    return known == 40 ? true : nil
                }
                try await stack.send(event(quiet, ["channels": ["all"]]))
                _ = try await stack.simulator.waitFor(1, for: phone)
                let unplanned = try await count(
                    "select count(*) from pushes where app = '\(busy.id)' and is_planning",
                    on: stack
                )
                #expect(unplanned > 0, "the flood was planned first")
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test(
            "A flood of pushes to 250 devices each, at a provider that hangs, waits as shards"
        )
        func named() async throws {
            let extra = ["DISPATCH_IN_FLIGHT": "512", "SHUTDOWN_GRACE": "2s"]
            try await Stack.with(extra) { stack in
                let (busy, quiet) = (try await stack.makeApp(), try await stack.makeApp())
                try await populate(busy, 250, identity: "all", on: stack)
                try await populate(quiet, 1, identity: "one", on: stack)
                let phone = try await token(quiet, 1, on: stack)
                let rest: JSONValue = ["provider": "apns", "then": "hang"]
                try await stack.simulator.setRules([
                    ["provider": "apns", "token": .string(phone), "status": 200], rest,
                ])
                let everybody = (1...250).map { JSONValue.string(Self.objectID($0)) }
                let dispatcher = try await stack.start("carillon-dispatcher")
                // In one write: those that come late could find the first ones' devices silent.
                try await stack.kafka.produce(
                    (0..<20).map { number in
                        ("\(number)", event(busy, ["installations": .array(everybody)]).text)
                    },
                    to: stack.topic("push.requests")
                )
                let one: JSONObject = ["installations": [everybody[0]]]
                try await stack.send(event(quiet, one))
                _ = try await stack.simulator.waitFor(1, for: phone)
                // The first is sent at once, and is not answered.
                _ = try await eventually("the others are planned") {
                    let waiting = try await count(
                        "select count(*) from shards where app = '\(busy.id)' and not finished",
                        on: stack
                    )
                    return waiting == 19 ? true : nil
                }
                try await stack.send(event(quiet, one))
                _ = try await stack.simulator.waitFor(2, for: phone)
                let rows = try await count(
                    "select count(*) from deliveries where app = '\(busy.id)'",
                    on: stack
                )
                #expect(rows <= 250, "those of the first alone")
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test(
            "Singles behind a push to 300 devices, at a provider that hangs, delay no other app's"
        )
        func behindShard() async throws {
            // One provider of one app may hold 32 slots, and the singles of 8 devices wait for them.
            let extra = ["DISPATCH_IN_FLIGHT": "64", "SHUTDOWN_GRACE": "2s"]
            try await Stack.with(extra) { stack in
                let (busy, quiet) = (try await stack.makeApp(), try await stack.makeApp())
                try await populate(busy, 300, identity: "all", on: stack)
                try await populate(quiet, 1, identity: "one", on: stack)
                let phone = try await token(quiet, 1, on: stack)
                try await stack.simulator.setRules([
                    ["provider": "apns", "token": .string(phone), "status": 200],
                    ["provider": "apns", "then": "hang"],
                ])
                let dispatcher = try await stack.start("carillon-dispatcher")
                let one: JSONObject = ["installations": [.string(Self.objectID(1))]]
                // A provider that has not answered yet gets one request at a time.
                try await stack.send(event(quiet, one))
                _ = try await stack.simulator.waitFor(1, for: phone)
                try await stack.send(event(busy, ["identities": ["all"]]))
                _ = try await eventually("its shard is sent") {
                    let owned = try await count(
                        """
                        select count(*) from shards
                        where app = '\(busy.id)' and lane = 0 and owner is not null
                        """,
                        on: stack
                    )
                    return owned == 1 ? true : nil
                }
                for _ in 0..<40 { try await stack.send(event(busy, one)) }
                for number in 2...4 {
                    try await stack.send(event(quiet, one))
                    // A request that hangs is given up after 20 s, which would free its slot.
                    _ = try await eventually("the phone has the push", within: .seconds(10)) {
                        let all = try await stack.simulator.received(for: phone)
                        return all.count >= number ? all : nil
                    }
                }
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test(
            "A badge is not delayed by a hundred pushes to 250 devices each that cannot be shards"
        )
        func conditions() async throws {
            try await Stack.with(["DISPATCH_IN_FLIGHT": "512"]) { stack in
                let (busy, quiet) = (try await stack.makeApp(), try await stack.makeApp())
                try await populate(busy, 250, identity: "all", on: stack)
                try await populate(quiet, 1, identity: "one", on: stack)
                let phone = try await token(quiet, 1, on: stack)
                let everybody = (1...250).map { JSONValue.string(Self.objectID($0)) }
                let busyOnes: JSONObject = ["where": ["objectId": ["$in": .array(everybody)]]]
                for _ in 0..<100 { try await stack.send(event(busy, busyOnes)) }
                let badge: JSONObject = [
                    "installations": [everybody[0]], "data": ["alert": "x", "badge": "Increment"],
                ]
                try await stack.send(event(quiet, badge))
                // It reads all of them at once.
                let dispatcher = try await stack.start("carillon-dispatcher")
                _ = try await stack.simulator.waitFor(1, for: phone)
                let stored = try await count(
                    "select count(*) from all_pushes where app = '\(busy.id)'",
                    on: stack
                )
                #expect(stored < 50, "the flood was sent first")
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        @Test("An identity with 3,000 devices is sent to in shards, each of them once")
        func identity() async throws {
            try await Stack.with { stack in
                let app = try await stack.makeApp()
                try await populate(app, 3000, identity: "crowd", on: stack)
                let dispatcher = try await stack.start("carillon-dispatcher")
                let request = event(app, ["identities": ["crowd"]])
                let id = try #require(request["id"]?.string)
                try await stack.send(request)
                let push = try await stack.finishedPush(event: id)
                #expect(push["delivered"]?.integer == 3000)
                #expect(push.booksBalance)
                let shards = try await count(
                    "select count(*) from shards where app = '\(app.id)'",
                    on: stack
                )
                #expect(shards == 1, "it was planned all at once")
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }

        /// Writes this many more due deliveries of a finished push.
        private func owe(
            _ count: Int,
            of event: JSONValue,
            token: String,
            dueFor seconds: Int,
            on stack: Stack
        ) async throws {
            let id = try #require(event["id"]?.string)
            let platform = event["tokens"]?[0]?["platform"]?.string ?? ""
            _ = try await stack.database.query(
                """
                with push as (
                    update pushes set status = 'sending', finished_at = null,
                        targeted = targeted + \(count), pending = pending + \(count)
                    where event_id = '\(id)' returning id, app, created_at)
                insert into deliveries (day, push_id, target, app, provider, environment, token,
                    lane, attempts, due_at)
                select (created_at at time zone 'UTC')::date, id, 'more-' || n, app, '\(platform)',
                    case '\(platform)' when 'apns' then 'production' else '' end, \(token), 0, 1,
                    now() - interval '\(seconds) s'
                from push, generate_series(1, \(count)) n
                """
            )
        }

        @Test("Retries of a healthy provider do not wait for 40,000 of a failing one")
        func retries() async throws {
            try await Stack.with { stack in
                let (sick, well) = (try await stack.makeApp(), try await stack.makeApp())
                let phone = String(repeating: "ab", count: 32)
                // With a label both are rows from the start.
                let ill = event(
                    sick,
                    [
                        "tokens": [["platform": "fcm", "token": "first"]], "notification_id": "ill",
                    ]
                )
                let healthy = event(
                    well,
                    [
                        "notification_id": "well",
                        "tokens": [
                            [
                                "platform": "apns", "token": .string(phone),
                                "environment": "production",
                            ]
                        ],
                    ]
                )
                var dispatcher = try await stack.start("carillon-dispatcher")
                for request in [ill, healthy] {
                    try await stack.send(request)
                    _ = try await stack.finishedPush(event: try #require(request["id"]?.string))
                }
                #expect(await dispatcher.process.stop() == .status(0))
                let rest = 40_000
                try await owe(rest, of: ill, token: "'token-' || n", dueFor: 60, on: stack)
                try await owe(
                    20,
                    of: healthy,
                    token: "encode(sha256(('phone' || n)::bytea), 'hex')",
                    dueFor: 1,
                    on: stack
                )
                try await stack.simulator.setRules([["provider": "fcm", "status": 503]])
                dispatcher = try await stack.start("carillon-dispatcher")
                let id = try #require(healthy["id"]?.string)
                let push = try await stack.finishedPush(event: id)
                #expect(push["delivered"]?.integer == 21)
                // No task has read these yet.
                let untouched = try await count(
                    """
                    select count(*) from deliveries where app = '\(sick.id)' and state = 0
                        and updated_at = created_at
                    """,
                    on: stack
                )
                #expect(untouched > rest / 4, "the healthy waited behind those of the sick")
                #expect(await dispatcher.process.stop() == .status(0))
            }
        }
    }
}
