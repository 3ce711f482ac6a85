import EventLoop
import JSON
import PushCore
import PushStorage
import Storage
import Support
import Testing

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct CancelTests {
    @Test("A cancelled broadcast stops at once, deliveries in flight end normally, and it balances")
    func cancelsABroadcast() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<30)
            let push = try await fixture.broadcast("stop", shardSize: 10)
            let session = try await database.sessions.open(name: "replica")
            let (told, tell) = AsyncStream.makeStream(of: String.self)
            try await database.onNotification(.cancelled) { tell.yield($0) }
            let shard = try #require(try await fixture.claim(session, limit: 1).first)
            let members = try await fixture.members(of: shard)
            let postponed = retried(members[1], until: .now())
            _ = try await database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(
                    cursor: members[2].target,
                    records: [
                        delivered(members[0]),
                        postponed,
                        inFlight(members[2]),
                    ],
                    isFinished: false
                )
            )
            let cancelled = try #require(try await database.pushes.cancel(push.id))
            #expect(cancelled.status == .cancelled)
            // The ledger counts it as suppressed once its outcome is on `push.outcomes`.
            #expect(cancelled.ledger.suppressed == 0)
            #expect(cancelled.ledger.pending == 29)
            _ = try await fixture.balancedLedger(of: push.id)
            for await payload in told where payload == push.id { break }
            let again = try await database.pushes.cancel(push.id)
            #expect(again?.ledger == cancelled.ledger)

            // Sent deliveries are recorded, and a retry is not made.
            let retry = retried(members[4], until: Instant.now().adding(milliseconds: 3_600_000))
            let standing = try await database.ledger.checkpoint(
                session: session,
                shard,
                ShardCheckpoint(
                    cursor: members[5].target,
                    records: [
                        delivered(members[3]),
                        retry,
                        inFlight(members[5]),
                    ],
                    isFinished: false
                )
            )
            #expect(standing == .cancelled)
            var ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.targeted == 30)
            #expect(ledger.delivered == 2)
            #expect(ledger.suppressed == 0)
            #expect(ledger.pending == 28)
            let open = [members[2], members[5]]
            _ = try await database.ledger.record(session: session, open.map(delivered))
            ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 4)
            #expect(
                try await fixture.record(
                    [members[6]],
                    of: shard,
                    session: session,
                    isFinished: false
                ) == .cancelled
            )
            try await database.shards.release(session: session, [shard], dueAt: nil)
            // Each of the others is read and reported.
            #expect(try await fixture.suppressRest() == 25)
            ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 5)
            #expect(ledger.suppressed == 25)
            #expect(ledger.isSettled)
            #expect(try await fixture.rowCount(of: push.id) == 30)
            #expect(try await fixture.claim(session).isEmpty)
            #expect(try await database.shards.nextDue() == nil)
            #expect(try await database.pushes.find(push.id)?.status == .cancelled)
        }
    }

    @Test("A push can be cancelled when queued, in planning, with rows, or finished")
    func cancelsInAnyState() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            #expect(try await database.pushes.cancel("no id") == nil)
            let queued = try fixture.push("queued", [:])
            _ = try await database.pushes.accept(
                queued,
                record: OutgoingRecord(topic: "t", key: nil, value: [])
            )
            #expect(try await database.pushes.cancel(queued.id)?.status == .cancelled)
            let session = try await database.sessions.open(name: "replica")
            let ignored = try await database.intake.plan(session: session, [queued])
            #expect(ignored.newPushIDs.isEmpty)

            try await fixture.populate(0..<30)
            let planning = try fixture.push("planning", [:])
            _ = try await database.intake.plan(session: session, [planning])
            _ = try await database.planning.claim(session: session)
            _ = try await database.planning.planPage(
                session: session,
                pushID: planning.id,
                shardSize: 2
            )
            #expect(try await database.pushes.cancel(planning.id)?.ledger.pending == 20)
            await #expect(throws: StorageError.self) {
                try await database.planning.planPage(
                    session: session,
                    pushID: planning.id,
                    shardSize: 2
                )
            }
            #expect(try await fixture.suppressRest() == 20)
            #expect(try await fixture.balancedLedger(of: planning.id).suppressed == 20)

            // Some rows have no owner, some are claimed by a dispatcher, and released later.
            let rows = try fixture.push("rows", [:])
            _ = try await database.intake.plan(session: session, [rows])
            _ = try await database.planning.claim(session: session)
            _ = try await database.planning.planPage(session: session, pushID: rows.id)
            let owned = try await database.due.claim(session: session, lane: 1, limit: 3)
            // Rows that wait for a retry need not wait any longer.
            _ = try await fixture.server.query(
                "update deliveries set due_at = now() + interval '1 h' where owner is null"
            )
            #expect(try await database.pushes.cancel(rows.id)?.ledger.pending == 30)
            // A delivery that was in flight is released, and has nothing to wait for any more.
            let later = Instant.now().adding(milliseconds: 3_600_000)
            let back = owned.map {
                retried($0, until: later, attempts: 0)
            }
            #expect(try await database.ledger.record(session: session, back).count == 3)
            #expect(try await fixture.suppressRest() == 30)
            #expect(try await fixture.balancedLedger(of: rows.id).suppressed == 30)
            let states = try await database.deliveries.states(pushID: rows.id)
            #expect(states.filter { $0.reason == "cancelled" }.count == 30)

            let over = try await fixture.broadcast("over", ["channels": ["x"]], shardSize: 2)
            #expect(try await database.pushes.cancel(over.id)?.status == .done)
        }
    }

    @Test("A shard of a cancelled push that cannot be read ends, and the books balance")
    func unreadable() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<30)
            let push = try await fixture.broadcast("unreadable", shardSize: 10)
            _ = try await database.pushes.cancel(push.id)
            let session = try await database.sessions.open(name: "replica")
            let shards = try await fixture.claim(session)
            for shard in shards { try await database.ledger.endUnread(session: session, shard) }
            #expect(try await fixture.balancedLedger(of: push.id).suppressed == 30)
            let first = try #require(shards.first)
            await #expect(throws: StorageError.self) {
                try await database.ledger.endUnread(session: session, first)
            }
        }
    }

    @Test("Shards planned for later while their push is cancelled are due at once")
    func cancelMeetsPlanning() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<30)
            let push = try await fixture.broadcast("while-planned", shardSize: 10)
            // The planner of a device-local push leaves them like this; then the time goes back.
            _ = try await fixture.server.query(
                """
                update shards set due_at = now() + interval '5 h';
                create table planned as select * from shards;
                delete from shards;
                update pushes set status = 'planning', targeted = 0, pending = 0, open_shards = 0
                """
            )
            let server = fixture.server
            // The last page's transaction: it locks the push, cancelling waits for it, and it
            // commits.
            async let page = server.query(
                """
                begin;
                select 1 from pushes for update;
                do $$ begin
                    while not exists (select from pg_locks l
                        where not l.granted and pg_backend_pid() = any (pg_blocking_pids(l.pid)))
                    loop perform pg_sleep(0.01); end loop;
                end $$;
                insert into shards select * from planned;
                update pushes set status = 'sending', targeted = 30, pending = 30, open_shards = 3;
                commit
                """
            )
            _ = try await eventually("the page holds the push") {
                try await server.query(
                    """
                    select 1 from pg_stat_activity where query like 'begin;%'
                    and datname = current_database() and wait_event = 'PgSleep'
                    """
                ).isEmpty ? nil : true
            }
            let cancelled = try await database.pushes.cancel(push.id)
            _ = try await page
            #expect(cancelled?.status == .cancelled)
            #expect(try await fixture.suppressRest() == 30)
            #expect(try await fixture.balancedLedger(of: push.id).suppressed == 30)
        }
    }

    @Test("A shard that is recorded while its push is cancelled ends with it")
    func cancelMeetsCheckpoints() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<400)
            for round in 0..<5 {
                let push = try await fixture.broadcast("race-\(round)", shardSize: 40)
                let session = try await database.sessions.open(name: "replica")
                let shards = try await fixture.claim(session)
                #expect(shards.count == 10)
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for shard in shards {
                        group.addTask {
                            var rest = try await fixture.members(of: shard, by: 100)[...]
                            while !rest.isEmpty {
                                let some = rest.prefix(4)
                                rest = rest.dropFirst(4)
                                let standing = try await fixture.record(
                                    some,
                                    of: shard,
                                    session: session,
                                    isFinished: rest.isEmpty
                                )
                                if standing == .cancelled { break }
                            }
                        }
                    }
                    group.addTask {
                        _ = try await eventually("some records") {
                            try await fixture.rowCount(of: push.id) > 8 ? true : nil
                        }
                        _ = try await database.pushes.cancel(push.id)
                    }
                    try await group.waitForAll()
                }
                try await database.shards.release(session: session, shards, dueAt: nil)
                try await fixture.suppressRest()
                let ledger = try await fixture.balancedLedger(of: push.id)
                #expect(ledger.isSettled)
                #expect(ledger.targeted == 400)
                #expect(try await fixture.claim(session).isEmpty)
                try await database.sessions.close(session)
            }
        }
    }
}
