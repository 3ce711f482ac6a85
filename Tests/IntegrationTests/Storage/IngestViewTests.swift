import IngestStorage
import JSON
import JSONSchema
import PushCore
import Storage
import Support
import Testing

@Suite(
    "Every stored object can be read through its view",
    .timeLimit(.minutes(3)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct IngestViewTests {
    private static func sql(_ values: [JSONValue]) -> String {
        let text = JSONValue.array(values).text.replacing("'", with: "''")
        return """
            jsonb_array_elements('\(text)'::jsonb) with ordinality as v(value, place) order by place
            """
    }

    /// Returns the view's times as seconds and microseconds since 1970; `nil` for NULL.
    private static func shown(
        _ texts: [String],
        _ fixture: StorageFixture
    ) async throws -> [String?] {
        var shown: [String?] = []
        // A statement is an argument of psql, whose length is limited.
        for start in stride(from: 0, to: texts.count, by: 1000) {
            let some = texts[start..<min(start + 1000, texts.count)].map(JSONValue.string)
            shown += try await fixture.server.query(
                """
                set timezone to 'America/New_York'; set datestyle to 'SQL, DMY';
                select coalesce(extract(epoch from carillon_timestamptz(value))::text, '-')
                from \(sql(some))
                """
            ).map { $0 == "-" ? nil : $0 }
        }
        return shown
    }

    private static func isAccepted(_ text: String) throws -> Bool {
        let schema = try ValueSchema(["type": "string", "format": "date-time"])
        let atlas = try ValueSchema(["bsonType": "date"])
        let accepted = [schema, atlas].map { $0.check(.string(text), by: SchemaChecker()) == nil }
        #expect(accepted[0] == accepted[1], "\(text)")
        return accepted[0]
    }

    /// Accepted texts and their times.
    private static let times: [(text: String, seconds: String)] = [
        ("1970-01-01T00:00:00Z", "0.000000"), ("1970-01-01t00:00:00z", "0.000000"),
        ("2016-12-31T23:59:60Z", "1483228800.000000"),
        ("2016-12-31T23:59:60.5Z", "1483228800.500000"),
        ("2017-01-01T05:29:60.25+05:30", "1483228800.250000"),
        ("2016-12-31T00:00:60-23:59", "1483228800.000000"),
        ("1970-01-01T00:00:00.1234567891Z", "0.123457"),
        ("1970-01-01T00:00:00.\(String(repeating: "1", count: 8000))Z", "0.111111"),
        ("1970-01-01T23:59:59.9999999Z", "86400.000000"),
        ("1970-01-01T00:00:00+23:59", "-86340.000000"),
        ("1970-01-01T00:00:00-16:00", "57600.000000"),
        ("1970-01-01T00:00:00-00:00", "0.000000"),
        ("0000-01-01T00:00:00Z", "-62167219200.000000"),
        ("0000-02-29T00:00:00+15:59", "-62162179140.000000"),
        ("0001-01-01T00:00:00+23:59", "-62135683140.000000"),
        ("2000-02-29T00:00:00Z", "951782400.000000"),
        ("2024-02-29T12:00:00Z", "1709208000.000000"),
        ("2024-12-31T00:00:00Z", "1735603200.000000"),
        ("9999-12-31T23:59:60.999999-00:00", "253402300800.999999"),
        ("9999-12-31T23:59:59-23:59", "253402387139.000000"),
    ]

    private static let others = [
        "", "now", "infinity", "epoch", "1970-01-01", "00:00:00Z", "1970-01-01T00:00:00",
        "1970-01-01T24:00:00Z", "1970-01-01T23:60:00Z", "1970-01-01T00:00:61Z",
        "1970-02-29T00:00:00Z", "1900-02-29T00:00:00Z", "2100-02-29T00:00:00Z",
        "1970-00-01T00:00:00Z", "1970-13-01T00:00:00Z", "1970-01-00T00:00:00Z",
        "1970-01-32T00:00:00Z", "1970-04-31T00:00:00Z", "10000-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z", "294277-01-01T00:00:00Z", "1970-01-01T00:00:00+24:00",
        "1970-01-01T00:00:00+00:60", "1970-01-01T00:00:00+0000", "1970-01-01T00:00:00.Z",
        "1970-01-01T00:00:00,5Z", " 1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z\n",
        "1970-01-01T00:00:00 BC", "１970-01-01T00:00:00Z", "1970-01-01T00:00:00Zulu",
    ]

    @Test("Each time that ingest accepts is shown as that time")
    func edges() async throws {
        for (text, _) in Self.times { #expect(try Self.isAccepted(text), "\(text.prefix(60))") }
        for text in Self.others { #expect(try !Self.isAccepted(text), "\(text)") }
        try await StorageFixture.run { fixture in
            let shown = try await Self.shown(Self.times.map(\.text), fixture)
            #expect(shown == Self.times.map(\.seconds))
            let none = try await Self.shown(Self.others, fixture)
            #expect(none.allSatisfy { $0 == nil })
        }
    }

    @Test("Among 20,000 texts that resemble times, the view shows those that ingest accepts")
    func random() async throws {
        var random = Seeded(state: 20_161_231)
        func pick(_ texts: [String]) -> String { texts[random.next(below: texts.count)] }
        func two(_ below: Int) -> String {
            let number = random.next(below: below)
            return number < 10 ? "0\(number)" : "\(number)"
        }
        func year() -> String {
            let digits = String(random.next(below: 10_001))
            return String(repeating: "0", count: max(0, 4 - digits.count)) + digits
        }
        let texts = (0..<20_000).map { _ in
            let second = pick([two(60), two(62), "60", "60"])
            let digits = String(random.next(below: 1_000_000_000))
            let fraction = pick(["", "", ".\(digits)", ".", ".999999999"])
            let distance = "\(two(26)):\(two(61))"
            let offset = pick(["Z", "z", "+\(distance)", "-\(distance)", ""])
            let hour = second == "60" ? pick(["23", two(26)]) : two(26)
            let minute = second == "60" ? pick(["59", two(61)]) : two(61)
            return year() + "-\(two(14))-\(two(33))" + pick(["T", "t", "T", " "])
                + "\(hour):\(minute):\(second)\(fraction)\(offset)"
        }
        let accepted = try texts.map(Self.isAccepted)
        #expect(accepted.count { $0 } > 2000)
        try await StorageFixture.run { fixture in
            let shown = try await Self.shown(texts, fixture)
            for (place, text) in texts.enumerated() where accepted[place] {
                #expect(shown[place] != nil, "\(text)")
            }
            // A text that both can read is the same time by each.
            let plain = zip(texts, shown).filter { text, time in
                time != nil && !text.contains(":60") && !text.hasPrefix("0000")
            }.compactMap { text, time in Instant(iso8601: text).map { ($0, time ?? "", text) } }
            #expect(plain.count > 1000)
            for (instant, time, text) in plain {
                let seconds = try #require(Double(time))
                #expect(abs(seconds - Double(instant.microseconds) / 1e6) < 0.002, "\(text)")
            }
        }
    }

    @Test("No JSON value makes a column fail, whatever its declared type")
    func anything() async throws {
        let deep = String(repeating: "[", count: 500) + String(repeating: "]", count: 500)
        let texts = [
            "null", "true", "0", "-0", "-0.0", "9223372036854775807", "9223372036854775808",
            "-9223372036854775808", "-9223372036854775809", "1e18", "1e19", "1e308", "1.8e308",
            "1e309", "-1e400", "1e-308", "4.9e-324", "2.4e-324", "5e-324", "1e-400", "0.5",
            "1e131071", "1e-16383", String(repeating: "9", count: 100_000),
            "0." + String(repeating: "3", count: 16_000), "\"\"", "\"1\"", "{}", "[]", deep,
            "\"" + String(repeating: "2016-12-31T23:59:60Z", count: 10_000) + "\"",
        ]
        var random = Seeded(state: 32)
        let numbers = (0..<2000).map { _ in
            let digits = (0..<(1 + random.next(below: 40))).map { _ in
                String(random.next(below: 10))
            }.joined()
            let sign = random.next(below: 2) == 0 ? "-" : ""
            return "\(sign)1\(digits)e\(random.next(below: 800) - 400)"
        }
        let columns: [(name: String, type: IngestColumnType)] = [
            ("a", .bigint), ("b", .double), ("c", .boolean), ("d", .timestamptz), ("e", .text),
            ("f", .jsonb),
        ]
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let type = try await IngestStoreTests.declare(columns: columns, in: database)
            let names = columns.map(\.name)
            for (place, value) in (texts + numbers).enumerated() {
                let fields = names.map { "\"\($0)\":\(value)" }.joined(separator: ",")
                let stored = try await database.ingestSink.store([
                    IngestStoreTests.object(type, place, fields)
                ])
                #expect(stored.stored == 1, "\(value.prefix(60))")
            }
            let read = try await fixture.server.query(
                """
                select count(*), count(t::text), max(a), min(a), max(b), min(b)
                from ingest_shop_weather t
                """
            )
            #expect(read.count == 1)
            #expect(read.first?.hasPrefix("\(texts.count + numbers.count)|") == true)
        }
    }

    @Test("A view of the version before shows the values that failed in it, after the migration")
    func migrated() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let type = try await IngestStoreTests.declare(in: database)
            let opened = try #require(
                try await database.ingestTypes.find("PushOpened", of: StorageFixture.app)
            )
            // The version before had it like this; the only requirement is that it fails.
            _ = try await fixture.server.query(
                """
                create or replace function carillon_timestamptz(value jsonb) returns timestamptz
                language sql immutable strict parallel safe as
                $$ select upper(value #>> '{}')::timestamptz $$
                """
            )
            try await fixture.takeBack(from: 32)
            let at = #""at":"2016-12-31T23:59:60.5Z""#
            _ = try await database.ingestSink.store([
                IngestStoreTests.object(type, 1, at), IngestStoreTests.object(opened, 1, at),
            ])
            let views = ["ingest_shop_weather", "ingest_shop_pushopened"]
            for view in views {
                await #expect(throws: (any Error).self) {
                    _ = try await fixture.server.query("select * from \(view)")
                }
            }
            #expect(try await database.migrate().contains(32))
            for view in views {
                let shown = try await fixture.server.query(
                    "set timezone to utc; select at from \(view)"
                )
                #expect(shown == ["2017-01-01 00:00:00.5+00"])
            }
        }
    }
}

/// Random numbers that are the same in each run.
private struct Seeded {
    var state: UInt64

    mutating func next(below bound: Int) -> Int {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int((state >> 33) % UInt64(bound))
    }
}
