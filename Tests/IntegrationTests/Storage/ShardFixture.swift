import EventLoop
import JSON
import PushCore
import PushStorage
import Support
import Testing

extension StorageFixture {
    /// Saves many installations at once; their object ids follow each other.
    func populate(
        _ range: Range<Int>,
        app: String = app,
        channel: String = "Mets",
        zone: String? = nil
    ) async throws {
        let zone = zone.map { "'\($0)'" } ?? "NULL"
        _ = try await server.query(
            """
            INSERT INTO installations (app, object_id, device_type, provider, token, token_hash,
                channels, time_zone, token_updated_at)
            SELECT '\(app)', '\(app)-' || lpad(g::text, 8, '0'), 'ios', 'apns',
                '\(app)-token-' || g, sha256(convert_to('\(app)-token-' || g, 'UTF8')),
                ARRAY['\(channel)'], \(zone), now() - interval '1 minute'
            FROM generate_series(\(range.lowerBound), \(range.upperBound - 1)) AS g
            """
        )
    }

    func objectID(_ number: Int, app: String = app) -> String {
        let digits = String(number)
        return app + "-" + String(repeating: "0", count: 8 - digits.count) + digits
    }

    /// Plans a broadcast to the end, in shards.
    func broadcast(
        _ id: String,
        _ object: JSONObject = [:],
        app: String = app,
        shardSize: Int
    ) async throws -> NewPush {
        let push = try push(id, object, app: app)
        let session = try await database.sessions.open(name: "planner")
        _ = try await database.intake.plan(session: session, [push])
        #expect(try await database.planning.claim(session: session)?.id == push.id)
        while try await !database.planning.planPage(
            session: session,
            pushID: push.id,
            shardSize: shardSize
        ).isFinished {}
        try await database.sessions.close(session)
        return push
    }

    func claim(
        _ session: Int,
        in lane: Lane = .broadcast,
        limit: Int = 100,
        holding: [String: Int] = [:],
        most: Int = 1000,
        leavesFree: Bool = false
    ) async throws -> [ClaimedShard] {
        try await database.shards.claim(
            session: session,
            lane: lane,
            limit: limit,
            holding: holding,
            most: most,
            leavesFree: leavesFree
        )
    }

    /// Returns all members of a shard beyond its cursor.
    func members(of shard: ClaimedShard, by limit: Int = 3) async throws -> [Delivery] {
        var members: [Delivery] = []
        while true {
            let page = try await database.shards.page(
                shard,
                after: members.last?.target,
                limit: limit
            )
            members += page.members
            if page.isLast { return members }
        }
    }

    /// Records members as delivered.
    @discardableResult
    func record(
        _ members: some Sequence<Delivery>,
        of shard: ClaimedShard,
        session: Int,
        isFinished: Bool
    ) async throws -> LedgerResult {
        let records = members.map(delivered)
        return try await database.ledger.checkpoint(
            session: session,
            shard,
            ShardCheckpoint(
                cursor: records.last?.delivery.target,
                records: records,
                isFinished: isFinished
            )
        )
    }

    /// Ends the rest of cancelled pushes, as a dispatcher does.
    ///
    /// - Returns: The number of deliveries.
    @discardableResult
    func suppressRest() async throws -> Int {
        let session = try await database.sessions.open(name: "undertaker")
        var count = 0
        for shard in try await claim(session) {
            let members = try await members(of: shard, by: 100)
            #expect(members.allSatisfy { $0.suppression == "cancelled" })
            let standing = try await database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(
                    cursor: members.last?.target,
                    records: members.map(suppressed),
                    isFinished: true
                )
            )
            #expect(standing == .written)
            count += members.count
        }
        for lane in 0...1 {
            let due = try await database.due.claim(
                session: session,
                lane: lane,
                limit: 1000
            )
            #expect(due.allSatisfy { $0.suppression == "cancelled" })
            _ = try await database.ledger.record(session: session, due.map(suppressed))
            count += due.count
        }
        try await database.sessions.close(session)
        return count
    }

    /// Ends a session as another dispatcher does after its lease.
    func kill(_ session: Int) async throws {
        _ = try await server.query(
            "UPDATE dispatchers SET lease_until = now() - interval '1 s' WHERE id = \(session)"
        )
        _ = try await database.sessions.reap()
    }

    /// Returns the number of rows of each target of a push beyond one.
    func rowCount(of pushID: String) async throws -> Int {
        let rows = try await server.query(
            "SELECT count(*) FROM all_deliveries WHERE push_id = '\(pushID)'"
        )
        return try #require(rows.first.flatMap { Int($0) })
    }
}
