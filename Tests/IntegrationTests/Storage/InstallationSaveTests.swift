import InstallationStorage
import JSON
import PushCore
import Storage
import Support
import Testing

/// One device has one installation, for any number of saves, also at the same time.
@Suite(
    .timeLimit(.minutes(3)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct InstallationSaveTests {
    private let app = StorageFixture.app

    /// Saves as a surface does.
    private func save(
        _ object: JSONObject,
        by rule: SaveRule = .leanCloud,
        in database: PushDatabase
    ) async throws -> SavedInstallation {
        let app = app
        return try await database.installations.save(
            app: app,
            keys: Installation.Keys(object),
            rule: rule
        ) { existing in
            try merged(object, into: existing, app: app)
        }
    }

    private func put(
        _ object: JSONObject,
        to objectID: String,
        by rule: SaveRule = .leanCloud,
        where condition: Where? = nil,
        in database: PushDatabase
    ) async throws -> Installation? {
        let app = app
        return try await database.installations.update(
            app: app,
            objectID: objectID,
            keys: Installation.Keys(object),
            rule: rule,
            condition: condition
        ) { $0 = try merged(object, into: $0, app: app) }
    }

    private func all(_ database: PushDatabase) async throws -> [Installation] {
        try await database.installations.query(app: app, limit: 1000)
    }

    @Test("200 concurrent saves of one token on two replicas give one row with one object id")
    func manySavesOfOneToken() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.another { other in
                let ids = try await withThrowingTaskGroup(of: String.self) { group in
                    for number in 0..<200 {
                        group.addTask {
                            try await save(
                                [
                                    "deviceType": "ios", "deviceToken": "ab12",
                                    "n": JSONValue(number),
                                ],
                                in: number % 2 == 0 ? fixture.database : other
                            ).installation.objectID
                        }
                    }
                    return try await group.reduce(into: Set<String>()) { $0.insert($1) }
                }
                #expect(ids.count == 1)
                #expect(try await all(other).map(\.objectID) == Array(ids))
            }
        }
    }

    @Test("200 concurrent updates of one object on two replicas are all kept")
    func updatesAddUp() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.another { other in
                let objectID = try await save(
                    ["deviceType": "ios", "deviceToken": "ab12", "n": 0, "channels": ["kept"]],
                    in: fixture.database
                ).installation.objectID
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for number in 0..<200 {
                        group.addTask {
                            _ = try await (number % 2 == 0 ? fixture.database : other)
                                .installations.update(
                                    app: app,
                                    objectID: objectID
                                ) { installation in
                                    let n = installation.fields["n"]?.integer ?? -1000
                                    installation.fields["n"] = JSONValue(n + 1)
                                }
                        }
                    }
                    try await group.waitForAll()
                }
                let kept = try #require(try await all(other).first)
                #expect(kept.fields["n"] == 200)
                #expect(kept.channels == ["kept"])
            }
        }
    }

    @Test("Strings that are equivalent but have other bytes are saved as a change")
    func equivalentTextsDiffer() async throws {
        try await StorageFixture.run { fixture in
            let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}")
            for text in [composed, decomposed] {
                _ = try await save(
                    [
                        "deviceType": "ios", "deviceToken": "ab12", "place": .string(text),
                        "channels": [.string(text)],
                    ],
                    in: fixture.database
                )
            }
            let kept = try #require(try await all(fixture.database).first)
            #expect(kept.fields["place"]?.string.map { Array($0.utf8) } == Array(decomposed.utf8))
            #expect(kept.channels.map { Array($0.utf8) } == [Array(decomposed.utf8)])
        }
    }

    @Test("Tokens that many devices exchange are never on two rows and cause no failure")
    func tokensGoRound() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.another { other in
                try await withThrowingTaskGroup(of: Void.self) { group in
                    for number in 0..<240 {
                        group.addTask {
                            _ = try await save(
                                [
                                    "deviceType": "ios",
                                    "deviceToken": .string("ab0\(number % 8)"),
                                    "installationId": .string("phone\(number * 7 % 12)"),
                                ],
                                in: number % 2 == 0 ? fixture.database : other
                            )
                        }
                    }
                    try await group.waitForAll()
                }
                let rows = try await all(other)
                #expect(Set(rows.compactMap(\.token)).count == rows.compactMap(\.token).count)
                #expect(Set(rows.compactMap(\.installationID)).count == rows.count)
            }
        }
    }

    @Test("Two installations that exchange their tokens at the same time both succeed")
    func tokensAreExchanged() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            for round in 0..<20 {
                var ids: [String] = []
                for name in ["a", "b"] {
                    let object: JSONObject = [
                        "deviceType": "ios", "deviceToken": .string("\(name)\(round)"),
                        "installationId": .string("\(name)\(round)"),
                    ]
                    ids.append(try await save(object, in: database).installation.objectID)
                }
                let (first, second) = (ids[0], ids[1])
                async let one = put(
                    ["deviceToken": .string("b\(round)")],
                    to: first,
                    in: database
                )
                async let two = put(
                    ["deviceToken": .string("a\(round)")],
                    to: second,
                    in: database
                )
                // The first one takes the token from the other, which is then deleted.
                let kept = try await [one, two].compactMap(\.self)
                #expect(kept.count >= 1)
                let rows = try await all(database)
                #expect(Set(rows.compactMap(\.token)).count == rows.count)
                _ = try await database.installations.delete(app: app, objectIDs: ids)
            }
        }
    }

    @Test("Devices whose ids are only equivalent are two, saved at once or one after the other")
    func equivalentIDs() async throws {
        for rule in [SaveRule.leanCloud, .azure] {
            try await StorageFixture.run { fixture in
                let database = fixture.database
                func phones(_ number: Int) -> [JSONObject] {
                    ["caf\u{e9}", "cafe\u{301}"].map { name in
                        [
                            "deviceType": "android", "installationId": .string("\(name) \(number)"),
                            "registrationId": .string("fcm-\(name.utf8.count)-\(number)"),
                        ]
                    }
                }
                let ids = try await withThrowingTaskGroup(of: String.self) { group in
                    for number in 0..<20 {
                        for phone in phones(number) {
                            group.addTask {
                                try await save(phone, by: rule, in: database).installation.objectID
                            }
                        }
                    }
                    return try await group.reduce(into: Set<String>()) { $0.insert($1) }
                }
                #expect(ids.count == 40)
                let again = try await save(phones(0)[1], by: rule, in: database)
                #expect(!again.created && ids.contains(again.installation.objectID))
                let rows = try await all(database)
                #expect(rows.count == 40)
                #expect(ExactStringSet(rows.compactMap(\.installationID)).count == 40)
            }
        }
    }

    @Test("A failed save fails alone, whether its own change throws or the database rejects it")
    func failuresAreAlone() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let app = app
            let outcomes = await withTaskGroup(of: (Int, Bool).self) { group in
                for number in 0..<60 {
                    group.addTask {
                        do {
                            let object: JSONObject = [
                                "deviceType": "ios", "deviceToken": .string("cc\(number)"),
                            ]
                            _ = try await database.installations.save(
                                app: number % 10 == 3 ? "unknown" : app,
                                keys: Installation.Keys(object)
                            ) { existing in
                                if number % 10 == 7 { throw Refusal() }
                                return try merged(object, into: existing, app: app)
                            }
                            return (number, true)
                        } catch {
                            return (number, false)
                        }
                    }
                }
                return await group.reduce(into: [Int: Bool]()) { $0[$1.0] = $1.1 }
            }
            for (number, succeeded) in outcomes {
                #expect(succeeded == ![3, 7].contains(number % 10), "save \(number)")
            }
            let kept = try await all(database)
            #expect(kept.count == 48)
        }
    }

    @Test("A value that a change sets beside the body's keys follows the same rules")
    func keysThatAppear() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let object: JSONObject = ["deviceType": "android", "deviceToken": "route"]
            let unrouted = try await save(object, in: database).installation
            #expect(unrouted.token == nil)
            let holder: JSONObject = ["deviceType": "android", "registrationId": "route"]
            let held = try await save(holder, in: database).installation
            // Only now does the token have a route, which the other installation had.
            let routed = try await put(["pushType": "gcm"], to: unrouted.objectID, in: database)
            #expect(routed?.token == "route")
            let rows = try await all(database)
            #expect(rows.map(\.objectID) == [unrouted.objectID])
            #expect(rows.first?.objectID != held.objectID)
        }
    }

    @Test("A conditional update changes nothing if its condition is false (305)")
    func conditionsAreAsked() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let object: JSONObject = ["deviceType": "ios", "deviceToken": "ab", "badge": 3]
            let id = try await save(object, in: database).installation.objectID
            let holds = try Where.parse(["badge": ["$lt": 4]])
            let fails = try Where.parse(["badge": ["$gt": 4]])
            let kept = try await put(["badge": 4], to: id, where: holds, in: database)
            #expect(kept?.badge == 4)
            let error = await #expect(throws: InstallationError.self) {
                try await put(["badge": 5], to: id, where: fails, in: database)
            }
            #expect(error?.code == 305)
            #expect(try await all(database).map(\.badge) == [4])
            let unknown = try await put(["badge": 5], to: "none", where: fails, in: database)
            #expect(unknown == nil)
        }
    }

    @Test("A locked row delays only its own save")
    func heldRowsDelayNobodyElse() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            @Sendable func saved(_ token: String) async throws -> Bool {
                let object: JSONObject = ["deviceType": "ios", "deviceToken": .string(token)]
                return try await save(object, in: database).created
            }
            #expect(try await saved("aa"))
            _ = try await fixture.server.query("create table released (at timestamptz)")
            async let holder = fixture.server.query(
                """
                begin; select token from installations where token = 'aa' for update;
                do $$ begin
                    while not exists (select from released) loop perform pg_sleep(0.02); end loop;
                end $$; commit
                """
            )
            _ = try await eventually("the row is held") {
                try await fixture.server.query(
                    """
                    select 1 from pg_locks l join pg_class c on c.oid = l.relation
                    join pg_database d on d.oid = l.database
                    where c.relname = 'installations' and l.mode = 'RowShareLock'
                        and d.datname = current_database()
                    """
                ).first
            }
            async let held = saved("aa")
            let others = try await withThrowingTaskGroup(of: Bool.self) { group in
                for token in ["bb", "cc", "dd"] { group.addTask { try await saved(token) } }
                return try await group.reduce(into: [Bool]()) { $0.append($1) }
            }
            #expect(others == [true, true, true])
            _ = try await fixture.server.query("insert into released values (now())")
            #expect(try await held == false)
            _ = try await holder
        }
    }

    @Test("Parse: the id's object merges into the older one of its token, with errors 132 and 136")
    func parseMerges() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let rule = SaveRule.parse(callerInstallationID: nil, isMaster: false)
            let bare: JSONObject = ["deviceType": "android", "deviceToken": "t"]
            let old = try await save(bare, by: rule, in: database)
            #expect(old.created)
            let named: JSONObject = ["deviceType": "android", "installationId": "one"]
            let new = try await save(named, by: rule, in: database)
            let both: JSONObject = [
                "deviceType": "android", "installationId": "one", "deviceToken": "t",
            ]
            let merged = try await save(both, by: rule, in: database)
            #expect(!merged.created)
            #expect(merged.installation.objectID == old.installation.objectID)
            #expect(merged.installation.objectID != new.installation.objectID)
            #expect(try await all(database).count == 1)

            let error = await #expect(throws: InstallationError.self) {
                try await put(
                    ["installationId": "two"],
                    to: merged.installation.objectID,
                    by: rule,
                    in: database
                )
            }
            #expect(error?.code == 136)
        }
    }

    @Test("Parse: the caller's own id finds an object that names it, and is never stored")
    func parseCallersAreNotStored() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let rule = SaveRule.parse(callerInstallationID: "PHONE", isMaster: false)
            // An app that saves a list of new objects does this: one after another, and at once.
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<30 {
                    group.addTask {
                        let saved = try await save(
                            ["deviceType": "ios", "deviceToken": .string("aa\(100 + number)")],
                            by: rule,
                            in: database
                        )
                        #expect(saved.created)
                        #expect(saved.installation.installationID == nil)
                    }
                }
                try await group.waitForAll()
            }
            #expect(try await all(database).count == 30)
            let own = try await save(
                ["deviceType": "ios", "deviceToken": "bb", "installationId": "phone"],
                by: rule,
                in: database
            )
            #expect(own.created)
            let again = try await save(["deviceType": "ios"], by: rule, in: database)
            #expect(!again.created)
            #expect(again.installation.objectID == own.installation.objectID)
        }
    }

    @Test("Azure: a channel leaves its old installation, which stays without a route")
    func channelsMove() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            func phone(_ id: String) -> JSONObject {
                ["deviceType": "ios", "deviceToken": "ab", "installationId": .string(id)]
            }
            let first = try await save(phone("one"), by: .azure, in: database)
            let second = try await save(phone("two"), by: .azure, in: database)
            #expect(first.created && second.created)
            let rows = try await all(database)
            #expect(rows.count == 2)
            #expect(rows.filter { $0.token == "ab" }.map(\.installationID) == ["two"])
            // A change of another field does not take it back, and its own PUT does.
            let tagged = try await put(
                ["channels": ["x"]],
                to: first.installation.objectID,
                by: .azure,
                in: database
            )
            #expect(tagged?.token == nil)
            _ = try await save(phone("one"), by: .azure, in: database)
            #expect(
                try await all(database).filter { $0.token == "ab" }.map(\.installationID)
                    == ["one"]
            )
        }
    }

    @Test("A save that changes no indexed column writes no index (HOT)")
    func unchangedKeysAreCheap() async throws {
        try await StorageFixture.run { fixture in
            let object: JSONObject = [
                "deviceType": "ios", "deviceToken": "ab", "installationId": "one",
                "channels": ["a", "日本"], "city": ["name": "x"],
            ]
            for _ in 0..<5 { _ = try await save(object, in: fixture.database) }
            let updates = try await eventually("the statistics") {
                let rows = try await fixture.server.query(
                    """
                    select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables
                    where relname = 'installations' and n_tup_upd >= 4
                    """
                )
                return rows.first
            }
            #expect(updates == "4|4")
            #expect(try await all(fixture.database).first?.channels == ["a", "日本"])
        }
    }
}

private struct Refusal: Error {}

private func merged(
    _ object: JSONObject,
    into existing: Installation?,
    app: String
) throws -> Installation {
    let now = Instant.now()
    var installation =
        existing
        ?? Installation(
            app: app,
            objectID: ObjectID.make(at: now, random: .random(in: 0...UInt64.max)),
            at: now
        )
    var fields = existing?.object ?? [:]
    for (key, value) in object { fields[key] = value }
    try installation.take(fields, changed: ExactStringSet(object.map(\.key)), now: now)
    return installation
}
