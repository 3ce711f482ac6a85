import IngestStorage
import JSON
import PushCore
import PushStorage
import Storage
import StorageAdmin
import Support
import Testing

@Suite(
    "Storage of ingested objects",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct IngestStoreTests {
    static let app = StorageFixture.app

    static func declare(
        _ name: String = "Weather",
        app: String = app,
        columns: [(name: String, type: IngestColumnType)] = [
            ("_id", .text), ("wind", .bigint), ("at", .timestamptz),
        ],
        retentionDays: Int? = nil,
        subject: String? = nil,
        expecting version: Int = 0,
        in database: PushDatabase
    ) async throws -> StoredIngestType {
        try await database.ingestTypes.put(
            NewIngestType(
                app: app,
                name: name,
                schema: ["type": "object", "x": JSONValue(columns.count)],
                columns: columns,
                retentionDays: retentionDays,
                subject: subject
            ),
            expecting: version
        )
    }

    static func id(_ number: Int) -> String {
        let digits = String(number, radix: 16)
        return String(repeating: "0", count: 24 - digits.count) + digits
    }

    static func object(
        _ type: StoredIngestType,
        _ number: Int,
        _ fields: String = #""wind":5"#,
        app: String = app,
        at: Instant = .now(),
        version: Int = 1,
        subjects: [String] = [],
        receipt: SinkReceipt? = nil
    ) -> SinkObject {
        SinkObject(
            type: type.number,
            app: app,
            id: id(number),
            receivedAt: at,
            schemaVersion: version,
            object: Array(#"{"_id":"\#(id(number))",\#(fields)}"#.utf8),
            subjects: subjects,
            receipt: receipt
        )
    }

    @Test("A type has a table and a view, whose columns read old rows and new ones")
    func evolution() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let first = try await Self.declare(in: database)
            #expect(first.version == 1 && first.number > 100)
            let view = try await database.ingestTypes.view(of: first, app: Self.app)
            #expect(view == "ingest_shop_weather")
            let stored = try await database.ingestState.view(ofType: first.number, app: Self.app)
            #expect(stored?.name == view)
            #expect(stored?.columns.map(\.property) == ["wind", "at"])
            #expect(stored?.columns.map(\.type) == [.bigint, .timestamptz])
            let foreign = try await database.ingestState.view(ofType: first.number, app: "other")
            #expect(foreign == nil)
            let odd = [
                #""wind":1.0,"at":"2026-02-28T10:00:00.5+01:00""#,
                #""wind":1.5,"at":"2026-02-30T10:00:00Z""#,
                #""wind":"5","at":"infinity""#,
                #""wind":9223372036854775808,"at":"0000-01-01T00:00:00Z""#,
                #""wind":null,"at":12"#,
                #""wind":-9223372036854775808,"at":"2026-01-01T00:00:60z""#,
            ]
            let counts = try await database.ingestSink.store(
                odd.enumerated().map { Self.object(first, $0.offset, $0.element) }
            )
            #expect(counts.stored == 6)
            _ = try await fixture.server.query("analyze ingest_objects_\(first.number)")
            let estimates = try await database.ingestState.estimatedCounts(of: [first.number, 99])
            #expect(estimates == [first.number: 6])
            let rows = try await fixture.server.query(
                """
                set timezone to utc; select wind, at from \(view) order by _id
                """
            )
            #expect(
                rows == [
                    "1|2026-02-28 09:00:00.5+00", "|", "|",
                    "|0001-01-01 00:00:00+00 BC", "|",
                    "-9223372036854775808|2026-01-01 00:01:00+00",
                ]
            )
            _ = try await fixture.server.query(
                "create role reader; grant select on \(view) to reader"
            )
            let conflict = await #expect(throws: IngestTypeConflict.self) {
                try await Self.declare(in: database)
            }
            #expect(conflict?.description == "Weather is at version 1 meanwhile")
            // A column is appended, then one changes its type.
            let second = try await Self.declare(
                columns: [
                    ("_id", .text), ("dew", .double), ("wind", .bigint), ("at", .timestamptz),
                    ("_object", .text), (String(repeating: "é", count: 40), .boolean),
                ],
                expecting: 1,
                in: database
            )
            #expect(second.version == 2 && second.number == first.number)
            let columns = """
                select string_agg(attname, ' ' order by attnum) from pg_attribute
                where attrelid = '\(view)'::regclass
                """
            let long = try #require(try await fixture.server.query(columns).first)
            #expect(
                long.hasPrefix(
                    "_id _received_at _schema_version _object wind at dew "
                        + String(repeating: "é", count: 27) + "_"
                )
            )
            let third = try await Self.declare(
                columns: [("wind", .double), ("at", .timestamptz), ("dew", .double)],
                expecting: 2,
                in: database
            )
            #expect(third.version == 3)
            _ = try await database.ingestSink.store([
                Self.object(first, 100, #""wind":1e400,"dew":1e-400"#, version: 3),
                Self.object(first, 101, #""wind":2.5,"dew":true"#, version: 3),
            ])
            #expect(
                try await fixture.server.query(
                    "select wind, dew, _schema_version from \(view) where _schema_version = 3 order by _id"
                ) == ["|0|3", "2.5||3"]
            )
            #expect(
                try await fixture.server.query(
                    "select has_table_privilege('reader', '\(view)', 'select')"
                ) == ["t"]
            )
            _ = try await fixture.server.query("drop owned by reader; drop role reader")
            #expect(try await database.ingestTypes.names() == ["Weather"])
            let all = try await database.ingestTypes.list(of: Self.app)
            #expect(all.count == 9 && all[0] == third && all[1].name == "SegmentTrack")
            #expect(try await database.ingestTypes.find("weather", of: Self.app) == nil)
            #expect(try await database.ingestTypes.find("PushOpened", of: "nobody") == nil)
            #expect(try await database.ingestTypes.find("PushOpened", of: Self.app)?.app == nil)
        }
    }

    @Test("Names that Kafka would confuse are refused, and the same name of another app is not")
    func names() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            for app in ["a.b", "a_b", "c"] { try await fixture.createApp(app) }
            let first = try await Self.declare("Ride.Done", app: "a.b", in: database)
            let same = try await Self.declare("Ride.Done", app: "a_b", in: database)
            #expect(first.number != same.number)
            for name in ["ride.done", "Ride_Done"] {
                let conflict = await #expect(throws: IngestTypeConflict.self) {
                    try await Self.declare(name, app: "c", in: database)
                }
                #expect(conflict?.description.contains("Ride.Done") == true)
            }
            let conflict = await #expect(throws: IngestTypeConflict.self) {
                try await Self.declare("PushOpened", app: "c", in: database)
            }
            #expect(conflict?.description == "PushOpened is built in")
            #expect(
                try await database.ingestTypes.view(of: first, app: "a.b") == "ingest_a_b_ride_done"
            )
            let other = try await database.ingestTypes.view(of: same, app: "a_b")
            #expect(other.hasPrefix("ingest_a_b_ride_done_") && other.utf8.count == 29)
            let long = try await Self.declare(
                String(repeating: "L", count: 100),
                app: "c",
                in: database
            )
            let view = try await database.ingestTypes.view(of: long, app: "c")
            #expect(view.utf8.count == 63)
            // One of two concurrent ones wins.
            let made = await withTaskGroup(of: Bool.self) { group in
                for name in ["Race.x", "race_x", "RACE.X", "Race_X"] {
                    group.addTask {
                        (try? await Self.declare(name, app: "c", in: database)) != nil
                    }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(made == 1)
            // A quote in a property's name is an ordinary character.
            let quoted = try await Self.declare(
                "Quoted",
                columns: [(#"a'b\"c"#, .text), ("a\u{0}b", .text), ("", .text)],
                subject: #"a'b\"c"#,
                in: database
            )
            _ = try await database.ingestSink.store([
                Self.object(quoted, 1, #""a'b\\\"c":"found""#)
            ])
            #expect(
                try await fixture.server.query(#"select "a'b\""c" from ingest_shop_quoted"#)
                    == ["found"]
            )
        }
    }

    @Test("An id is one object: in a batch, over days, and in concurrent batches")
    func once() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let type = try await Self.declare(in: database)
            let now = Instant.now()
            let batch = [
                Self.object(type, 1, #""wind":1"#, at: now),
                Self.object(type, 1, #""wind":2"#, at: now),
                Self.object(type, 2, #""wind":3"#, at: now),
            ]
            let counts = try await database.ingestSink.store(batch)
            #expect(counts.stored == 2 && counts.repeated == 1)
            for day in [-1, 0, 1, 40] {
                let again = try await database.ingestSink.store([
                    Self.object(
                        type,
                        1,
                        #""wind":9"#,
                        at: now.adding(milliseconds: Int64(day) * 86_400_000)
                    )
                ])
                #expect(again.stored == 0 && again.repeated == 1)
            }
            #expect(
                try await fixture.server.query("select wind from ingest_shop_weather order by _id")
                    == ["1", "3"]
            )
            let many = (10..<2010).map { Self.object(type, $0) }
            try await fixture.another { other in
                async let forward = database.ingestSink.store(many)
                async let backward = other.ingestSink.store(many.reversed())
                let both = try await [forward, backward]
                #expect(both.reduce(0) { $0 + $1.stored } == 2000)
                #expect(both.reduce(0) { $0 + $1.repeated } == 2000)
            }
            #expect(
                try await fixture.server.query(
                    "select count(*), count(distinct _id) from ingest_shop_weather"
                ) == ["2002|2002"]
            )
            // Another type, and another app, have their own ids.
            let opened = try #require(
                try await database.ingestTypes.find("PushOpened", of: Self.app)
            )
            try await fixture.createApp("other")
            let elsewhere = try await database.ingestSink.store([
                Self.object(opened, 1), Self.object(opened, 1, app: "other"),
                Self.object(opened, 1, app: "nobody"), Self.object(type, 1, app: "other"),
            ])
            #expect(elsewhere.stored == 2 && elsewhere.unknown == [2, 3])
            #expect(
                try await fixture.server.query("select _id from ingest_other_pushopened")
                    == [Self.id(1)]
            )
        }
    }

    @Test("A value that Postgres rejects fails its batch, of which nothing is stored")
    func refused() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let type = try await Self.declare(in: database)
            for bad in [#""a":"\u0000""#, #""a":1e200000"#, #""a":"#] {
                let error = await #expect(throws: StorageError.self) {
                    _ = try await database.ingestSink.store([
                        Self.object(type, 1), Self.object(type, 2, bad),
                    ])
                }
                #expect(error?.isOfTheValues == true, "\(bad)")
            }
            #expect(try await database.ingestSink.store([Self.object(type, 1)]).stored == 1)
        }
    }

    @Test("Days are dropped after their retention, keys and receipts after theirs")
    func retention() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let kept = try await Self.declare("Kept", in: database)
            let short = try await Self.declare("Short", retentionDays: 2, in: database)
            let now = Instant.now()
            func days(_ count: Int) -> Instant {
                now.adding(milliseconds: Int64(count) * 86_400_000)
            }
            let receipt = SinkReceipt(.opened, of: "event/e", installation: nil)
            _ = try await database.ingestSink.store(
                [-10, 0, 5].enumerated().flatMap { place, day in
                    [
                        Self.object(kept, place, at: days(day)),
                        Self.object(short, place, at: days(day), receipt: receipt),
                    ]
                }
            )
            var report = try await database.ingestUpkeep.maintain(now: days(3))
            #expect(report.rowsDeleted == 1 && report.partitionsDropped > 0)
            // The day with an object in the default partition is not included.
            #expect(report.partitionsCreated == 8 * 5 + 2 * 2)
            let left = "select count(*) from ingest_shop_"
            #expect(try await fixture.server.query(left + "kept") == ["3"])
            #expect(try await fixture.server.query(left + "short") == ["1"])
            #expect(try await database.ingestSink.store([Self.object(short, 0)]).repeated == 1)
            report = try await database.ingestUpkeep.maintain(now: days(31))
            #expect(
                try await fixture.server.query(
                    "select (select count(*) from ingest_keys), (select count(*) from push_receipts)"
                ) == ["0|3"]
            )
            _ = try await database.ingestUpkeep.maintain(now: days(91))
            #expect(try await fixture.server.query("select count(*) from push_receipts") == ["0"])
            #expect(try await database.ingestSink.store([Self.object(short, 0)]).stored == 1)
            let disagreement = await #expect(throws: StorageError.self) {
                try await database.ingestUpkeep.maintain(hostTime: days(3))
            }
            #expect(disagreement?.kind == .clocksDisagree)
        }
    }

    @Test("A report counts once for each installation, by any of its ids")
    func receipts() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let installation = try await fixture.install([
                "deviceType": "android", "installationId": "own-id", "registrationId": "token",
            ])
            let opened = try #require(
                try await database.ingestTypes.find("PushOpened", of: Self.app)
            )
            let received = try #require(
                try await database.ingestTypes.find("PushReceived", of: Self.app)
            )
            let push = "0b5d4b1c-9d7e-4c55-8a43-1d8f6f6f2f10"
            func open(_ number: Int, _ target: String, _ who: String?) -> SinkObject {
                Self.object(
                    opened,
                    number,
                    receipt: SinkReceipt(.opened, of: target, installation: who)
                )
            }
            let counts = try await database.ingestSink.store([
                open(1, push, "own-id"), open(2, push, installation.objectID),
                open(3, "event/launch", "own-id"), open(4, push, nil), open(5, push, nil),
                open(6, push, "somebody"), open(6, push, "repeated"),
                Self.object(
                    received,
                    1,
                    receipt: SinkReceipt(.received, of: push, installation: "own-id")
                ),
            ])
            #expect(counts.stored == 7)
            let found = try await database.receipts.counts(of: [
                (app: Self.app, id: push, eventID: "launch"),
                (app: "other", id: "0b5d4b1c-9d7e-4c55-8a43-1d8f6f6f2f11", eventID: "launch"),
            ])
            #expect(found == [push: ReceiptCounts(opened: 4, received: 1)])
        }
    }

    @Test("A type may change, and an app be deleted, while its objects are being stored")
    func underWay() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let type = try await Self.declare(in: database)
            let track = try #require(
                try await database.ingestTypes.find("SegmentTrack", of: Self.app)
            )
            try await fixture.another { other in
                async let stored = {
                    var counts: [SinkCounts] = []
                    for batch in 0..<60 {
                        counts.append(
                            try await other.ingestSink.store(
                                (0..<50).flatMap {
                                    [
                                        Self.object(type, batch * 50 + $0),
                                        Self.object(track, batch * 50 + $0),
                                    ]
                                }
                            )
                        )
                    }
                    return counts
                }()
                for version in 1...4 {
                    _ = try await Self.declare(
                        columns: [("wind", version % 2 == 0 ? .bigint : .double)]
                            + (0..<version).map { ("p\($0)", .text) },
                        subject: "p\(version)",
                        expecting: version,
                        in: database
                    )
                }
                let deletion = try await database.apps.delete(Self.app)
                let counts = try await stored
                let kept = counts.reduce(0) { $0 + $1.stored }
                #expect(counts.reduce(0) { $0 + $1.unknown.count } + kept == 6000)
                #expect(deletion.ingestObjects == kept)
            }
            #expect(
                try await fixture.server.query(
                    """
                    select (select count(*) from ingest_keys),
                        (select count(*) from ingest_objects_\(track.number))
                    """
                ) == ["0|0"]
            )
        }
    }

    @Test("All objects of an app's devices are deleted with it, and those of another app stay")
    func deletion() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.createApp("other")
            let own = try await Self.declare(in: database)
            let same = try await Self.declare(app: "other", in: database)
            let opened = try #require(
                try await database.ingestTypes.find("PushOpened", of: Self.app)
            )
            let receipt = SinkReceipt(.opened, of: "event/e", installation: nil)
            for app in [Self.app, "other"] {
                let type = app == Self.app ? own : same
                _ = try await database.ingestSink.store(
                    (0..<50).flatMap {
                        [
                            Self.object(type, $0, app: app),
                            Self.object(opened, $0, app: app, receipt: receipt),
                        ]
                    }
                )
            }
            let deletion = try await database.apps.delete(Self.app)
            #expect(deletion.ingestObjects == 100)
            #expect(
                try await fixture.server.query(
                    """
                    select (select count(*) from ingest_keys), (select count(*) from push_receipts),
                        (select count(*) from ingest_objects_\(opened.number)),
                        to_regclass('ingest_objects_\(own.number)') is null,
                        (select count(*) from pg_class where relname like 'ingest_shop_%'),
                        (select count(*) from ingest_other_weather)
                    """
                ) == ["100|50|50|t|0|50"]
            )
            #expect(
                try await database.ingestSink.store([Self.object(opened, 900)]).unknown == [0]
            )
        }
    }

    private static let entry = AuditEntry(
        app: app,
        actor: "operator",
        action: "erase",
        address: nil,
        status: 200
    )

    @Test("Objects about a person are exported and erased, and late ones are dropped")
    func erasure() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let ride = try await Self.declare("Ride", subject: "rider", in: database)
            let plain = try await Self.declare("Plain", in: database)
            let track = try #require(
                try await database.ingestTypes.find("SegmentTrack", of: Self.app)
            )
            let opened = try #require(
                try await database.ingestTypes.find("PushOpened", of: Self.app)
            )
            #expect(track.subjects == ["userId", "anonymousId"])
            let phone = try await fixture.install([
                "deviceType": "android", "installationId": "own-id", "registrationId": "token",
                "identity": "ann",
            ])
            func about(_ name: String, _ first: Int) -> [SinkObject] {
                [
                    Self.object(ride, first, #""rider":"\#(name)""#, subjects: [name]),
                    Self.object(
                        track,
                        first,
                        #""userId":"\#(name)","anonymousId":"\#(name)""#,
                        subjects: [name, name]
                    ),
                    Self.object(track, first + 1, #""anonymousId":"\#(name)""#, subjects: [name]),
                    Self.object(plain, first, #""rider":"\#(name)""#),
                ]
            }
            let report = Self.object(
                opened,
                1,
                #""installationId":"own-id""#,
                subjects: ["own-id"],
                receipt: SinkReceipt(.opened, of: "event/e", installation: "own-id")
            )
            _ = try await database.ingestSink.store(about("ann", 1) + about("bob", 11) + [report])
            let subject = Subject(app: Self.app, .identity, "ann")
            let export = try await database.erasures.export(subject)
            #expect(export[.ingestObjects].count == 4 && export[.pushReceipts].count == 1)
            #expect(export[.ingestObjects].first?["type"]?.string == "SegmentTrack")
            #expect(export[.pushReceipts][0]["installation"]?.string == phone.objectID)
            let counted = try await database.erasures.dryRun(subject)
            let receipt = try await database.erasures.erase(subject, by: Self.entry)
            #expect(receipt.erased.json["ingestObjects"] == 4)
            #expect(receipt.erased.json["pushReceipts"] == 1)
            #expect(counted == receipt.erased)
            #expect(
                try await fixture.server.query(
                    """
                    select (select count(*) from ingest_shop_ride), (select count(*) from ingest_keys),
                        (select count(*) from ingest_shop_segmenttrack),
                        (select count(*) from ingest_shop_plain)
                    """
                ) == ["1|9|2|2"]
            )
            // They come from Kafka again, and for the first time; then from another person of that
            // name.
            let before = Instant.now().adding(milliseconds: -60_000)
            let after = Instant.now().adding(milliseconds: 60_000)
            let late = try await database.ingestSink.store([
                Self.object(ride, 1, at: before, subjects: ["ann"]),
                Self.object(ride, 2, at: before, subjects: ["ann"]),
                Self.object(ride, 3, at: before, subjects: [phone.objectID]),
                Self.object(ride, 4, at: before, subjects: ["bob"]),
                Self.object(ride, 5, #""rider":"ann""#, at: after, subjects: ["ann"]),
            ])
            #expect(late.erased == 3 && late.stored == 2)
            // A subject without any other data.
            let bob = Subject(app: Self.app, .installation, "bob")
            #expect(try await !database.erasures.export(bob).isEmpty)
            let gone = try await database.erasures.erase(bob, by: Self.entry)
            #expect(gone.erased.json["ingestObjects"] == 3)
            #expect(try await database.erasures.export(bob).isEmpty)
        }
    }

    @Test("The apps from before the schema have their views after migrating")
    func migration() async throws {
        try await StorageFixture.run { fixture in
            let names = try await fixture.server.query(
                "select relname from pg_class where relkind = 'v' and relname like 'ingest_shop_%'"
            )
            #expect(names.count == 8)
            _ = try await fixture.server.query(
                """
                do $$ declare r record; begin
                    for r in select number from ingest_types loop
                        execute format('drop table ingest_objects_%s cascade', r.number);
                    end loop; end $$;
                drop table ingest_types, ingest_schemas, ingest_streams, ingest_keys, push_receipts;
                drop function carillon_text, carillon_bigint, carillon_double, carillon_boolean,
                    carillon_timestamptz
                """
            )
            try await fixture.takeBack(from: 30)
            let database = fixture.database
            #expect(try await database.migrate().first == 30)
            try await database.ingestTypes.makeBuiltInViews()
            try await database.ingestTypes.makeBuiltInViews()
            let track = try #require(
                try await database.ingestTypes.find("SegmentTrack", of: Self.app)
            )
            _ = try await database.ingestSink.store([
                Self.object(track, 1, #""event":"Started","timestamp":"2026-01-02T03:04:05Z""#)
            ])
            #expect(
                try await fixture.server.query(
                    """
                    set timezone to utc;
                    select event, "userId" is null, timestamp from ingest_shop_segmenttrack
                    """
                ) == ["Started|t|2026-01-02 03:04:05+00"]
            )
            // This app is of a service that has not made them.
            _ = try await fixture.server.query(
                """
                insert into apps (id, id_folded, app_key_sealed, app_key_digest, master_key_sealed,
                    master_key_digest, settings, created_at)
                values ('late', 'late', 'a', 'a', 'a', 'a', '{}', now())
                """
            )
            #expect(
                try await database.ingestSink.store([Self.object(track, 1, app: "late")]).stored
                    == 1
            )
            #expect(
                try await database.ingestTypes.view(of: track, app: "late")
                    == "ingest_late_segmenttrack"
            )
        }
    }
}
