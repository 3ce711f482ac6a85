import EventLoop
import PushCore
import Support
import Testing

@testable import InstallationStorage
@testable import PushStorage
@testable import Storage

struct ShardLedgerTests {
    @Test("A shard's ledger counts its recorded, remaining and cancelled members")
    func books() {
        var books = ShardLedger(expected: 10, recorded: 0)
        books.record(4)
        #expect(books == ShardLedger(expected: 10, recorded: 4))
        #expect(books.unrecorded == 6)
        var cancelled = books
        cancelled.cancel()
        cancelled.finish()
        #expect(cancelled == ShardLedger(expected: 10, recorded: 4, cancelled: 6, isFinished: true))
        #expect(cancelled.unrecorded == 0)
        cancelled.record(2)
        #expect(cancelled == ShardLedger(expected: 10, recorded: 6, cancelled: 4, isFinished: true))
        cancelled.record(5)
        #expect(cancelled == ShardLedger(expected: 11, recorded: 11, isFinished: true))
        books.record(8)
        #expect(books == ShardLedger(expected: 12, recorded: 12))
        books.finish()
        books.cancel()
        #expect(books == ShardLedger(expected: 12, recorded: 12, isFinished: true))
    }
}

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ShardWalkTests {
    @Test(
        "The books balance after any sequence of events, and each device has at most one row",
        arguments: [1, 2, 3]
    )
    func walk(seed: UInt64) async throws {
        try await StorageFixture.run { fixture in
            try await fixture.populate(0..<60)
            let push = try await fixture.broadcast("walk", shardSize: 7)
            var walk = Walk(fixture: fixture, pushID: push.id, random: Random(state: seed))
            for step in 0..<120 {
                if step == 80, seed == 3 {
                    _ = try await fixture.database.pushes.cancel(push.id)
                }
                try await walk.step()
                _ = try await fixture.balancedLedger(of: push.id)
            }
            try await walk.finish()
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.isSettled)
            let record = try #require(try await fixture.database.pushes.find(push.id))
            #expect(record.status == (seed == 3 ? .cancelled : .done))
            // Each existing device has a row, except those that were cancelled.
            let missing = try await fixture.server.query(
                """
                SELECT count(*) FROM installations i WHERE NOT EXISTS (
                    SELECT FROM all_deliveries d
                    WHERE d.push_id = '\(push.id)' AND d.target = i.object_id)
                """
            )
            if seed != 3 { #expect(missing == ["0"]) }
        }
    }

    /// The same numbers each time (SplitMix64, S. Vigna).
    struct Random: RandomNumberGenerator {
        var state: UInt64

        mutating func next() -> UInt64 {
            state &+= 0x9E37_79B9_7F4A_7C15
            var mixed = state
            mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
            mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
            return mixed ^ (mixed >> 31)
        }
    }

    private struct Walk {
        struct Held {
            let session: Int
            let shard: ClaimedShard
            var rest: [Delivery]
        }

        let fixture: StorageFixture
        let pushID: String
        var random: Random
        var sessions: [Int] = []
        var held: [Held] = []
        var open: [(session: Int, delivery: Delivery)] = []
        var deleted = 0

        var database: PushDatabase { fixture.database }

        mutating func step() async throws {
            switch Int.random(in: 0..<12, using: &random) {
            case 0 where sessions.count < 3:
                sessions.append(try await database.sessions.open(name: "walker"))
            case 1...3: try await claim()
            case 4...7: try await checkpoint()
            case 8: try await settle()
            case 9: try await crash()
            case 10: try await release()
            default: try await delete()
            }
        }

        private mutating func claim() async throws {
            guard let session = sessions.randomElement(using: &random) else { return }
            for shard in try await fixture.claim(session, limit: 2) {
                let rest = try await fixture.members(of: shard)
                held.append(Held(session: session, shard: shard, rest: rest))
            }
        }

        private mutating func checkpoint(all: Bool = false) async throws {
            guard let index = held.indices.randomElement(using: &random) else { return }
            var item = held[index]
            let count = all ? item.rest.count : Int.random(in: 0...item.rest.count, using: &random)
            let taken = item.rest.prefix(count)
            item.rest.removeFirst(count)
            var records: [DeliveryRecord] = []
            for delivery in taken {
                switch Int.random(in: 0..<6, using: &random) {
                case 0:
                    open.append((item.session, delivery))
                    records.append(inFlight(delivery))
                case 1:
                    records.append(retried(delivery))
                default:
                    let outcome = Outcome.allCases.randomElement(using: &random) ?? .failed
                    records.append(ended(delivery, outcome))
                }
            }
            let isFinished = item.rest.isEmpty
            let standing = try await database.ledger.checkpoint(
                session: item.session,
                item.shard,
                ShardCheckpoint(
                    cursor: taken.last?.target,
                    records: records.shuffled(using: &random),
                    isFinished: isFinished
                )
            )
            if isFinished || standing == .cancelled {
                try await database.shards.release(
                    session: item.session,
                    [item.shard],
                    dueAt: nil
                )
                held.remove(at: index)
            } else {
                held[index] = item
            }
        }

        private mutating func settle() async throws {
            for (session, delivery) in open {
                _ = try await database.ledger.record(session: session, [delivered(delivery)])
            }
            open = []
            guard let session = sessions.randomElement(using: &random) else { return }
            let due = try await database.due.claim(session: session, lane: 1, limit: 3)
            _ = try await database.ledger.record(session: session, due.map(delivered))
        }

        private mutating func crash() async throws {
            guard let session = sessions.randomElement(using: &random) else { return }
            try await fixture.kill(session)
            for item in held where item.session == session {
                await #expect(throws: StorageError.self) {
                    try await fixture.record(
                        item.rest,
                        of: item.shard,
                        session: session,
                        isFinished: true
                    )
                }
            }
            sessions.removeAll { $0 == session }
            held.removeAll { $0.session == session }
            open.removeAll { $0.session == session }
        }

        private mutating func release() async throws {
            guard let index = held.indices.randomElement(using: &random) else { return }
            let item = held.remove(at: index)
            try await database.shards.release(session: item.session, [item.shard], dueAt: nil)
        }

        private mutating func delete() async throws {
            deleted += 1
            guard deleted < 8 else { return }
            let number = Int.random(in: 0..<60, using: &random)
            _ = try await database.installations.delete(
                app: StorageFixture.app,
                objectIDs: [fixture.objectID(number)]
            )
        }

        mutating func finish() async throws {
            sessions.append(try await database.sessions.open(name: "last"))
            while true {
                try await claim()
                if held.isEmpty { break }
                while !held.isEmpty { try await checkpoint(all: true) }
            }
            try await settle()
            while true {
                let before = try await fixture.balancedLedger(of: pushID)
                if before.isSettled { return }
                try await settle()
                let after = try await fixture.balancedLedger(of: pushID)
                try #require(after.pending < before.pending, "deliveries are nobody's")
            }
        }
    }
}
