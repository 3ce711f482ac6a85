import Foundation
import InstallationStorage
import JSON
import PushCore
import Support
import Testing

@Suite(
    .timeLimit(.minutes(60)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct WhereStoreTests {
    @Test("Random conditions select the same in SQL as in a plain evaluation")
    func agreesWithEvaluation() async throws {
        try await StorageFixture.run { storage in
            var random = RandomWhere(seed: 7)
            for index in 0..<200 { try await storage.install(random.installation(index)) }
            let identities = (0..<RandomWhere.identityCount).map { random.identity($0) }
            try await WhereFixture.insert(identities, into: storage)
            let fixture = try await WhereFixture(storage, identities: identities)
            #expect(fixture.installations.count == 200)
            let end = ContinuousClock.now + .seconds(40)
            var (asked, selective, differing) = (0, 0, 0)
            while asked < 2500, ContinuousClock.now < end, differing < 5 {
                let text = random.condition(depth: asked % 4).text
                let condition: Where
                do {
                    condition = try Where.parse(try JSONValue.parse(text))
                } catch {
                    Issue.record("refused: \(error): \(text)")
                    differing += 1
                    continue
                }
                let expected = fixture.expected(condition)
                let found: [String]
                do {
                    found = try await fixture.found(condition)
                } catch {
                    Issue.record("failed: \(error): \(text)")
                    differing += 1
                    continue
                }
                asked += 1
                if !expected.isEmpty, expected.count < 200 { selective += 1 }
                guard found != expected else { continue }
                differing += 1
                let difference = Set(found).symmetricDifference(expected)
                let example = fixture.installations.first {
                    difference.contains($0["objectId"]?.string ?? "")
                }
                Issue.record(
                    """
                    \(found.count) found, \(expected.count) expected: \(text)
                    as with \(example?.text ?? "")
                    """
                )
            }
            print("where: \(asked) conditions compared, \(selective) select some")
            #expect(selective * 5 > asked)
        }
    }

    @Test("The conditions of LeanCloud's push guide select the documented devices")
    func selectsAsInTheGuide() async throws {
        try await StorageFixture.run { storage in
            let identities: [JSONObject] = (0..<500).map { index in
                // Some are at the place, some around it, most far away.
                let away = index % 5 == 0 ? Double(index % 50) * 0.001 : Double(index % 80)
                return [
                    "objectId": .string("user\(index)"),
                    "createdAt": ["__type": "Date", "iso": "2013-01-01T00:00:00.000Z"],
                    "location": [
                        "__type": "GeoPoint", "latitude": .double(30 + away / 2),
                        "longitude": .double(-20 + away),
                    ],
                ]
            }
            try await WhereFixture.insert(identities, into: storage)
            _ = try await storage.server.query(
                """
                insert into installations (app, object_id, device_type, installation_id, channels,
                    fields, created_at, updated_at)
                select 'shop', lpad(to_hex(i), 24, '0'), case i % 2 when 0 then 'ios' else 'android' end,
                    case i % 3 when 0 then '57234d4c-752f-4e78-81ad-' || lpad(i::text, 12, '0') end,
                    (array['{}', '{public}', '{private,public}', '{republican}', '{Giants,Mets}'])
                        [i % 5 + 1]::text[],
                    jsonb_strip_nulls(jsonb_build_object(
                        'injuryReports', case i % 7 when 0 then true when 1 then false end,
                        'owner', case when i % 2 = 0 then jsonb_build_object('__type', 'Pointer',
                            'className', '_User', 'objectId', 'user' || i % 600) end)),
                    '2013-01-01Z'::timestamptz + i * interval '30 minutes',
                    '2013-01-01Z'::timestamptz + i * interval '1 hour'
                from generate_series(1, 10000) i
                """
            )
            let fixture = try await WhereFixture(storage, identities: identities)
            #expect(fixture.installations.count == 10_000)
            #expect(try await fixture.compare("{}") == 10_000)
            #expect(
                try await fixture.compare(#"{"channels": {"$regex": "\\Qpublic\\E"}}"#) == 6000
            )
            #expect(try await fixture.compare(#"{"channels": "public"}"#) == 4000)
            #expect(try await fixture.compare(#"{"channels": ["public"]}"#) == 4000)
            #expect(
                try await fixture.compare(
                    #"{"installationId": "57234d4c-752f-4e78-81ad-000000000003"}"#
                ) == 1
            )
            let inactive = try await fixture.compare(
                #"{"updatedAt": {"$lt": {"__type": "Date", "iso": "2013-06-29T11:33:53.323Z"}}}"#
            )
            #expect(inactive == 179 * 24 + 11)
            #expect(try await fixture.compare(#"{"injuryReports": true}"#) == 10_000 / 7)
            let near = try await fixture.compare(
                """
                {"owner": {"$inQuery": {"location": {"$nearSphere":
                    {"__type": "GeoPoint", "latitude": 30.0, "longitude": -20.0},
                    "$maxDistanceInMiles": 1.0}}}}
                """
            )
            #expect(near > 0 && near < 5000)
            #expect(
                try await fixture.compare(#"{"channels": {"$in": ["Giants", "Mets"]}}"#) == 2000
            )
            #expect(
                try await fixture.compare(#"{"channels": {"$all": ["Giants", "Mets"]}}"#) == 2000
            )
        }
    }

    @Test("No accepted condition makes a statement fail")
    func hostileConditionsAreHarmless() async throws {
        try await StorageFixture.run { storage in
            var random = RandomWhere(seed: 11)
            for index in 0..<20 {
                var object = random.installation(index)
                object["s"] = .string(String(repeating: "ab\n", count: 1 + index * 20))
                try await storage.install(object)
            }
            // It runs as long as `deploy/fuzz where-sql` says, and then with new conditions each
            // time.
            let seconds = ProcessInfo.processInfo.environment["CARILLON_FUZZ_SECONDS"]
                .flatMap { Int($0) }
            let seed: UInt64 = seconds == nil ? 13 : .random(in: 0...UInt64.max)
            let most = seconds == nil ? 1500 : Int.max
            let end = ContinuousClock.now + .seconds(seconds ?? 30)
            let tallies = await withTaskGroup(of: HostileTally.self) { group in
                for worker in 0..<4 {
                    group.addTask {
                        await HostileTally.of(storage, seed: seed &+ UInt64(worker), most, end)
                    }
                }
                return await group.reduce(into: []) { $0.append($1) }
            }
            let (asked, refused) = (
                tallies.reduce(0) { $0 + $1.asked }, tallies.reduce(0) { $0 + $1.refused }
            )
            print("where: \(asked) hostile conditions, \(refused) refused, seed \(seed)")
            #expect(refused < asked)
        }
    }

    @Test("The largest accepted patterns can be matched")
    func largePatternsAreMatched() async throws {
        try await StorageFixture.run { storage in
            try await storage.install(["deviceType": "web", "s": "aaab"])
            let many = String(repeating: "(a|b)", count: 190)
            for pattern in [
                "^(a?){248}b", "(a|b|){40}", "(a{9}){200}", "^(a*){249}$", "(x+x+)+y", many,
                "(((a|b)?){5}){12}", "^(?:^)?a", "(?:(?=a)a)+b", "^(.*?,){11}P", "([ab]{1,100}c?)*",
                String(repeating: "a?", count: 240), String(repeating: "[^a]*", count: 190),
                String(repeating: "(?=", count: 8) + "a" + String(repeating: ")", count: 8),
            ] {
                let condition = try Where.parse(["s": ["$regex": .string(pattern)]])
                await #expect(throws: Never.self, "\(pattern)") {
                    _ = try await storage.database.installations.count(
                        app: StorageFixture.app,
                        where: condition
                    )
                }
            }
        }
    }

    @Test("Equality of a custom field, channels and identities is found by an index")
    func usesIndexes() async throws {
        try await StorageFixture.run { storage in
            _ = try await storage.server.query(
                """
                insert into installations (app, object_id, device_type, channels, fields)
                select 'shop', lpad(to_hex(i), 24, '0'), 'ios', array['channel' || i],
                    jsonb_build_object('city', 'city' || i, 'owner', jsonb_build_object('__type',
                        'Pointer', 'className', '_User', 'objectId', 'user' || i))
                from generate_series(1, 20000) i;
                insert into identities (app, id, fields)
                select 'shop', 'user' || i, jsonb_build_object('plan', 'plan' || i)
                from generate_series(1, 20000) i
                """
            )
            // Until then an index has its newest entries in a separate list.
            _ = try await storage.server.query("vacuum analyze")
            for (text, index) in [
                (#"{"city": "city77"}"#, "installations_fields"),
                (#"{"city": {"$in": ["city77", "city78"]}}"#, "installations_fields"),
                (#"{"channels": "channel5"}"#, "installations_channels"),
                (#"{"objectId": "00000000000000000000004d"}"#, "installations_pkey"),
                (
                    #"{"owner": {"__type": "Pointer", "className": "_User", "objectId": "user9"}}"#,
                    "installations_fields"
                ),
                (
                    #"{"owner": {"$inQuery": {"className": "_User", "where": {"plan": "plan7"}}}}"#,
                    "identities_fields"
                ),
            ] {
                let condition = try Where.parse(try JSONValue.parse(text))
                let plan = try await storage.database.installations.plan(
                    app: StorageFixture.app,
                    where: condition
                )
                #expect(plan.contains(index), "\(text): \(plan)")
                let count = try await storage.database.installations.count(
                    app: StorageFixture.app,
                    where: condition
                )
                #expect((1...2).contains(count), "\(text)")
            }
        }
    }

    @Test("Custom fields are ordered by type, then by value, and the nearest come first")
    func ordersRows() async throws {
        try await StorageFixture.run { storage in
            let values: [JSONValue?] = [
                nil, .null, -1, 1.5, 20, "B", "a", "日", ["x": 1], [1], false, true,
                ["__type": "Date", "iso": "2013-01-01T02:00:00+02:00"],
                ["__type": "Date", "iso": "2013-01-01T00:00:01Z"],
            ]
            var expected: [String] = []
            for (index, value) in values.enumerated() {
                var object: JSONObject = ["deviceType": "web"]
                object["v"] = value
                object["g"] = [
                    "__type": "GeoPoint", "latitude": .double(Double(50 - index)), "longitude": 0,
                ]
                expected.append(try await storage.install(object).objectID)
            }
            // The first two are equal, so their ids decide.
            expected[0...1].sort()
            let store = storage.database.installations
            let up = try await store.query(
                app: StorageFixture.app,
                where: .everything,
                order: SortKey.parse("v")
            )
            #expect(up.map(\.objectID) == expected)
            let down = try await store.query(
                app: StorageFixture.app,
                where: .everything,
                order: SortKey.parse("-v")
            )
            #expect(down.map(\.objectID).prefix(12) == Array(expected.reversed().prefix(12))[...])
            let near = try Where.parse(
                ["g": ["$nearSphere": ["__type": "GeoPoint", "latitude": 0, "longitude": 0]]]
            )
            let nearest = try await store.query(app: StorageFixture.app, where: near, limit: 3)
            #expect(nearest.map { $0.object["g"]?["latitude"]?.double } == [37, 38, 39])
        }
    }

    @Test("A class that is not stored is refused by its name")
    func refusesOtherClasses() async throws {
        try await StorageFixture.run { storage in
            let condition = try Where.parse(
                ["team": ["$inQuery": ["className": "Team", "where": [:]]]]
            )
            let error = await #expect(throws: WhereError.self) {
                _ = try await storage.database.installations.count(
                    app: StorageFixture.app,
                    where: condition
                )
            }
            #expect(error?.code == 103)
            #expect(error?.description.contains("Team") == true)
        }
    }
}

/// The results of hostile conditions that one worker ran.
private struct HostileTally {
    var asked = 0
    var refused = 0

    static func of(
        _ storage: StorageFixture,
        seed: UInt64,
        _ most: Int,
        _ end: ContinuousClock.Instant
    ) async -> HostileTally {
        var choice = SeededChoice(seed: seed)
        var random = RandomWhere(seed: seed)
        var tally = HostileTally()
        var failed = 0
        while tally.asked < most, ContinuousClock.now < end, failed < 5 {
            tally.asked += 1
            let value: JSONValue =
                switch tally.asked % 4 {
                case 0, 2: HostileWhere.condition(&choice, depth: 3)
                case 1: random.condition(depth: tally.asked % 3)
                default: ["s": ["$regex": .string(HostileWhere.pattern(&choice))]]
                }
            do {
                let condition = try Where.parse(value)
                let descending = SortKey(path: try WherePath("s"), isDescending: true)
                _ = try await storage.database.installations.query(
                    app: StorageFixture.app,
                    where: condition,
                    order: [descending],
                    limit: 3
                )
                // An audience is planned like this.
                _ = try await storage.database.installations.explain(
                    app: StorageFixture.app,
                    PushRequest.Selectors(condition: condition)
                )
            } catch is WhereError {
                tally.refused += 1
            } catch {
                failed += 1
                Issue.record("\(error): \(value.text)")
            }
        }
        return tally
    }
}

/// Nonsensical conditions and patterns.
enum HostileWhere {
    private static let keys = [
        "s", "n", "channels", "objectId", "createdAt", "o.x", "$or", "$and", "$nor", "$in", "$nin",
        "$ne", "$gt", "$lte", "$all", "$size", "$exists", "$regex", "$options", "$inQuery",
        "$select", "$nearSphere", "$maxDistance", "$within", "$box", "$geoWithin", "$polygon",
        "$centerSphere", "__type", "iso", "className", "where", "key", "query", "'; drop", "a\u{0}",
        "latitude", "longitude", "objectId", "$containedBy", "$dontSelect",
    ]
    private static let values: [JSONValue] = [
        .null, true, false, 0, -1, 1e308, -1e308, .double(.leastNonzeroMagnitude),
        9_223_372_036_854_775_807, "", "\u{0}",
        "'; drop table installations; --", "$1", "\\", "{}", "Date", "Pointer", "GeoPoint", "_User",
        "9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+23:59", "2016-12-31T23:59:60Z", 91, 180,
        .number("1e400"), .number("18446744073709551616"), "\u{10FFFF}", "e\u{301}", [], [:],
    ]
    private static let pieces = [
        "a", "b", "(", ")", "[", "]", "{", "}", "*", "+", "?", "|", "^", "$", ".", "\\", "-", ",",
        "1", "2", "9", "\\d", "\\W", "\\b", "\\Q", "\\E", "(?:", "(?=", "(?!", "(?i)", "(?#", "[^",
        "{1,9}", "[[:alpha:]]", "\\x41", "\\u0041", "\n", " ", "#", "日", ":", "=", "<", "***",
    ]

    static func pattern(_ choice: inout SeededChoice) -> String {
        (0..<choice.below(12) + 1).map { _ in choice.pick(pieces) }.joined()
    }

    static func condition(_ choice: inout SeededChoice, depth: Int) -> JSONValue {
        if depth == 0 || choice.isOne(in: 4) {
            return choice.isOne(in: 6) ? .string(pattern(&choice)) : choice.pick(values)
        }
        if choice.isOne(in: 3) {
            return .array((0..<choice.below(4)).map { _ in condition(&choice, depth: depth - 1) })
        }
        var object: JSONObject = [:]
        for _ in 0..<choice.below(3) + 1 {
            object[choice.pick(keys)] = condition(&choice, depth: depth - 1)
        }
        return .object(object)
    }
}
