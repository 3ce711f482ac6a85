import JSON
import PushCore
import PushStorage
import Storage
import Support
import Testing

@Suite(
    "Entries of the ledger in one transaction",
    .timeLimit(.minutes(3)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct PushLedgerTests {
    /// Makes a checkpoint of the first members of a shard.
    private func entry(
        _ shard: ClaimedShard,
        _ fixture: StorageFixture,
        count: Int,
        isFinished: Bool = false
    ) async throws -> LedgerEntry {
        let members = try await fixture.members(of: shard).prefix(count)
        return .members(
            shard,
            ShardCheckpoint(
                cursor: members.last?.target,
                records: members.map { $0.target.hasSuffix("0") ? inFlight($0) : delivered($0) },
                isFinished: isFinished
            )
        )
    }

    @Test(
        "Checkpoints of several shards and pushes each move their cursor and count once"
    )
    func shards() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<30)
            let first = try await fixture.broadcast("first", shardSize: 10)
            let second = try await fixture.broadcast("second", shardSize: 30)
            let session = try await database.sessions.open(name: "replica")
            let shards = try await fixture.claim(session)
            #expect(shards.count == 4)
            var entries: [LedgerEntry] = []
            for shard in shards {
                entries.append(
                    try await entry(
                        shard,
                        fixture,
                        count: shard.pushID == second.id ? 30 : 5,
                        isFinished: shard.pushID == second.id
                    )
                )
            }
            let results = try await database.ledger.write(entries.shuffled(), session: session)
            #expect(results == Array(repeating: .written, count: 4))
            var ledger = try await fixture.balancedLedger(of: first.id)
            #expect(ledger.targeted == 30 && ledger.delivered == 12 && ledger.pending == 18)
            ledger = try await fixture.balancedLedger(of: second.id)
            #expect(ledger.targeted == 30 && ledger.delivered == 27 && ledger.pending == 3)
            // The reply was lost: all of it is repeated, and counted once (rule 62).
            _ = try await database.ledger.write(entries, session: session)
            #expect(try await fixture.balancedLedger(of: first.id).delivered == 12)
            #expect(try await fixture.balancedLedger(of: second.id).delivered == 27)

            // Of a cancelled push only the shards are reported.
            _ = try await database.pushes.cancel(first.id)
            let mine = shards.filter { $0.pushID == first.id }
            let told = try await database.ledger.write(
                mine.map {
                    .members($0, ShardCheckpoint(cursor: nil, records: [], isFinished: false))
                },
                session: session
            )
            #expect(told == [.cancelled, .cancelled, .cancelled])
        }
    }

    @Test("If another session owns one shard, nothing is written for any (rule 61)")
    func anothers() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<20)
            let push = try await fixture.broadcast("fenced", shardSize: 10)
            let session = try await database.sessions.open(name: "replica")
            let other = try await database.sessions.open(name: "other")
            let mine = try await fixture.claim(session, limit: 1)
            let theirs = try await fixture.claim(other, limit: 1)
            var entries: [LedgerEntry] = []
            for shard in mine + theirs {
                entries.append(try await entry(shard, fixture, count: 5))
            }
            let error = await #expect(throws: StorageError.self) {
                try await database.ledger.write(entries, session: session)
            }
            #expect(error?.kind == .sessionLost)
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 0)
            #expect(try await fixture.rowCount(of: push.id) == 0)
        }
    }

    @Test(
        "Ended and released rows are written in one transaction with a result each (rules 60, 66)"
    )
    func rows() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            func tokens(_ names: [String]) -> JSONObject {
                [
                    "tokens": .array(
                        names.map { ["platform": "fcm", "token": .string($0)] }
                    )
                ]
            }
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("p", tokens(["a", "b", "c"]))
            let cancelled = try fixture.push("c", tokens(["d"]))
            let planned = try await database.intake.plan(session: session, [push, cancelled])
            let ours = planned.deliveries.filter { $0.pushID == push.id }
            let cut = try #require(planned.deliveries.first { $0.pushID == cancelled.id })
            _ = try await database.pushes.cancel(cancelled.id)
            let later = Instant.now().adding(milliseconds: 3_600_000)
            var foreign = ours[0]
            foreign.key.target = "nobody"
            let results = try await database.ledger.write(
                [
                    .row(retried(ours[0], until: later, status: 503, reason: "busy")),
                    .row(gone(ours[1], at: .now())), .row(delivered(foreign)),
                    .row(delivered(ours[2])), .row(retried(cut, until: later)),
                ],
                session: session
            )
            #expect(results == [.written, .written, .notOwned, .written, .written])
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 1 && ledger.failed == 1 && ledger.pending == 1)
            #expect(ledger.invalidTokens == 1)
            let waiting = try await database.deliveries.states(pushID: push.id)
                .first { $0.target == ours[0].target }
            #expect(waiting?.status == 503 && waiting?.reason == "busy" && waiting?.owner == nil)
            // The delivery of the push cancelled meanwhile is due at once, the other in an hour.
            let due = try await database.due.claim(session: session, lane: 0, limit: 10)
            #expect(due.map(\.target) == [cut.target])
        }
    }
}
