import JSON
import PushCore
import PushStorage
import Support
import Testing

@Suite(
    "Planning page by page",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct PlanningTests {
    /// Makes phones of one identity.
    private func crowd(
        _ count: Int,
        named name: String,
        from first: Int = 0,
        _ fixture: StorageFixture
    ) async throws {
        try await fixture.populate(first..<(first + count))
        _ = try await fixture.server.query(
            """
            update installations set identity = '\(name)'
            where object_id >= '\(fixture.objectID(first))'
                and object_id < '\(fixture.objectID(first + count))'
            """
        )
    }

    /// Plans every push in planning, and returns the number of pages.
    private func planAll(_ session: Int, _ fixture: StorageFixture) async throws -> Int {
        var pages = 0
        while let push = try await fixture.database.planning.claim(session: session) {
            _ = try await fixture.database.planning.planPage(
                session: session,
                pushID: push.id,
                shardSize: 300,
                keepsClaim: false
            )
            pages += 1
        }
        return pages
    }

    @Test(
        "An identity with many devices becomes shards in pages, and one with few is sent at once"
    )
    func crowd() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await crowd(3500, named: "crowd", fixture)
            try await crowd(3, named: "few", from: 5000, fixture)
            let session = try await fixture.database.sessions.open(name: "replica")
            let crowd = try fixture.push("crowd", ["identities": ["crowd"]])
            let few = try fixture.push("few", ["identities": ["few", "nobody"]])
            let planned = try await database.intake.plan(session: session, [crowd, few])
            #expect(planned.newPushIDs == [crowd.id, few.id])
            #expect(planned.planningPushIDs == [crowd.id])
            #expect(planned.deferredPushIDs.isEmpty)
            #expect(planned.deliveries.map(\.pushID) == [few.id, few.id, few.id])
            #expect(try await fixture.balancedLedger(of: few.id).pending == 3)
            // Its shards are a broadcast's: they leave capacity for named devices.
            #expect(try await fixture.database.pushes.find(crowd.id)?.lane == 1)
            #expect(try await planAll(session, fixture) == 2)
            #expect(try await fixture.balancedLedger(of: crowd.id).pending == 3500)
            #expect(try await fixture.rowCount(of: crowd.id) == 0)
            // A device that changes its identity meanwhile still gets it: the audience is fixed.
            _ = try await fixture.server.query(
                "update installations set identity = 'other' where identity = 'crowd'"
            )
            var targets: Set<String> = []
            for shard in try await fixture.claim(session) {
                let members = try await fixture.members(of: shard, by: 500)
                targets.formUnion(members.map(\.target))
                try await fixture.record(
                    members,
                    of: shard,
                    session: session,
                    isFinished: true
                )
            }
            #expect(targets.count == 3500)
            #expect(try await fixture.balancedLedger(of: crowd.id).delivered == 3500)
            #expect(try await fixture.database.pushes.find(crowd.id)?.status == .done)
        }
    }

    @Test("A push that names more than a thousand identities is planned page by page")
    func manyNames() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await crowd(2, named: "name-0", fixture)
            let session = try await database.sessions.open(name: "replica")
            for count in [1000, 1001] {
                let names = (0..<count).map { JSONValue.string("name-\($0)") }
                let push = try fixture.push("names-\(count)", ["identities": .array(names)])
                let planned = try await database.intake.plan(session: session, [push])
                #expect(planned.planningPushIDs == (count == 1000 ? [] : [push.id]))
                #expect(planned.deliveries.count == (count == 1000 ? 2 : 0))
                #expect(try await database.pushes.find(push.id)?.lane == (count == 1000 ? 0 : 1))
            }
            _ = try await planAll(session, fixture)
        }
    }

    @Test(
        "Pushes with many devices are planned in several transactions of bounded size"
    )
    func deferred() async throws {
        try await StorageFixture.run { fixture in
            try await crowd(900, named: "some", fixture)
            let session = try await fixture.database.sessions.open(name: "replica")
            var waiting = try (0..<5).map {
                try fixture.push("some-\($0)", ["identities": ["some"]])
            }
            var portions: [Int] = []
            while !waiting.isEmpty {
                let planned = try await fixture.database.intake.plan(session: session, waiting)
                portions.append(planned.members)
                #expect(planned.planningPushIDs.isEmpty)
                waiting = waiting.filter { planned.deferredPushIDs.contains($0.id) }
            }
            #expect(portions == [1800, 1800, 900])
        }
    }

    @Test("A push that takes too long at once is planned page by page, whatever it names")
    func inPages() async throws {
        try await StorageFixture.run { fixture in
            try await crowd(5, named: "few", fixture)
            let session = try await fixture.database.sessions.open(name: "replica")
            let requests: [JSONObject] = [
                ["identities": ["few"]],
                ["installations": [.string(fixture.objectID(1)), .string(fixture.objectID(2))]],
                ["tokens": [["platform": "fcm", "token": "one"]]],
                ["identities": []],
            ]
            let pushes = try requests.enumerated().map {
                try fixture.push("push-\($0.offset)", $0.element)
            }
            let planned = try await fixture.database.intake.plan(
                session: session,
                pushes,
                inPages: true
            )
            #expect(planned.planningPushIDs == Set(pushes.map(\.id)))
            #expect(planned.deliveries.isEmpty)
            _ = try await planAll(session, fixture)
            var pending: [Int] = []
            for push in pushes {
                pending.append(try await fixture.balancedLedger(of: push.id).pending)
            }
            #expect(pending == [5, 2, 1, 0])
        }
    }

    @Test(
        "A scheduled push to an identity with many devices is released at once, and planned later"
    )
    func scheduled() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await crowd(1200, named: "crowd", fixture)
            let session = try await fixture.database.sessions.open(name: "replica")
            let later = JSONValue.string(Instant.now().adding(milliseconds: 3_600_000).iso8601)
            let pushes = try ["2034-01-15T09:00:00", later].enumerated().map { number, time in
                try fixture.push(
                    "scheduled-\(number)",
                    ["identities": ["crowd"], "push_time": time]
                )
            }
            _ = try await database.intake.plan(session: session, pushes)
            _ = try await fixture.server.query("update pushes set release_at = now()")
            let batch = try await database.schedules.release(session: session)
            #expect(batch.pushes.count == 2)
            #expect(batch.deliveries.isEmpty)
            #expect(batch.isPlanning)
            _ = try await planAll(session, fixture)
            for push in pushes {
                #expect(try await fixture.balancedLedger(of: push.id).pending == 1200)
                #expect(try await fixture.rowCount(of: push.id) == 0)
            }
        }
    }

    @Test("An abandoned push does not keep others from their release")
    func resting() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await fixture.database.sessions.open(name: "replica")
            let later = JSONValue.string(Instant.now().adding(milliseconds: 3_600_000).iso8601)
            let pushes = try (0..<2).map {
                try fixture.push("scheduled-\($0)", ["identities": ["u"], "push_time": later])
            }
            _ = try await database.intake.plan(session: session, pushes)
            _ = try await fixture.server.query("update pushes set release_at = now()")
            let backingOff = [pushes[0].id]
            let batch = try await database.schedules.release(
                session: session,
                limit: 1,
                except: backingOff
            )
            #expect(batch.pushes.map(\.id) == [pushes[1].id])
            #expect(try await database.schedules.untilNextRelease(except: backingOff) == nil)
            #expect(try await database.schedules.untilNextRelease() == .zero)
        }
    }

    @Test("Apps take turns, a page each, however many pushes one of them has")
    func turns() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            for app in ["busy", "quiet"] { try await fixture.createApp(app) }
            let session = try await fixture.database.sessions.open(name: "planner")
            for number in 0..<3 {
                let push = try fixture.push("busy-\(number)", [:], app: "busy")
                _ = try await database.intake.plan(session: session, [push])
            }
            let small = try fixture.push("quiet", ["channels": ["one"]], app: "quiet")
            let asked = try fixture.push("asked", ["where": ["badge": 1]], app: "quiet")
            _ = try await database.intake.plan(session: session, [small, asked])
            let first = try #require(
                try await database.planning.claim(.plain, session: session)
            )
            #expect(first.app == "busy")
            let second = try await database.planning.claim(
                .plain,
                session: session,
                turns: ["busy": 1]
            )
            #expect(second?.id == small.id)
            // The answer to that was lost.
            try await database.planning.release(.plain, session: session)
            let again = try await database.planning.claim(
                .plain,
                session: session,
                turns: ["busy": 1, "quiet": 2],
                except: [first.id]
            )
            #expect(again?.app == "busy")
            #expect(again?.id != first.id)
            #expect(
                try await database.planning.claim(.conditional, session: session)?.id == asked.id
            )
            #expect(try await database.planning.claim(.conditional, session: session) == nil)
        }
    }
}
