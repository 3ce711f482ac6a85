import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage
import Support
import Testing

@Suite(
    "Values of a delivery's own",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ContentTests {
    private func install(
        _ fixture: StorageFixture,
        _ token: String,
        _ fields: JSONObject
    ) async throws -> Installation {
        var object = fixture.iPhone(token)
        for (key, value) in fields { object[key] = value }
        return try await fixture.install(object)
    }

    private let data: JSONObject = ["alert": "{{name}} {{profile.city}} {{deviceType}} {{list}}"]

    @Test("Named devices have their own values for the push's placeholders")
    func direct() async throws {
        try await StorageFixture.run { fixture in
            let ann = try await install(
                fixture,
                "aa01",
                [
                    "name": "Ann", "profile": ["city": "Ulm", "secret": "x"], "list": [1],
                    "identity": "ann", "installationId": "device-1",
                ]
            )
            let bob = try await install(fixture, "aa02", ["profile": "none"])
            let session = try await fixture.database.sessions.open(name: "replica")
            let expected: JSONObject = ["name": "Ann", "profile.city": "Ulm", "deviceType": "ios"]
            let audiences: [JSONObject] = [
                ["installations": [.string(ann.objectID), .string(bob.objectID)]],
                ["installations": ["device-1", .string(bob.objectID)]],
                ["identities": ["ann"]],
            ]
            for (index, audience) in audiences.enumerated() {
                var object = audience
                object["data"] = .object(data)
                let push = try fixture.push("own-\(index)", object)
                let plain = try fixture.push("plain-\(index)", audience)
                let planned = try await fixture.database.intake.plan(
                    session: session,
                    [push, plain]
                )
                for delivery in planned.deliveries {
                    let isAnn = delivery.target == ann.objectID
                    #expect(
                        delivery.values
                            == (delivery.pushID == plain.id
                                ? nil : isAnn ? expected : ["deviceType": "ios"])
                    )
                }
                #expect(planned.deliveries.contains { $0.values == expected })
            }
        }
    }

    @Test("The values are fixed at planning, and truncated beyond what every platform accepts")
    func fixed() async throws {
        try await StorageFixture.run { fixture in
            let long = String(repeating: "x", count: 9000)
            let phone = try await install(fixture, "aa01", ["name": "Ann", "long": .string(long)])
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push(
                "fixed",
                [
                    "installations": [.string(phone.objectID)],
                    "data": ["alert": "{{name}} {{long}}"],
                ]
            )
            _ = try await database.intake.plan(session: session, [push])
            _ = try await fixture.server.query(
                """
                update installations set fields = '{"name": "Eve"}';
                update deliveries set owner = null, due_at = now()
                """
            )
            let again = try await database.due.claim(session: session, lane: 0, limit: 10)
            #expect(
                again.map(\.values) == [
                    ["name": "Ann", "long": .string(String(long.prefix(8192)))]
                ]
            )
        }
    }

    @Test("A broadcast's members have their values too, and keep them while they wait")
    func broadcast() async throws {
        try await StorageFixture.run { fixture in
            let ann = try await install(fixture, "aa01", ["name": "Ann", "channels": ["news"]])
            _ = try await install(fixture, "aa02", ["name": 7, "channels": ["news"]])
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push(
                "members",
                ["channels": ["news"], "data": ["alert": "{{name}}"]]
            )
            _ = try await database.intake.plan(session: session, [push])
            _ = try await database.planning.claim(session: session)
            _ = try await database.planning.planPage(
                session: session,
                pushID: push.id,
                shardSize: 100
            )
            let shards = try await database.shards.claim(session: session, limit: 1, holding: [:])
            let shard = try #require(shards.first)
            let page = try await database.shards.page(shard, after: nil, limit: 100)
            for member in page.members {
                let name: JSONValue = member.target == ann.objectID ? "Ann" : "7"
                #expect(member.values == ["name": name])
            }
            let records = page.members.map { member in
                member.target == ann.objectID ? retried(member) : inFlight(member)
            }
            _ = try await database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(
                    cursor: page.members.last?.target,
                    records: records,
                    isFinished: true
                )
            )
            let due = try await database.due.claim(session: session, lane: 1, limit: 10)
            #expect(due.map(\.values) == [["name": "Ann"]])
            let owned = try await database.due.owned(session: session)
            #expect(Set(owned.map { $0.values?["name"]?.string }) == ["Ann", "7"])
        }
    }

    @Test("A page of rows has the values as a shard does")
    func pages() async throws {
        try await StorageFixture.run { fixture in
            _ = try await install(fixture, "aa01", ["name": "Ann", "channels": ["news"]])
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push(
                "rows",
                ["channels": ["news"], "data": ["alert": "{{name}}"]]
            )
            _ = try await database.intake.plan(session: session, [push])
            _ = try await database.planning.claim(session: session)
            _ = try await database.planning.planPage(session: session, pushID: push.id)
            let due = try await database.due.claim(session: session, lane: 1, limit: 10)
            #expect(due.map(\.values) == [["name": "Ann"]])
        }
    }
}

@Suite(
    "Badges are incremented once",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct BadgeTests {
    private func badge(_ fixture: StorageFixture, _ installation: Installation) async throws -> Int?
    {
        try await fixture.database.installations.find(
            app: StorageFixture.app,
            objectID: installation.objectID
        )?.badge
    }

    private let raise: JSONValue = ["alert": "x", "badge": "Increment"]

    @Test("A badge changes once for each push and named device, in the planning transaction")
    func direct() async throws {
        try await StorageFixture.run { fixture in
            var object = fixture.iPhone("aa01")
            object["badge"] = 4
            let phone = try await fixture.install(object)
            let muted = try await fixture.install(["deviceType": "ios", "installationId": "muted"])
            let database = fixture.database
            let session = try await fixture.database.sessions.open(name: "replica")
            let names: JSONValue = [.string(phone.objectID), .string(muted.objectID)]
            let pushes = try (0..<3).map { number in
                try fixture.push("raise-\(number)", ["installations": names, "data": raise])
            }
            let lower = try fixture.push(
                "lower",
                [
                    "installations": [.string(phone.objectID)],
                    "data": ["badge": ["__op": "Decrement", "amount": 2]],
                ]
            )
            let planned = try await database.intake.plan(session: session, Array(pushes[..<2]))
            let badges = planned.deliveries.filter { $0.target == phone.objectID }.map(\.badge)
            #expect(badges.compactMap(\.self).sorted() == [5, 6])
            #expect(try await badge(fixture, phone) == 6)
            #expect(
                planned.deliveries.allSatisfy { $0.target == phone.objectID || $0.badge == nil }
            )

            // The same events come again, with a new one.
            let again = try await database.intake.plan(session: session, pushes)
            #expect(again.deliveries.compactMap(\.badge) == [7])
            #expect(try await badge(fixture, phone) == 7)
            let lowered = try await database.intake.plan(session: session, [lower])
            #expect(lowered.deliveries.map(\.badge) == [5])
            // The next owner of a row sends its badge.
            let owned = try await database.due.owned(session: session)
            #expect(owned.compactMap(\.badge).sorted() == [5, 5, 6, 7])
        }
    }

    @Test("Concurrent pushes each increment the badge")
    func concurrent() async throws {
        try await StorageFixture.run { fixture in
            let phones = try await [
                fixture.install(fixture.iPhone("aa01")), fixture.install(fixture.iPhone("aa02")),
            ]
            let names = JSONValue.array(phones.map { .string($0.objectID) })
            let pushes = try (0..<20).map { number in
                try fixture.push("raise-\(number)", ["installations": names, "data": raise])
            }
            let database = fixture.database
            try await withThrowingTaskGroup(of: Void.self) { group in
                for push in pushes {
                    group.addTask {
                        let session = try await database.sessions.open(name: "replica")
                        _ = try await database.intake.plan(session: session, [push])
                    }
                }
                try await group.waitForAll()
            }
            for phone in phones { #expect(try await badge(fixture, phone) == 20) }
        }
    }

    @Test("A page of rows increments its own badges")
    func pages() async throws {
        try await StorageFixture.run { fixture in
            var phones: [Installation] = []
            for number in 0..<5 {
                var object = fixture.iPhone("aa0\(number)")
                object["channels"] = ["news"]
                object["badge"] = .integer(Int64(number))
                phones.append(try await fixture.install(object))
            }
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("pages", ["channels": ["news"], "data": raise])
            _ = try await database.intake.plan(session: session, [push])
            _ = try await database.planning.claim(session: session)
            var isFinished = false
            while !isFinished {
                isFinished = try await database.planning.planPage(
                    session: session,
                    pushID: push.id,
                    limit: 2
                ).isFinished
            }
            let due = try await database.due.claim(session: session, lane: 1, limit: 10)
            #expect(due.compactMap(\.badge).sorted() == [1, 2, 3, 4, 5])
            for (number, phone) in phones.enumerated() {
                #expect(try await badge(fixture, phone) == number + 1)
            }
        }
    }

    @Test("A shard increments its members' badges before it sends, and not again after a takeover")
    func shards() async throws {
        try await StorageFixture.run { fixture in
            var phones: [Installation] = []
            for number in 0..<4 {
                var object = fixture.iPhone("aa0\(number)")
                object["channels"] = ["news"]
                phones.append(try await fixture.install(object))
            }
            let database = fixture.database
            let first = try await database.sessions.open(name: "first")
            let push = try fixture.push("shards", ["channels": ["news"], "data": raise])
            _ = try await database.intake.plan(session: first, [push])
            _ = try await database.planning.claim(session: first)
            _ = try await database.planning.planPage(
                session: first,
                pushID: push.id,
                shardSize: 100
            )
            let shards = try await database.shards.claim(session: first, limit: 1, holding: [:])
            let shard = try #require(shards.first)
            #expect(shard.raisesBadges)
            let page = try await database.shards.page(shard, after: nil, limit: 2)
            let prepared = try await database.shards.prepare(session: first, shard, page)
            #expect(prepared.members.map(\.badge) == [1, 1])

            // It dies without a record; the next one begins at the shard's own cursor.
            try await database.shards.release(session: first, [shard], dueAt: nil)
            let second = try await database.sessions.open(name: "second")
            let resumed = try #require(
                try await database.shards.claim(session: second, limit: 1, holding: [:]).first
            )
            let whole = try await database.shards.page(resumed, after: nil, limit: 10)
            let sent = try await database.shards.prepare(session: second, resumed, whole)
            #expect(sent.members.map(\.badge) == [1, 1, 1, 1])
            for phone in phones { #expect(try await badge(fixture, phone) == 1) }

            // The stalled session no longer owns the shard.
            let error = await #expect(throws: StorageError.self) {
                _ = try await database.shards.prepare(session: first, shard, page)
            }
            #expect(error?.kind == .sessionLost)

            // A retried delivery has its badge in its row.
            let records = sent.members.map { member in
                retried(member)
            }
            _ = try await database.ledger.checkpoint(
                session: second,
                resumed,
                ShardCheckpoint(
                    cursor: sent.members.last?.target,
                    records: records,
                    isFinished: true
                )
            )
            let due = try await database.due.claim(session: second, lane: 1, limit: 10)
            #expect(due.map(\.badge) == [1, 1, 1, 1])
        }
    }
}
