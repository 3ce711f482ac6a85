import EventLoop
import JSON
import PushCore
import PushStorage
import StorageAdmin
import Support
import Testing

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ShardStoreTests {
    @Test(
        "Promise 3: a broadcast becomes shards, planning resumes, and each device is in one shard"
    )
    func broadcastIsCut() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<45)
            let push = try fixture.push("cut", [:])
            let session = try await database.sessions.open(name: "first")
            _ = try await database.intake.plan(session: session, [push])
            try await fixture.populate(50..<53)
            #expect(try await database.planning.claim(session: session)?.id == push.id)
            let page = try await database.planning.planPage(
                session: session,
                pushID: push.id,
                shardSize: 4
            )
            #expect(page.inserted == 40)
            #expect(!page.isFinished)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 40)
            #expect(try await fixture.rowCount(of: push.id) == 0)
            // The planner dies; another continues where it stopped.
            try await fixture.kill(session)
            let next = try await database.sessions.open(name: "next")
            #expect(try await database.planning.claim(session: next)?.id == push.id)
            let rest = try await database.planning.planPage(
                session: next,
                pushID: push.id,
                shardSize: 4
            )
            #expect(rest.inserted == 5)
            #expect(rest.isFinished)
            #expect(try await fixture.balancedLedger(of: push.id).targeted == 45)
            #expect(try await database.pushes.find(push.id)?.progress?.expected == 45)

            let shards = try await fixture.claim(next)
            #expect(shards.count == 12)
            #expect(shards.allSatisfy { $0.expiresAt == nil && $0.lane == 1 })
            var seen: [String] = []
            for shard in shards.sorted(by: { $0.shard < $1.shard }) {
                let members = try await fixture.members(of: shard)
                #expect(members.count == shard.expected)
                #expect(members.allSatisfy { $0.device.environment == .production })
                seen += members.map(\.target)
            }
            #expect(seen == (0..<45).map { fixture.objectID($0) })
            for shard in shards {
                try await fixture.record(
                    try await fixture.members(of: shard),
                    of: shard,
                    session: next,
                    isFinished: true
                )
                _ = try await fixture.balancedLedger(of: push.id)
            }
            let record = try #require(try await database.pushes.find(push.id))
            #expect(record.status == .done)
            #expect(record.ledger.delivered == 45)
            #expect(record.progress?.finishedShards == 12)
            #expect(record.progress?.recorded == 45)
            #expect(try await fixture.rowCount(of: push.id) == 45)
        }
    }

    @Test("A broadcast's prod decides for members that do not name their environment")
    func prodDecides() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.populate(0..<2)
            _ = try await fixture.server.query(
                """
                update installations set environment = 'production'
                where object_id = '\(fixture.objectID(1))'
                """
            )
            _ = try await fixture.broadcast("dev", ["prod": "dev"], shardSize: 10)
            let session = try await fixture.database.sessions.open(name: "replica")
            let shard = try #require(try await fixture.claim(session).first)
            let devices = try await fixture.members(of: shard).map(\.device)
            #expect(devices.map(\.environment) == [.sandbox, .production])
            #expect(devices.map(\.environmentIsExplicit) == [false, true])
        }
    }

    @Test("A channel with few members is one shard, with the same members as several shards")
    func sparseAndDenseAgree() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.createApp("other")
            try await fixture.populate(0..<30, channel: "Yankees")
            try await fixture.populate(30..<37, channel: "Mets", zone: "Asia/Tokyo")
            try await fixture.populate(37..<40, channel: "Mets")
            try await fixture.populate(0..<5, app: "other", channel: "Mets")
            let session = try await database.sessions.open(name: "replica")
            let expected = (30..<40).map { fixture.objectID($0) }
            for (id, size, count) in [("sparse", 100, 1), ("dense", 6, 2)] {
                let push = try await fixture.broadcast(
                    id,
                    ["channels": ["Mets", "Giants"]],
                    shardSize: size
                )
                let shards = try await fixture.claim(session)
                #expect(shards.map(\.pushID) == Array(repeating: push.id, count: count))
                var seen: [String] = []
                for shard in shards {
                    seen += try await fixture.members(of: shard).map(\.target)
                }
                #expect(seen.sorted() == expected)
                #expect(try await fixture.balancedLedger(of: push.id).pending == 10)
            }
            let nobody = try await fixture.broadcast("nobody", ["channels": ["x"]], shardSize: 6)
            #expect(try await database.pushes.find(nobody.id)?.status == .done)

            let zoned = try await fixture.broadcast("zones", ["channels": ["Mets"]], shardSize: 100)
            _ = try await fixture.server.query(
                "UPDATE shards SET zones = '{Asia/Tokyo}' WHERE push_id = '\(zoned.id)'"
            )
            let shard = try #require(try await fixture.claim(session).first)
            #expect(try await fixture.members(of: shard).map(\.target) == Array(expected.prefix(7)))
            _ = try await fixture.server.query(
                "UPDATE shards SET zones = '{\"\"}', owner = NULL WHERE push_id = '\(zoned.id)'"
            )
            let rest = try #require(try await fixture.claim(session).first)
            #expect(try await fixture.members(of: rest).map(\.target) == Array(expected.suffix(3)))
        }
    }

    @Test("Promise 8: shards go first to the app that has fewest, then to the oldest push")
    func claimsAreFair() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("small")
            try await fixture.createApp("third")
            try await fixture.populate(0..<40)
            try await fixture.populate(0..<4, app: "small")
            try await fixture.populate(0..<2, app: "third")
            let first = try await fixture.broadcast("first", shardSize: 2)
            let second = try await fixture.broadcast("second", shardSize: 2)
            _ = try await fixture.broadcast("small", app: "small", shardSize: 2)
            let session = try await fixture.database.sessions.open(name: "replica")

            let one = try await fixture.claim(session, limit: 4)
            #expect(one.map(\.app).sorted() == ["shop", "shop", "small", "small"])
            #expect(Set(one.filter { $0.app == "shop" }.map(\.pushID)) == [first.id])
            // A late app does not wait for those with many shards.
            _ = try await fixture.broadcast("third", app: "third", shardSize: 2)
            let two = try await fixture.claim(session, limit: 2, holding: ["shop": 2, "small": 2])
            #expect(two.map(\.app).sorted() == ["shop", "third"])
            let rest = try await fixture.claim(session, limit: 100)
            #expect(rest.count == 37)
            #expect(rest.filter { $0.pushID == first.id }.count == 17)
            #expect(rest.filter { $0.pushID == second.id }.count == 20)
            #expect(try await fixture.claim(session).isEmpty)
            #expect(try await fixture.database.shards.nextDue() == nil)
        }
    }

    @Test(
        "Two concurrent claims never get the same shard, and a released one is due at its time"
    )
    func claimsAreExclusive() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<60)
            _ = try await fixture.broadcast("exclusive", shardSize: 2)
            let shards = try await withThrowingTaskGroup(of: [ClaimedShard].self) { group in
                for _ in 0..<4 {
                    group.addTask {
                        let session = try await database.sessions.open(name: "claimer")
                        var shards: [ClaimedShard] = []
                        while true {
                            let claimed = try await fixture.claim(session, limit: 3)
                            if claimed.isEmpty { return shards }
                            shards += claimed
                        }
                    }
                }
                return try await group.reduce(into: []) { $0 += $1 }
            }
            #expect(shards.map(\.shard).sorted() == Array(0..<30))

            let session = try await database.sessions.open(name: "giver")
            _ = try await fixture.server.query("UPDATE shards SET owner = \(session)")
            let later = Instant.now().adding(milliseconds: 3_600_000)
            try await database.shards.release(session: session, [shards[0]], dueAt: later)
            #expect(try await database.shards.nextDue() == later)
            #expect(try await fixture.claim(session).isEmpty)
            try await database.shards.release(session: session, [shards[1], shards[2]], dueAt: nil)
            let stranger = try await database.sessions.open(name: "stranger")
            try await database.shards.release(session: stranger, shards, dueAt: nil)
            let again = try await fixture.claim(stranger)
            #expect(Set(again.map(\.shard)) == [shards[1].shard, shards[2].shard])
        }
    }

    @Test(
        "Shards of a session that an older dispatcher ended, without knowing shards, are not lost"
    )
    func orphansAreFound() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<6)
            _ = try await fixture.broadcast("orphans", shardSize: 2)
            let session = try await database.sessions.open(name: "newer")
            #expect(try await fixture.claim(session).count == 3)
            _ = try await fixture.server.query("DELETE FROM dispatchers WHERE id = \(session)")
            _ = try await database.sessions.reap()
            let next = try await database.sessions.open(name: "next")
            #expect(try await fixture.claim(next).count == 3)
        }
    }

    @Test("A shard that cannot be read ends with its push and delays no other")
    func corruptPushEnds() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<6)
            let bad = try await fixture.broadcast("bad", shardSize: 2)
            let good = try await fixture.broadcast("good", shardSize: 2)
            _ = try await fixture.server.query(
                "UPDATE pushes SET request = '{\"tokens\": 3}' WHERE id = '\(bad.id)'"
            )
            let session = try await database.sessions.open(name: "replica")
            let claimed = try await fixture.claim(session)
            #expect(claimed.map(\.pushID) == Array(repeating: good.id, count: 3))
            #expect(try await database.pushes.find(bad.id)?.status == .failed)
            #expect(try await fixture.balancedLedger(of: bad.id).suppressed == 6)
        }
    }

    @Test("Promise 12: a day with an open shard is kept, and shards go with their push")
    func maintenanceKnowsShards() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let day = Instant.now()
            _ = try await database.maintenance.maintain(now: day)
            try await fixture.populate(0..<4)
            let push = try await fixture.broadcast("kept", shardSize: 2)
            let later = day.adding(milliseconds: 100 * 86_400_000)
            let name = "deliveries_" + day.day.split(separator: "-").joined()
            _ = try await database.maintenance.maintain(now: later)
            #expect(
                try await fixture.server.query("SELECT to_regclass('\(name)') IS NOT NULL") == ["t"]
            )
            let session = try await database.sessions.open(name: "replica")
            for shard in try await fixture.claim(session) {
                try await fixture.record(
                    try await fixture.members(of: shard),
                    of: shard,
                    session: session,
                    isFinished: true
                )
            }
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 4)
            let report = try await database.maintenance.maintain(now: later)
            #expect(report.pushesDeleted == 1)
            #expect(try await fixture.server.query("SELECT count(*) FROM shards") == ["0"])
            #expect(
                try await fixture.server.query("SELECT to_regclass('\(name)') IS NULL") == ["t"]
            )
        }
    }
}
