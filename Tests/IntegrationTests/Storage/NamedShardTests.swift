import JSON
import PushCore
import PushStorage
import Support
import Testing

@Suite(
    "Pushes that name many devices one by one",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct NamedShardTests {
    private static let few = NewPush.fewDevices

    private func names(_ range: Range<Int>, _ fixture: StorageFixture) -> JSONObject {
        ["installations": .array(range.map { .string(fixture.objectID($0)) })]
    }

    @Test(
        "A push that names one device more than rows allow is a single shard of the direct lane"
    )
    func shard() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<400)
            let session = try await database.sessions.open(name: "replica")
            let few = try fixture.push("few", names(0..<Self.few, fixture))
            let many = try fixture.push("many", names(1..<Self.few + 2, fixture))
            let planned = try await database.intake.plan(session: session, [few, many])
            #expect(planned.planningPushIDs.isEmpty)
            #expect(planned.deliveries.count == Self.few && planned.members == Self.few + 1)
            #expect(try await fixture.rowCount(of: many.id) == 0)
            let ledger = try await fixture.balancedLedger(of: many.id)
            #expect(ledger.pending == Self.few + 1)
            #expect(try await database.pushes.find(many.id)?.status == .sending)
            #expect(try await fixture.claim(session).isEmpty, "no broadcast")
            let shard = try #require(try await fixture.claim(session, in: .direct).first)
            #expect(shard.lane == Lane.direct.rawValue && shard.expected == Self.few + 1)
            let members = try await fixture.members(of: shard, by: 100)
            #expect(members.map(\.target) == (1..<Self.few + 2).map { fixture.objectID($0) })
            #expect(members.allSatisfy { $0.lane == Lane.direct.rawValue })
            try await fixture.record(members, of: shard, session: session, isFinished: true)
            #expect(try await fixture.balancedLedger(of: many.id).delivered == Self.few + 1)
            #expect(try await database.pushes.find(many.id)?.status == .done)
        }
    }

    @Test("A push that prefers it, as its app has many in flight, is a shard from 33 devices on")
    func preferred() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<40)
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("busy", names(0..<33, fixture))
            let planned = try await database.intake.plan(
                session: session,
                [
                    NewPush(
                        id: push.id,
                        app: push.app,
                        eventSource: push.eventSource,
                        eventID: push.eventID,
                        object: push.object,
                        request: push.request,
                        expiresAt: push.expiresAt,
                        prefersShard: true
                    )
                ]
            )
            #expect(planned.deliveries.isEmpty && planned.members == 33)
            let shard = try #require(try await fixture.claim(session, in: .direct).first)
            let members = try await fixture.members(of: shard, by: 100)
            #expect(members.map(\.target) == (0..<33).map { fixture.objectID($0) })
        }
    }

    @Test(
        "A shard reports each unreachable device with its reason in turn, and no unknown device"
    )
    func unreachable() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<300)
            _ = try await fixture.server.query(
                """
                update installations set valid = false where object_id = '\(fixture.objectID(7))';
                update installations set token = null, token_hash = null
                where object_id = '\(fixture.objectID(8))';
                update installations set installation_id = 'known-by-this'
                where object_id = '\(fixture.objectID(9))'
                """
            )
            let session = try await database.sessions.open(name: "replica")
            let named = (0..<300).map { fixture.objectID($0) } + ["stranger", "known-by-this"]
            let push = try fixture.push(
                "push",
                ["installations": .array(named.map(JSONValue.string))]
            )
            let planned = try await database.intake.plan(session: session, [push])
            #expect(planned.members == 300 && planned.deliveries.isEmpty)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 300)
            // Two existed at planning: the token of one dies, and one is deleted.
            _ = try await fixture.server.query(
                """
                update installations set valid = false, invalid_reason = 'UNREGISTERED'
                where object_id = '\(fixture.objectID(10))';
                delete from installations where object_id = '\(fixture.objectID(11))'
                """
            )
            let shard = try #require(try await fixture.claim(session, in: .direct).first)
            let members = try await fixture.members(of: shard, by: 100)
            #expect(members.count == 299)
            let told = members.filter { $0.suppression != nil }
            #expect(told.map(\.target) == [7, 8, 10].map { fixture.objectID($0) })
            #expect(told.allSatisfy { $0.device.token.isEmpty })
            #expect(told.last?.suppression == "the installation is invalid: UNREGISTERED")
        }
    }

    @Test("A shard increments the badges of the devices that it sends to, and of no suppressed one")
    func badges() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<300)
            let session = try await database.sessions.open(name: "replica")
            var fields = names(0..<300, fixture)
            fields["data"] = ["alert": "x", "badge": "Increment"]
            let push = try fixture.push("push", fields)
            #expect(try await database.intake.plan(session: session, [push]).members == 300)
            _ = try await fixture.server.query(
                """
                update installations set badge = 4;
                update installations set valid = false where object_id = '\(fixture.objectID(7))';
                update installations set token = null, token_hash = null
                where object_id = '\(fixture.objectID(8))'
                """
            )
            let shard = try #require(try await fixture.claim(session, in: .direct).first)
            let page = try await database.shards.page(shard, after: nil, limit: 1000)
            let prepared = try await database.shards.prepare(session: session, shard, page).members
            #expect(prepared.count == 300)
            for member in prepared {
                #expect(member.badge == (member.suppression == nil ? 5 : nil))
            }
            let unchanged = try await fixture.server.query(
                "select object_id from installations where badge = 4 order by object_id"
            )
            #expect(unchanged == [7, 8].map { fixture.objectID($0) })
        }
    }

    @Test(
        "A push whose devices are all unreachable suppresses each, and one without any ends at once"
    )
    func nobody() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<300)
            _ = try await fixture.server.query("update installations set valid = false")
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("push", names(0..<300, fixture))
            let strangers = try fixture.push("strangers", names(1000..<1300, fixture))
            let planned = try await database.intake.plan(session: session, [push, strangers])
            #expect(planned.members == 300 && planned.deliveries.isEmpty)
            #expect(try await database.pushes.find(strangers.id)?.status == .done)
            let shard = try #require(try await fixture.claim(session, in: .direct).first)
            let members = try await fixture.members(of: shard, by: 1000)
            _ = try await database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(
                    cursor: members.last?.target,
                    records: members.map(suppressed),
                    isFinished: true
                )
            )
            #expect(try await fixture.balancedLedger(of: push.id).suppressed == 300)
            #expect(try await database.pushes.find(push.id)?.status == .done)
        }
    }

    @Test("A scheduled push becomes a shard when it is due, and rows if it is by time zone")
    func scheduled() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<300, zone: "Europe/Berlin")
            let session = try await database.sessions.open(name: "replica")
            let later = Instant.now().adding(milliseconds: 3_600_000).iso8601
            var fields = names(0..<300, fixture)
            fields["push_time"] = .string(later)
            let push = try fixture.push("push", fields)
            fields["push_time"] = .string(String(later.prefix(19)))
            let local = try fixture.push("local", fields)
            _ = try await database.intake.plan(session: session, [push, local])
            _ = try await fixture.server.query("update pushes set release_at = now()")
            _ = try await database.schedules.release(session: session)
            #expect(try await fixture.rowCount(of: push.id) == 0)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 300)
            #expect(try await fixture.claim(session, in: .direct).map(\.pushID) == [push.id])
            #expect(try await fixture.rowCount(of: local.id) == 300)
        }
    }

    @Test("An app gets a further place only while it holds no more than are left for others")
    func room() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            for (app, count) in [(StorageFixture.app, 12), ("quiet", 3), ("late", 1)] {
                if app != StorageFixture.app { try await fixture.createApp(app) }
                try await fixture.populate(0..<300, app: app)
                let all = (0..<300).map { JSONValue.string(fixture.objectID($0, app: app)) }
                let pushes = try (0..<count).map {
                    try fixture.push("\(app)-\($0)", ["installations": .array(all)], app: app)
                }
                for push in pushes {
                    _ = try await database.intake.plan(session: session, [push])
                }
                guard app == StorageFixture.app else { continue }
                let first = try await fixture.claim(
                    session,
                    in: .direct,
                    limit: 10,
                    leavesFree: true
                )
                #expect(first.count == 5)
                let more = try await fixture.claim(
                    session,
                    in: .direct,
                    limit: 5,
                    holding: ["shop": 5],
                    leavesFree: true
                )
                #expect(more.isEmpty)
            }
            let others = try await fixture.claim(
                session,
                in: .direct,
                limit: 5,
                holding: ["shop": 5],
                leavesFree: true
            )
            #expect(others.map(\.app).sorted() == ["late", "quiet", "quiet"], "two are left")
        }
    }

    @Test("The pushes of one app have only so many places, so that others get some")
    func places() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.createApp("quiet")
            try await fixture.populate(0..<300)
            try await fixture.populate(0..<300, app: "quiet")
            let session = try await database.sessions.open(name: "replica")
            let quiet = (0..<300).map { JSONValue.string(fixture.objectID($0, app: "quiet")) }
            var pushes = try (0..<6).map {
                try fixture.push("busy-\($0)", names(0..<300, fixture))
            }
            pushes.append(
                try fixture.push("quiet", ["installations": .array(quiet)], app: "quiet")
            )
            _ = try await database.intake.plan(session: session, pushes)
            let first = try await fixture.claim(session, in: .direct, limit: 32, most: 4)
            #expect(first.count { $0.app == "shop" } == 4 && first.count { $0.app == "quiet" } == 1)
            let more = try await fixture.claim(
                session,
                in: .direct,
                limit: 32,
                holding: ["shop": 3],
                most: 4
            )
            #expect(more.count == 1)
            #expect(
                try await database.shards.releaseAll(session: session, except: []) == 0,
                "broadcasts alone"
            )
            #expect(
                try await database.shards.releaseAll(session: session, lane: .direct, except: first)
                    == 1
            )
        }
    }
}
