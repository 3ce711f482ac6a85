import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage
import Support
import Testing

@Suite(
    .timeLimit(.minutes(5)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ConditionAudienceTests {
    /// Returns the members of a push by its shards, in order.
    private func members(of pushID: String, in fixture: StorageFixture) async throws -> [String] {
        try await fixture.server.query(
            """
            SELECT m FROM shards s CROSS JOIN LATERAL unnest(s.members) AS m
            WHERE s.push_id = '\(pushID)' ORDER BY s.shard
            """
        )
    }

    @Test("Promise 3: the devices that meet a condition are chosen once, until the push is sent")
    func membersAreFixed() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("other")
            try await fixture.populate(0..<45)
            try await fixture.populate(0..<45, app: "other")
            _ = try await fixture.server.query(
                """
                UPDATE installations SET fields = jsonb_build_object('n', right(object_id, 2)::int)
                """
            )
            let condition: JSONObject = [
                "where": ["n": ["$gte": 10, "$lt": 40], "badge": 0],
                "data": ["alert": "x", "badge": "Increment"],
            ]
            let push = try await fixture.broadcast("fixed", condition, shardSize: 4)
            let expected = (10..<40).map { fixture.objectID($0) }
            #expect(try await members(of: push.id, in: fixture) == expected)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 30)
            let session = try await fixture.database.sessions.open(name: "sender")
            let shards = try await fixture.claim(session).sorted { $0.shard < $1.shard }
            #expect(shards.allSatisfy { $0.expected <= 4 })

            // The push itself changes a field of its condition, and so do clients; one device is
            // deleted, one mutes itself.
            let first = try #require(shards.first)
            let page = try await fixture.database.shards.page(first, after: nil, limit: 2)
            #expect(page.members.map(\.target) == Array(expected.prefix(2)))
            let prepared = try await fixture.database.shards.prepare(
                session: session,
                first,
                page
            )
            #expect(prepared.members.map(\.badge) == [1, 1])
            _ = try await fixture.server.query(
                """
                UPDATE installations SET fields = '{"n": 0}';
                UPDATE installations SET fields = '{"n": 20}' WHERE right(object_id, 2) = '05';
                DELETE FROM installations WHERE object_id = '\(fixture.objectID(39))';
                UPDATE installations SET valid = false WHERE object_id = '\(fixture.objectID(20))'
                """
            )
            var seen: [String] = []
            for shard in shards {
                let members = try await fixture.members(of: shard)
                seen += members.map(\.target)
                try await fixture.record(members, of: shard, session: session, isFinished: true)
                _ = try await fixture.balancedLedger(of: push.id)
            }
            let left = expected.filter { $0 != fixture.objectID(39) && $0 != fixture.objectID(20) }
            #expect(seen == left)
            let record = try #require(try await fixture.database.pushes.find(push.id))
            #expect(record.status == .done)
            #expect(record.ledger.delivered == 28 && record.ledger.targeted == 28)
            // The rows of the members are deleted with it.
            #expect(try await members(of: push.id, in: fixture).isEmpty)
        }
    }

    @Test("A page reads a bounded number of rows, and a condition with an index needs one query")
    func pagesAreBounded() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.populate(0..<20_000)
            _ = try await fixture.server.query(
                """
                UPDATE installations SET fields = jsonb_build_object('n', right(object_id, 5)::int,
                    'city', 'city' || right(object_id, 4))
                """
            )
            _ = try await fixture.server.query("vacuum analyze installations")
            let database = fixture.database
            for (id, condition, inserted, pages) in [
                ("city", #"{"city": "city0777"}"#, 2, 1), ("few", #"{"n": {"$lt": 5}}"#, 5, 4),
                ("none", #"{"n": {"$lt": 0}}"#, 0, 4), ("all", #"{"n": {"$gte": 0}}"#, 20_000, 4),
            ] {
                let push = try fixture.push(id, ["where": try JSONValue.parse(condition)])
                let session = try await database.sessions.open(name: id)
                _ = try await database.intake.plan(session: session, [push])
                _ = try await database.planning.claim(session: session)
                var (total, count, isFinished) = (0, 0, false)
                while !isFinished {
                    let page = try await database.planning.planPage(
                        session: session,
                        pushID: push.id,
                        shardSize: 600
                    )
                    (total, count, isFinished) = (total + page.inserted, count + 1, page.isFinished)
                    #expect(page.inserted <= 6000)
                }
                #expect(total == inserted, "\(id)")
                #expect(count == pages, "\(id)")
                let stored = try #require(try await database.pushes.find(push.id))
                #expect(stored.status == (inserted == 0 ? .done : .sending))
                #expect(try await members(of: push.id, in: fixture).count == inserted)
            }
        }
    }

    @Test("All members of an app are read, even without database statistics for it")
    func newAppsAreReadWhole() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("other")
            try await fixture.populate(0..<5000, app: "other")
            _ = try await fixture.server.query("ANALYZE installations")
            try await fixture.populate(0..<3000)
            _ = try await fixture.server.query(
                """
                UPDATE installations SET updated_at = now() - random() * interval '50 days'
                WHERE app = '\(StorageFixture.app)'
                """
            )
            _ = try await fixture.broadcast(
                "all",
                ["where": ["badge": ["$gte": 0]]],
                shardSize: 10_000
            )
            let session = try await fixture.database.sessions.open(name: "sender")
            let shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard, by: 500)
            #expect(members.map(\.target) == (0..<3000).map { fixture.objectID($0) })
        }
    }

    @Test("After a page that took too long, every page reads only a part of the app")
    func carefulPagesAreBounded() async throws {
        try await StorageFixture.run { fixture in
            // One in ten is on the channel.
            _ = try await fixture.server.query(
                """
                INSERT INTO installations (app, object_id, device_type, provider, token, token_hash,
                    channels, time_zone, token_updated_at)
                SELECT '\(StorageFixture.app)', lpad(g::text, 24, '0'), 'ios', 'apns', 't' || g,
                    sha256(convert_to('t' || g, 'UTF8')),
                    CASE WHEN g % 10 = 0 THEN '{rare}'::text[] ELSE '{}' END,
                    CASE WHEN g % 20 = 0 THEN 'Asia/Tokyo' END, now() - interval '1 minute'
                FROM generate_series(1, 4200) AS g
                """
            )
            let database = fixture.database
            for (name, isLocal) in [("plain", false), ("local", true)] {
                var object: JSONObject = ["channels": ["rare"]]
                if isLocal {
                    let time = Instant.now().adding(milliseconds: 3_600_000)
                    object["push_time"] = .string(time.localText)
                }
                let push = try fixture.push(name, object)
                let session = try await database.sessions.open(name: name)
                _ = try await database.intake.plan(session: session, [push])
                _ = try await fixture.server.query(
                    "UPDATE pushes SET release_at = now() WHERE id = '\(push.id)' AND is_waiting"
                )
                if isLocal { _ = try await database.schedules.release(session: session) }
                let claimed = try await database.planning.claim(session: session)
                #expect(claimed?.id == push.id)
                var pages: [Int] = []
                var isFinished = false
                while !isFinished {
                    let page = try await database.planning.planPage(
                        session: session,
                        pushID: push.id,
                        // Otherwise this few would be found by their channel.
                        shardSize: 50,
                        pageSize: 2000
                    )
                    (isFinished, pages) = (page.isFinished, pages + [page.inserted])
                }
                #expect(pages == [200, 200, 20], "\(name)")
                #expect(try await fixture.balancedLedger(of: push.id).targeted == 420, "\(name)")
            }
        }
    }

    @Test("Pushes with a condition are planned separately, so that others do not wait for them")
    func conditionsArePlannedApart() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.populate(0..<3)
            let database = fixture.database
            let session = try await database.sessions.open(name: "planner")
            var ids: [String] = []
            for (name, object) in [
                ("where", ["where": ["n": 1]]),
                ("cql", ["cql": "select * from _Installation where n = 1"]),
                ("tags", ["tags": "news || !news"]),
                ("channel", ["channels": ["news"]]),
                ("both", ["channels": ["news", "late"], "data": ["alert": "Where are you?"]]),
            ] as [(String, JSONObject)] {
                let push = try fixture.push(name, object)
                _ = try await database.intake.plan(session: session, [push])
                ids.append(push.id)
            }
            func claimed(_ kind: AudienceKind?) async throws -> Set<String> {
                var claimed: Set<String> = []
                while let push = try await database.planning.claim(
                    kind,
                    session: session
                ) {
                    claimed.insert(push.id)
                }
                return claimed
            }
            #expect(try await claimed(.plain) == Set(ids[3...]))
            #expect(try await claimed(.conditional) == Set(ids[..<3]))
            #expect(try await claimed(nil).isEmpty)
        }
    }

    @Test("Named devices are narrowed by a condition, and by tags")
    func directSelectorsAreNarrowed() async throws {
        try await StorageFixture.run { fixture in
            var ids: [JSONValue] = []
            for index in 0..<12 {
                var object = fixture.iPhone("token\(index)")
                object["owner"] = [
                    "__type": "Pointer", "className": "_User",
                    "objectId": .string("user-\(index % 3)"),
                ]
                object["n"] = .integer(Int64(index))
                object["channels"] = index % 2 == 0 ? ["even"] : ["odd", "late"]
                ids.append(.string(try await fixture.install(object).objectID))
            }
            let database = fixture.database
            let session = try await database.sessions.open(name: "planner")
            for (name, object, count) in [
                ("identities", ["identities": ["user-0", "user-1"]], 8),
                (
                    "and where", ["identities": ["user-0", "user-1"], "where": ["n": ["$gt": 5]]], 4
                ),
                ("and tags", ["identities": ["user-0", "user-1"], "tags": "even"], 4),
                (
                    "all four",
                    [
                        "identities": ["user-0", "user-1"], "where": ["n": ["$gt": 5]],
                        "tags": "odd && !even", "installations": .array(Array(ids.dropFirst(8))),
                    ], 1
                ),
                ("installations", ["installations": .array(ids), "where": ["n": 3]], 1),
                ("nobody", ["installations": .array(ids), "where": ["n": ["$in": []]]], 0),
                ("a list of conditions", ["where": [["n": ["$gt": 2]], ["n": ["$lt": 5]]]], 2),
                ("channels", ["channels": ["late"], "where": ["n": ["$gt": 6]]], 3),
                ("empty", ["where": [:], "channels": ["late"]], 6),
            ] as [(String, JSONObject, Int)] {
                let push = try fixture.push(name, object)
                let plan = try await database.intake.plan(session: session, [push])
                if plan.planningPushIDs.contains(push.id) {
                    _ = try await database.planning.claim(session: session)
                    while try await !database.planning.planPage(
                        session: session,
                        pushID: push.id,
                        limit: 3,
                        shardSize: 2
                    ).isFinished {}
                }
                let ledger = try await fixture.balancedLedger(of: push.id)
                #expect(ledger.targeted == count, "\(name)")
                // A dry run counts the same.
                var rehearsed = object
                rehearsed["dry_run"] = true
                let rehearsal = try fixture.push("dry \(name)", rehearsed)
                _ = try await database.intake.plan(session: session, [rehearsal])
                let claimed = try await database.planning.claim(session: session)
                let counted = try await database.planning.countAudience(try #require(claimed))
                #expect(counted.values.reduce(0, +) == count, "\(name)")
            }
        }
    }

    @Test("With a condition and a device-local time, each zone gets the push once")
    func zonesAreKept() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.populate(0..<10, zone: "Asia/Tokyo")
            try await fixture.populate(10..<20, zone: "America/New_York")
            try await fixture.populate(20..<30)
            _ = try await fixture.server.query(
                "UPDATE installations SET fields = jsonb_build_object('n', right(object_id, 2)::int)"
            )
            let push = try fixture.push(
                "local",
                [
                    "where": ["n": ["$gte": 5, "$lt": 25]],
                    "push_time": .string(Instant.now().adding(milliseconds: 3_600_000).localText),
                ]
            )
            let database = fixture.database
            let session = try await database.sessions.open(name: "planner")
            _ = try await database.intake.plan(session: session, [push])
            _ = try await fixture.server.query(
                "UPDATE pushes SET release_at = now() WHERE id = '\(push.id)'"
            )
            _ = try await database.schedules.release(session: session)
            _ = try await database.planning.claim(session: session)
            while try await !database.planning.planPage(
                session: session,
                pushID: push.id,
                shardSize: 4
            ).isFinished {}
            #expect(try await fixture.balancedLedger(of: push.id).targeted == 20)
            let zones = try await fixture.server.query(
                """
                SELECT count(DISTINCT s.due_at), count(DISTINCT m) FROM shards s
                CROSS JOIN LATERAL unnest(s.members) AS m WHERE s.push_id = '\(push.id)'
                """
            )
            #expect(zones == ["3|20"])
        }
    }

    @Test("A range of a custom field is found by the index that an operator created")
    func rangesUseTheirIndex() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("other")
            _ = try await fixture.server.query(
                """
                insert into installations (app, object_id, device_type, fields)
                select case i % 2 when 0 then 'shop' else 'other' end, lpad(to_hex(i), 24, '0'), 'ios',
                    jsonb_build_object('age', case when i % 1000 = 0 then to_jsonb(array[i, -i])
                            else to_jsonb(i) end, 'name', 'name' || lpad(i::text, 6, '0'),
                        'seen', jsonb_build_object('__type', 'Date', 'iso', to_char(
                            '2024-01-01Z'::timestamptz + i * interval '1 minute',
                            'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')), 'o', jsonb_build_object('x', i * 0.5))
                from generate_series(1, 20000) i
                """
            )
            _ = try await fixture.server.query("vacuum analyze installations")
            let store = fixture.database.installations
            let indexes = fixture.database.fieldIndexes
            let ranges: [(path: String, FieldIndex.ValueType, condition: String)] = [
                ("age", .number, #"{"age": {"$gt": 19990}}"#),
                ("age", .number, #"{"age": {"$gte": 100, "$lte": 110.5}}"#),
                ("age", .number, #"{"age": {"$lt": -19990}}"#),
                ("o.x", .number, #"{"o.x": {"$lt": 10}}"#),
                (
                    "seen", .date,
                    #"{"seen": {"$lt": {"__type": "Date", "iso": "2024-01-01T00:20:00Z"}}}"#
                ),
                ("name", .text, #"{"name": {"$gte": "name019990"}}"#),
                ("name", .text, #"{"name": {"$regex": "^\\Qname00001\\E"}}"#),
            ]
            var before: [Int] = []
            for (_, _, text) in ranges {
                let condition = try Where.parse(try JSONValue.parse(text))
                let found = try await store.explain(
                    app: "shop",
                    PushRequest.Selectors(condition: condition)
                )
                #expect(found.plan.indexes.allSatisfy { !$0.contains("field_") })
                before.append(found.selected)
            }
            #expect(before.allSatisfy { (1...50).contains($0) }, "\(before)")
            for (path, type, _) in ranges {
                let index = FieldIndex(app: "shop", path: try WherePath(path), type: type)
                let isNew = try await !indexes.list(app: "shop").contains { $0.index == index }
                #expect(try await indexes.create(index) == isNew)
            }
            let listed = try await indexes.list(app: "shop")
            #expect(listed.map(\.index.path.text) == ["seen", "age", "o.x", "name"])
            #expect(listed.allSatisfy { $0.isUsable && $0.sizeBytes > 0 })
            #expect(try await indexes.list(app: "other").isEmpty)
            for (place, (_, _, text)) in ranges.enumerated() {
                let condition = try Where.parse(try JSONValue.parse(text))
                let found = try await store.explain(
                    app: "shop",
                    PushRequest.Selectors(condition: condition)
                )
                #expect(
                    found.plan.indexes.contains { $0.hasPrefix("installations_field_") }
                        && found.plan.scannedTables.isEmpty,
                    "\(text): \(found.steps.joined(separator: "\n"))"
                )
                #expect(found.selected == before[place], "\(text)")
            }
            // A string too long for any index is stored all the same.
            _ = try await fixture.server.query(
                """
                update installations set fields = fields || jsonb_build_object('name',
                    (select string_agg(md5(g::text), '') from generate_series(1, 300) g))
                where object_id = lpad('2', 24, '0')
                """
            )
            // An index whose build was interrupted is not usable, and a new request rebuilds it.
            _ = try await fixture.server.query(
                """
                UPDATE pg_index SET indisvalid = false WHERE indexrelid IN (
                    SELECT objoid FROM pg_description WHERE description LIKE '%number age')
                """
            )
            #expect(try await indexes.list(app: "shop").first { !$0.isUsable } != nil)
            let age = FieldIndex(app: "shop", path: try WherePath("age"), type: .number)
            #expect(try await indexes.create(age))
            #expect(try await indexes.list(app: "shop").allSatisfy(\.isUsable))
            #expect(try await indexes.drop(age))
            #expect(try await !indexes.drop(age))
            #expect(try await indexes.list(app: "shop").count == 3)
            // A field with a column of its own needs no index.
            #expect(FieldIndex.problem(try WherePath("badge")) != nil)
            #expect(FieldIndex.problem(try WherePath("o.a'b")) != nil)
        }
    }

    @Test("An index whose creator vanished before its end is finished at the next request")
    func cutShortIndexesAreFinished() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.populate(0..<100)
            let server = fixture.server
            _ = try await server.query(
                "UPDATE installations SET fields = jsonb_build_object('n', right(object_id, 2)::int)"
            )
            let indexes = fixture.database.fieldIndexes
            let index = FieldIndex(app: "shop", path: try WherePath("n"), type: .number)
            #expect(try await indexes.create(index))
            #expect(try await !indexes.create(index))
            let names = try await server.query(
                """
                SELECT objoid::regclass::text FROM pg_description
                WHERE description LIKE 'carillon field %'
                """
            )
            #expect(names.count == 2)
            for name in names {
                // The index is built, but not marked.
                _ = try await server.query("COMMENT ON INDEX \(name) IS NULL")
                _ = try await server.query("DROP STATISTICS IF EXISTS \(name)_s")
                #expect(try await indexes.list(app: "shop").map(\.isUsable) == [false])
                #expect(try await indexes.create(index))
                #expect(try await indexes.list(app: "shop").map(\.isUsable) == [true])
                #expect(try await !indexes.create(index))
            }
            let known = try await server.query(
                """
                SELECT count(*) FROM pg_stats_ext_exprs
                WHERE statistics_name LIKE 'installations_field_%'
                """
            )
            #expect(known == ["1"], "the planner knows what to expect")
        }
    }

    @Test("A push selects the same of 10,000 devices as LeanCloud's guide and ours say")
    func selectsAsInTheGuide() async throws {
        try await StorageFixture.run { storage in
            let identities = GuideData.identities()
            try await WhereFixture.insert(identities, into: storage)
            _ = try await storage.server.query(GuideData.installations)
            _ = try await storage.server.query("analyze installations")
            let fixture = try await WhereFixture(storage, identities: identities)
            #expect(fixture.installations.count == 10_000)
            let reachable = Set(
                try await storage.server.query(
                    "SELECT object_id FROM installations WHERE valid AND token IS NOT NULL"
                )
            )
            var counts: [Int] = []
            for (index, text) in GuideData.conditions.enumerated() {
                let found = try await fixture.compare(text)
                counts.append(found)
                let value = try JSONValue.parse(text)
                let condition = try Where.parse(value)
                let expected = fixture.expected(condition).filter(reachable.contains)
                let push = try await storage.broadcast(
                    "guide-\(index)",
                    ["where": value],
                    shardSize: 300
                )
                let rung = try await members(of: push.id, in: storage)
                #expect(rung.sorted() == expected.sorted(), "\(text)")
                #expect(Set(rung).count == rung.count)
                #expect(
                    try await storage.balancedLedger(of: push.id).targeted == expected.count,
                    "\(text)"
                )
            }
            let plain = zip(GuideData.conditions, counts).filter { $1 == 0 || $1 == 10_000 }
            #expect(plain.isEmpty, "select all or nobody: \(plain.map(\.0))")
        }
    }
}

extension Instant {
    /// The form of `push_time` without a zone.
    fileprivate var localText: String { String(iso8601.dropLast()) }
}
