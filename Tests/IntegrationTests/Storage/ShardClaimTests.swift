import JSON
import PushCore
import PushStorage
import Storage
import StorageAdmin
import Support
import Testing

@Suite(
    "Claims of shards",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ShardClaimTests {
    /// Makes a broadcast to six phones in shards of two.
    private func cut(_ fields: JSONObject, _ fixture: StorageFixture) async throws -> Int {
        let database = fixture.database
        for number in 0..<6 { try await fixture.install(fixture.iPhone("aa0\(number)")) }
        let session = try await database.sessions.open(name: "first")
        let push = try fixture.push("broadcast", fields)
        _ = try await database.intake.plan(session: session, [push])
        #expect(try await database.planning.claim(session: session) != nil)
        let page = try await database.planning.planPage(
            session: session,
            pushID: push.id,
            shardSize: 2
        )
        #expect(page.isFinished)
        return session
    }

    @Test("The shards of a failed push end when they are claimed, and stay with no session")
    func failed() async throws {
        try await StorageFixture.run { fixture in
            let session = try await cut([:], fixture)
            _ = try await fixture.server.query("update pushes set status = 'failed'")
            #expect(try await fixture.claim(session).isEmpty)
            let shards = try await fixture.server.query(
                "select count(*) filter (where finished), count(owner) from shards"
            )
            #expect(shards == ["3|0"])
            let id = try #require(try await fixture.server.query("select id from pushes").first)
            #expect(try await fixture.balancedLedger(of: id).suppressed == 6)
            #expect(try await fixture.database.apps.delete(StorageFixture.app).pushes == 1)
        }
    }

    @Test(
        "Only one shard of a push with a pace is sent at a time, over all replicas",
        arguments: ["pace", "flow_control"]
    )
    func paced(field: String) async throws {
        try await StorageFixture.run { fixture in
            let session = try await cut([field: 1000], fixture)
            let shards = fixture.database.shards
            let other = try await fixture.database.sessions.open(name: "other")
            var claimed = try await shards.claim(session: session, limit: 4, holding: [:])
            for number in 0..<3 {
                #expect(claimed.map(\.shard) == [number])
                #expect(try await shards.claim(session: other, limit: 4, holding: [:]).isEmpty)
                let shard = try #require(claimed.first)
                _ = try await fixture.database.ledger.checkpoint(
                    session: session,
                    shard,
                    ShardCheckpoint(cursor: nil, records: [], isFinished: true)
                )
                claimed = try await shards.claim(session: session, limit: 4, holding: [:])
            }
            #expect(claimed.isEmpty)
        }
    }

    @Test("A request that Postgres cannot parse delays no claim of any push")
    func unreadableForPostgres() async throws {
        try await StorageFixture.run { fixture in
            let session = try await cut([:], fixture)
            _ = try await fixture.server.query(
                #"UPDATE pushes SET request = '{"data": {"alert": "x\u0000y"}}'"#
            )
            let shards = fixture.database.shards
            #expect(try await shards.claim(session: session, limit: 4, holding: [:]).count == 3)
        }
    }

    @Test("Shards without a pace are claimed at once, and unknown ones are released")
    func unknown() async throws {
        try await StorageFixture.run { fixture in
            let session = try await cut([:], fixture)
            let shards = fixture.database.shards
            let claimed = try await shards.claim(session: session, limit: 4, holding: [:])
            #expect(claimed.count == 3)
            let known = Array(claimed.prefix(1))
            #expect(try await shards.releaseAll(session: session, except: known) == 2)
            #expect(try await shards.releaseAll(session: session, except: known) == 0)
            let other = try await fixture.database.sessions.open(name: "other")
            let rest = try await shards.claim(session: other, limit: 4, holding: [:])
            #expect(Set(rest.map(\.shard)) == Set(claimed.dropFirst().map(\.shard)))
        }
    }
}
