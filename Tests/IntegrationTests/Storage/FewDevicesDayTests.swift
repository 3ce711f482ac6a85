import JSON
import Postgres
import PushCore
import Support
import Testing

@testable import PushStorage
@testable import Storage
@testable import StorageAdmin

@Suite("Days of events for few devices", .timeLimit(.minutes(3)))
struct FewDevicesDayTests {
    private static let day: Int64 = 86_400_000

    private func look(_ push: NewPush, _ database: PushDatabase) async throws -> LookedUpPush? {
        try await database.fewDevices.lookUp([push]).first
    }

    private func isKnown(_ push: NewPush, _ database: PushDatabase) async throws -> Bool {
        if case .known? = try await look(push, database) { return true }
        return false
    }

    /// Makes a push that was looked up at this moment, and delivered.
    private func sent(
        _ push: NewPush,
        at time: Instant,
        _ database: PushDatabase
    ) async throws -> SentPush? {
        guard case .new(let deliveries, _, let hasRow)? = try await look(push, database) else {
            return nil
        }
        return SentPush(
            push: push,
            createdAt: time,
            hasRow: hasRow,
            deliveries: deliveries.map { delivered($0) }
        )
    }

    /// Returns the partitions of a table with their first day and the one after their last.
    private func partitions(_ table: String, _ fixture: StorageFixture) async throws -> [String] {
        try await fixture.server.query(
            """
            select c.relname || ' ' || m[1] || ' ' || m[2] from pg_inherits i
                join pg_class c on c.oid = i.inhrelid cross join lateral
                regexp_match(pg_get_expr(c.relpartbound, c.oid), '\\(''(.+)''\\) TO \\(''(.+)''\\)') m
            where i.inhparent = '\(table)'::regclass and m is not null order by 1
            """
        )
    }

    @Test("An event that is looked up on both sides of a partition's midnight is one push")
    func bothSides() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let now = Instant.now()
            // The week that this makes ends with today.
            for back: Int64 in [5, 0] {
                _ = try await database.maintenance.maintain(
                    now: now.adding(milliseconds: -back * Self.day)
                )
            }
            let tomorrow = now.adding(milliseconds: Self.day)
            let midnight = try #require(Instant(iso8601: tomorrow.day + "T00:00:00Z"))
            let sides = [midnight.adding(milliseconds: -1), midnight.adding(milliseconds: 100)]
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            for (number, order) in [sides, sides.reversed()].enumerated() {
                let push = try fixture.push(
                    "e\(number)",
                    ["installations": [.string(phone.objectID)]]
                )
                let copies = [
                    try #require(try await sent(push, at: order[0], database)),
                    try #require(try await sent(push, at: order[1], database)),
                ]
                let written = [
                    try await database.fewDevices.write(session: session, [copies[0]]),
                    try await database.fewDevices.write(session: session, [copies[1]]),
                ]
                #expect(written[0].ids == [push.id] && written[1].ids.isEmpty)
                #expect(try await fixture.balancedLedger(of: push.id).delivered == 1)
            }
            #expect(
                try await fixture.server.query(
                    "select count(*), count(distinct tableoid) from event_pushes"
                ) == ["2|2"],
                "the midnight parts two partitions"
            )
        }
    }

    @Test("An event is found also if this machine and Postgres differ in the date")
    func retention() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let now = Instant.now()
            for back: Int64 in [9, 6, 3, 0] {
                _ = try await database.maintenance.maintain(
                    now: now.adding(milliseconds: -back * Self.day),
                    retention: Retention(deliveryDays: 20)
                )
            }
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("e", ["installations": [.string(phone.objectID)]])
            let whole = try #require(try await sent(push, at: now, database))
            _ = try await database.fewDevices.write(session: session, [whole])
            _ = try await fixture.server.query("update event_pushes set day = day - 7")
            #expect(try await isKnown(push, database), "for as many days as events are kept")
            _ = try await fixture.server.query("update event_pushes set day = day + 8")
            #expect(try await isKnown(push, database), "from a clock that was ahead")
            _ = try await fixture.server.query("update event_pushes set day = day - 11")
            let short = Retention(deliveryDays: 1, eventKeys: .seconds(86_400))
            guard case .new? = try await database.fewDevices.lookUp([push], short).first else {
                Issue.record("it is not looked for beyond that")
                return
            }
        }
    }

    @Test(
        "A partition that was empty when its statements were planned is read by index once full"
    )
    func growing() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let now = Instant.now()
            for back: Int64 in [6, 0] {
                _ = try await database.maintenance.maintain(
                    now: now.adding(milliseconds: -back * Self.day)
                )
            }
            // Its statistics say that it is empty.
            _ = try await fixture.server.query("vacuum analyze")
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("e", ["installations": [.string(phone.objectID)]])
            let whole = try #require(try await sent(push, at: now, database))
            _ = try await database.fewDevices.write(session: session, [whole])
            _ = try await fixture.server.query(
                """
                insert into event_pushes (id, day, app, event_source, event_id, request, is_sandbox,
                    deliveries, created_at, finished_at)
                select gen_random_uuid(), now()::date - n % 2, 'shop', 's', 'e', '{}', false, '[]', now(),
                    now()
                from generate_series(1, 300000) n
                """
            )
            let fast = database.fewDevices.database
            // One connection has planned the look-ups, another the writes.
            let lookUp = try await fast.execute(Self.prepared("%now() AS now%"))
            let look = try await fast.execute(
                "EXPLAIN EXECUTE \(try lookUp.first?.text("name") ?? "")('{}')"
            )
            let write = try await fast.transaction { transaction in
                let found = try await transaction.execute(
                    Self.prepared("%INTO event_pushes%")
                ).first
                let name = try found?.text("name") ?? ""
                return try await transaction.execute(
                    "EXPLAIN EXECUTE \(name)('{}','{}','{}','{}','{}','{}','{}','{}',1,'{}',now())"
                )
            }
            for plan in [look, write] {
                let text = try plan.rows.map { try $0.text("QUERY PLAN") }.joined(separator: "\n")
                #expect(
                    !text.contains("erased_names") || text.contains("erased_names_at"),
                    "\(text)"
                )
                let lines = text.split(separator: "\n")
                let scans = lines.indices.filter {
                    lines[$0].contains("Scan") && lines[$0].contains(" on event_pushes_")
                }
                #expect(!scans.isEmpty, "\(text)")
                for scan in scans {
                    let condition = lines[scan + 1]
                    #expect(
                        condition.contains("Index Cond: ") && condition.contains("(id = "),
                        "\(text)"
                    )
                }
            }
        }
    }

    private static func prepared(_ pattern: String) -> String {
        """
        SELECT name FROM pg_prepared_statements
        WHERE statement LIKE '\(pattern)' AND statement NOT LIKE '%pg_prepared%'
        """
    }

    @Test(
        "Promise 12: weeks of events come after the existing days, and are dropped by their last day"
    )
    func weeks() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let now = Instant.now()
            func day(_ offset: Int64) -> String { now.adding(milliseconds: offset * Self.day).day }
            func name(_ offset: Int64) -> String {
                "event_pushes_" + day(offset).replacing("-", with: "")
            }
            // The version before made a partition a day, up to three ahead.
            for offset: Int64 in -1...3 {
                _ = try await fixture.server.query(
                    """
                    create table \(name(offset)) partition of event_pushes
                        for values from ('\(day(offset))') to ('\(day(offset + 1))')
                    """
                )
            }
            var report = try await database.maintenance.maintain(now: now)
            #expect(report.partitionsCreated == 2 * 5, "of the other tables")
            let tomorrow = now.adding(milliseconds: Self.day)
            report = try await database.maintenance.maintain(now: tomorrow)
            #expect(report.partitionsCreated == 3)
            #expect(
                try await partitions("event_pushes", fixture).last
                    == "\(name(10)) \(day(4)) \(day(11))"
            )
            // A day that has rows in the default partition ends the week before it.
            _ = try await fixture.server.query(
                """
                insert into event_pushes (id, day, app, event_source, event_id, request, is_sandbox,
                    deliveries, created_at, finished_at)
                values (gen_random_uuid(), '\(day(13))', 'shop', 's', 'e', '{}', false, '[]', now(), now())
                """
            )
            for offset: Int64 in [8, 9, 10, 11] {
                _ = try await database.maintenance.maintain(
                    now: now.adding(milliseconds: offset * Self.day)
                )
            }
            #expect(
                try await partitions("event_pushes", fixture)
                    == [
                        "\(name(10)) \(day(4)) \(day(11))", "\(name(12)) \(day(11)) \(day(13))",
                        "\(name(20)) \(day(14)) \(day(21))",
                    ].sorted()
            )
            // The last day of the first week is retained for a week, and then dropped.
            for (offset, isThere) in [(17, true), (18, false)] as [(Int64, Bool)] {
                _ = try await database.maintenance.maintain(
                    now: now.adding(milliseconds: offset * Self.day)
                )
                let there = try await fixture.server.query(
                    "select to_regclass('\(name(10))') is not null"
                )
                #expect(there == [isThere ? "t" : "f"])
            }
        }
    }
}
