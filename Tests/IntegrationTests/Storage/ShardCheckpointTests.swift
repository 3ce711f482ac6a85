import EventLoop
import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage
import StorageAdmin
import Support
import Testing

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ShardCheckpointTests {
    @Test("Promise 6: a row is written once, with its outcome, and the books balance at every step")
    func booksBalance() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<10)
            let push = try await fixture.broadcast("books", shardSize: 20)
            let session = try await database.sessions.open(name: "replica")
            let shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard)
            var records: [DeliveryRecord] = []
            for (member, outcome) in zip(members, Outcome.allCases) {
                records.append(
                    ended(
                        member,
                        outcome,
                        attempts: 2,
                        unanswered: 1,
                        status: 200,
                        reason: "as it was",
                        messageID: "id-\(member.target)"
                    )
                )
            }
            let flying = members[5]
            let busy = members[6]
            records.append(inFlight(flying))
            records.append(retried(busy, status: 503, reason: "busy"))
            let standing = try await database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(cursor: busy.target, records: records, isFinished: false)
            )
            #expect(standing == .written)
            var ledger = try await fixture.balancedLedger(of: push.id)
            for outcome in Outcome.allCases { #expect(ledger[outcome] == 1) }
            #expect(ledger.pending == 5)
            #expect(try await fixture.rowCount(of: push.id) == 7)
            let rows = try await database.deliveries.states(pushID: push.id)
            #expect(rows[0].attempts == 2)
            #expect(rows[0].status == 200)
            #expect(rows[0].reason == "as it was")
            #expect(rows[5].owner == session)
            #expect(rows[6].owner == nil)
            #expect(
                try await fixture.server.query(
                    """
                    SELECT token = '' AND provider_message_id IS NOT NULL FROM deliveries
                    WHERE state <> 0 GROUP BY 1
                    """
                ) == ["t"]
            )

            // A member that is a row now is settled normally, with all that its retry needs.
            let late = try await database.ledger.record(session: session, [delivered(flying)])
            #expect(late == [flying.key])
            let due = try await database.due.claim(session: session, lane: 1, limit: 10)
            #expect(due.map(\.key) == [busy.key])
            #expect(due.first?.device == busy.device)
            #expect(due.first?.attempts == 1)
            #expect(due.first?.suppression == nil)
            ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 2)
            #expect(ledger.pending == 4)

            // The shard ends before its last row does.
            try await fixture.record(
                members.suffix(3),
                of: shard,
                session: session,
                isFinished: true
            )
            #expect(try await database.pushes.find(push.id)?.status == .sending)
            _ = try await fixture.balancedLedger(of: push.id)
            _ = try await database.ledger.record(session: session, due.map(delivered))
            ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 6)
            #expect(ledger.isSettled)
            let record = try #require(try await database.pushes.find(push.id))
            #expect(record.status == .done)
            #expect(record.finishedAt != nil)
        }
    }

    @Test("Promise 3: a lost session's shard resumes after its last checkpoint, and is fenced")
    func resumesBehindTheCheckpoint() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<9)
            let push = try await fixture.broadcast("resume", shardSize: 20)
            let stalled = try await database.sessions.open(name: "stalled")
            let first = try #require(try await fixture.claim(stalled).first)
            let members = try await fixture.members(of: first)
            try await fixture.record(
                members.prefix(4),
                of: first,
                session: stalled,
                isFinished: false
            )
            try await fixture.kill(stalled)
            let next = try await database.sessions.open(name: "next")
            let second = try #require(try await fixture.claim(next).first)
            #expect(second.cursor == members[3].target)
            #expect(second.recorded == 4)

            // The stalled session comes back: with more, with the end, with nothing.
            for (count, isFinished) in [(2, false), (5, true), (0, true)] {
                let error = await #expect(throws: StorageError.self) {
                    try await fixture.record(
                        members.dropFirst(4).prefix(count),
                        of: first,
                        session: stalled,
                        isFinished: isFinished
                    )
                }
                #expect(error?.kind == .sessionLost)
            }
            // A living session does not own the shard either.
            let other = try await database.sessions.open(name: "other")
            await #expect(throws: StorageError.self) {
                try await fixture.record(
                    members.suffix(5),
                    of: first,
                    session: other,
                    isFinished: true
                )
            }
            #expect(try await fixture.rowCount(of: push.id) == 4)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 5)

            let rest = try await fixture.members(of: second)
            #expect(rest.map(\.target) == members.suffix(5).map(\.target))
            try await fixture.record(rest, of: second, session: next, isFinished: true)
            #expect(try await fixture.rowCount(of: push.id) == 9)
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 9)
            #expect(try await database.pushes.find(push.id)?.status == .done)
        }
    }

    @Test("A checkpoint whose answer was lost can be repeated, and be larger then")
    func checkpointsMayBeRepeated() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<8)
            let push = try await fixture.broadcast("again", shardSize: 20)
            let session = try await database.sessions.open(name: "replica")
            let shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard)
            for count in [3, 3, 5, 2] {
                try await fixture.record(
                    members.prefix(count),
                    of: shard,
                    session: session,
                    isFinished: false
                )
                #expect(try await fixture.rowCount(of: push.id) == max(3, count == 2 ? 5 : count))
                _ = try await fixture.balancedLedger(of: push.id)
            }
            for _ in 0..<2 {
                let standing = try await fixture.record(
                    members,
                    of: shard,
                    session: session,
                    isFinished: true
                )
                #expect(standing == .written)
                #expect(try await fixture.balancedLedger(of: push.id).delivered == 8)
            }
            #expect(try await database.pushes.find(push.id)?.status == .done)
            // A record that the cursor would pass a second time is an error of the sender.
            let bad = try await fixture.broadcast("bad", shardSize: 20)
            let other = try #require(try await fixture.claim(session).first)
            let all = try await fixture.members(of: other)
            await #expect(throws: StorageError.self) {
                try await database.ledger.checkpoint(
                    session: session,
                    other,
                    ShardCheckpoint(
                        cursor: all[0].target,
                        records: all.prefix(2).map {
                            delivered($0)
                        },
                        isFinished: false
                    )
                )
            }
            #expect(try await fixture.rowCount(of: bad.id) == 0)
        }
    }

    @Test("The books include members deleted meanwhile, and those who joined a channel")
    func booksFollowTheAudience() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<12)
            try await fixture.populate(12..<20, channel: "Yankees")
            let push = try await fixture.broadcast("moving", ["channels": ["Mets"]], shardSize: 6)
            let session = try await database.sessions.open(name: "replica")
            let shards = try await fixture.claim(session).sorted { $0.shard < $1.shard }
            #expect(shards.count == 2)
            let gone = [0, 3, 4].map { fixture.objectID($0) }
            #expect(
                try await database.installations.delete(app: StorageFixture.app, objectIDs: gone)
                    == 3
            )
            _ = try await fixture.server.query(
                "UPDATE installations SET channels = '{Mets}' WHERE channels = '{Yankees}'"
            )
            let few = try await fixture.members(of: shards[0])
            #expect(few.count == 3)
            try await fixture.record(few, of: shards[0], session: session, isFinished: false)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 9)
            try await fixture.record([], of: shards[0], session: session, isFinished: true)
            var ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.targeted == 9)
            #expect(ledger.pending == 6)

            let many = try await fixture.members(of: shards[1])
            #expect(many.count == 14)
            for end in [5, 10, 14] {
                try await fixture.record(
                    many.prefix(end),
                    of: shards[1],
                    session: session,
                    isFinished: false
                )
                ledger = try await fixture.balancedLedger(of: push.id)
                #expect(ledger.pending == max(0, 6 - end))
                // No delivery is pending, but there may be more members.
                #expect(try await database.pushes.find(push.id)?.status == .sending)
            }
            try await fixture.record([], of: shards[1], session: session, isFinished: true)
            ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.targeted == 17)
            #expect(ledger.delivered == 17)
            #expect(try await database.pushes.find(push.id)?.status == .done)
        }
    }

    @Test(
        "A shard of a push that fails meanwhile ends with its next checkpoint, and it balances"
    )
    func failedMeanwhile() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<10)
            let push = try await fixture.broadcast("failed", shardSize: 20)
            let session = try await database.sessions.open(name: "replica")
            let shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard)
            // A failure that found this shard locked leaves this state.
            _ = try await fixture.server.query(
                "update pushes set status = 'failed' where id = '\(push.id)'"
            )
            let standing = try await fixture.record(
                members.prefix(4),
                of: shard,
                session: session,
                isFinished: false
            )
            #expect(standing == .cancelled)
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 4 && ledger.suppressed == 6 && ledger.isSettled)
            try await database.shards.release(session: session, [shard], dueAt: nil)
            #expect(try await fixture.claim(session).isEmpty)
        }
    }

    @Test(
        "Rows go to the partition of their day, or else into the default one",
        arguments: [false, true]
    )
    func partitions(isMade: Bool) async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<4)
            if isMade { _ = try await database.maintenance.maintain(now: .now()) }
            _ = try await fixture.broadcast("partition", shardSize: 20)
            let session = try await database.sessions.open(name: "replica")
            let shard = try #require(try await fixture.claim(session).first)
            let records = try await fixture.members(of: shard).map(inFlight)
            _ = try await database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(cursor: nil, records: records, isFinished: true)
            )
            let rows = try await fixture.server.query(
                """
                select count(*) filter (where tableoid = 'deliveries_default'::regclass),
                    count(*) from deliveries
                """
            )
            #expect(rows == [isMade ? "0|4" : "4|4"])
        }
    }

    @Test(
        "Promise 9: a token that dies in a broadcast is disabled with its record, by the same rules"
    )
    func tokensDie() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<3)
            let push = try await fixture.broadcast("dying", shardSize: 20)
            let session = try await database.sessions.open(name: "replica")
            let shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard)
            let now = Instant.now()
            let records = members.enumerated().map { index, member in
                // The second was registered after the provider found it dead.
                let diedAt = index == 1 ? now.adding(milliseconds: -86_400_000) : now
                return gone(member, at: diedAt)
            }
            _ = try await database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(cursor: members[2].target, records: records, isFinished: true)
            )
            var filter = InstallationStore.Filter()
            filter.isValid = false
            let dead = try await database.installations.query(app: StorageFixture.app, filter)
            #expect(dead.map(\.objectID) == [members[0].target, members[2].target])
            #expect(dead.allSatisfy { $0.invalidReason == "Unregistered" })
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.failed == 3)
            #expect(ledger.invalidTokens == 3)
        }
    }

    @Test("A mass invalidation can be undone by its time, reason and app, without others")
    func invalidationIsUndone() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.createApp("other")
            let session = try await database.sessions.open(name: "replica")
            for app in [StorageFixture.app, "other"] {
                try await fixture.populate(0..<6, app: app)
                _ = try await fixture.broadcast("mass", app: app, shardSize: 20)
                let shard = try #require(try await fixture.claim(session).first)
                let records = try await fixture.members(of: shard).map { member in
                    gone(
                        member,
                        at: .now(),
                        reason: member.target.hasSuffix("5") ? "ExpiredToken" : "Unregistered"
                    )
                }
                _ = try await database.ledger.checkpoint(
                    session: session,
                    shard,
                    ShardCheckpoint(cursor: nil, records: records, isFinished: true)
                )
            }
            // One was long ago, one was muted by its client, one has registered again.
            _ = try await fixture.server.query(
                """
                UPDATE installations SET invalidated_at = now() - interval '2 days'
                WHERE object_id = 'shop-00000000'
                """
            )
            for (number, field) in [(1, "valid"), (2, "deviceToken")] {
                _ = try await database.installations.update(
                    app: StorageFixture.app,
                    objectID: fixture.objectID(number)
                ) { installation in
                    var object = installation.object
                    object["valid"] = false
                    object["deviceToken"] = .string("abcdef0\(number)")
                    try installation.take(object, changed: [field], now: .now())
                }
            }
            let since = Instant.now().adding(milliseconds: -3_600_000)
            let store = database.installations
            #expect(try await store.restore(since: since, reason: "Unknown") == 0)
            #expect(
                try await store.restore(
                    since: since,
                    reason: "Unregistered",
                    app: StorageFixture.app
                ) == 2
            )
            #expect(try await store.restore(since: since, reason: "Unregistered") == 5)
            #expect(try await store.restore(since: since, reason: "Unregistered") == 0)
            var filter = InstallationStore.Filter()
            filter.isValid = false
            let invalid = try await store.query(app: StorageFixture.app, filter).map(\.objectID)
            #expect(invalid == [0, 1, 5].map { fixture.objectID($0) })
        }
    }
}
