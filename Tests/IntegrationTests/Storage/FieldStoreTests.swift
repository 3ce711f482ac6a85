import InstallationStorage
import JSON
import PushCore
import Storage
import Support
import Testing

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct FieldStoreTests {
    private static let app = StorageFixture.app

    /// Saves as Registration does, by its replica's cache of the app's fields.
    @discardableResult
    private func save(
        _ fields: JSONObject,
        _ database: PushDatabase,
        version: FieldsVersion? = nil,
        fails: Bool = false
    ) async throws -> Installation {
        let uses = fields.compactMap { name, value in
            FieldType(of: value).map { FieldUse(name: name, type: $0) }
        }
        let known = try await database.apps.find(Self.app)
        let stored = try #require(known)
        let new = try await database.fields.check(
            uses,
            app: Self.app,
            className: "_Installation",
            version: version ?? stored.fieldsVersion
        )
        let object = fields.merging(["deviceType": "web"])
        let keys = try Installation.Keys(object)
        return try await database.installations.save(app: Self.app, keys: keys, fields: new) { _ in
            if fails { throw TestFailure("as told") }
            let now = Instant.now()
            var installation = Installation(
                app: Self.app,
                objectID: ObjectID.make(at: now, random: .random(in: 0...UInt64.max)),
                at: now
            )
            try installation.take(object, changed: ExactStringSet(object.keys), now: now)
            return installation
        }.installation
    }

    @Test("A class stores the types of 1,000 fields, in any number of saves, the same everywhere")
    func bound() async throws {
        func many(_ letter: String) -> JSONObject {
            JSONObject((0..<1500).map { ("\(letter)\($0)", JSONValue.integer(1)) })
        }
        try await StorageFixture.run { fixture in
            try await fixture.another { other in
                // Both caches know the class while it is almost empty.
                for database in [fixture.database, other] {
                    try await save(["first": 1], database)
                }
                try await save(many("a"), fixture.database)
                let learned = try await other.fields.list(app: Self.app)
                #expect(learned.count == 1000)
                try await save(many("b"), other)
                #expect(try await other.fields.list(app: Self.app) == learned)
                let names = learned.map(\.name)
                let free = try #require((0..<1500).map { "b\($0)" }.first { !names.contains($0) })
                for database in [fixture.database, other] {
                    try await save([free: "a text"], database)
                    try await save([free: 4], database)
                }
            }
        }
    }

    @Test("One of many first users of a field on two replicas decides its type")
    func races() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.another { other in
                for round in 0..<10 {
                    let results = await withTaskGroup(of: (isText: Bool, isKept: Bool).self) {
                        group in
                        for index in 0..<24 {
                            let database = index % 2 == 0 ? fixture.database : other
                            let isText = (index / 2) % 2 == 0
                            let fields: JSONObject = [
                                "a\(round)": isText ? "four" : 4, "b\(round)": isText ? [4] : true,
                            ]
                            group.addTask {
                                do {
                                    try await save(fields, database)
                                    return (isText, true)
                                } catch let error as FieldMismatch {
                                    #expect(error.className == "_Installation")
                                    return (isText, false)
                                } catch {
                                    Issue.record(error)
                                    return (isText, false)
                                }
                            }
                        }
                        return await group.reduce(into: []) { $0.append($1) }
                    }
                    let kept = Set(results.filter(\.isKept).map(\.isText))
                    #expect(kept.count == 1, "one of the two kinds is kept")
                    let isWhole = results.allSatisfy { $0.isKept == kept.contains($0.isText) }
                    #expect(isWhole, "and all of it")
                    let fields = try await fixture.database.fields.list(app: Self.app)
                    let types = fields.filter { $0.name.hasSuffix("\(round)") }.map(\.type)
                    #expect(types == (kept == [true] ? [.string, .array] : [.number, .boolean]))
                }
            }
        }
    }

    @Test("A known field needs no query to save, and a failed save decides nothing")
    func knownFieldsAskNothing() async throws {
        try await StorageFixture.run { fixture in
            let stored = try await fixture.database.apps.find(Self.app)
            let version = try #require(stored).fieldsVersion
            await #expect(throws: TestFailure.self) {
                try await save(["score": "four"], fixture.database, fails: true)
            }
            try await save(["score": 4], fixture.database)
            _ = try await fixture.server.query("alter table app_fields rename to elsewhere")
            try await save(["score": 5], fixture.database, version: version)
            await #expect(throws: FieldMismatch.self) {
                try await save(["score": "five"], fixture.database, version: version)
            }
            await #expect(throws: StorageError.self) {
                try await save(["other": 5], fixture.database, version: version)
            }
        }
    }

    @Test("A dropped field gets a new type, also in caches that had it, and goes with its app")
    func drops() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await save(["score": 4, "owner": pointer("_User")], database)
            try await fixture.another { other in
                await #expect(throws: FieldMismatch.self) { try await save(["score": "4"], other) }
                await #expect(throws: FieldMismatch.self) {
                    try await save(["owner": pointer("Team")], other)
                }
                let isDropped = try await database.fields.drop(
                    app: Self.app,
                    className: "_Installation",
                    name: "score"
                )
                #expect(isDropped)
                let again = try await database.fields.drop(
                    app: Self.app,
                    className: "_Installation",
                    name: "score"
                )
                #expect(!again)
                try await save(["score": "4"], other)
                await #expect(throws: FieldMismatch.self) { try await save(["score": 4], database) }
            }
            let fields = try await database.fields.list(app: Self.app)
            #expect(fields.map(\.name) == ["owner", "score"])
            #expect(fields.map(\.type) == [.pointer(className: "_User"), .string])
            _ = try await fixture.server.query("delete from apps where id = '\(Self.app)'")
            #expect(try await database.fields.list(app: Self.app).isEmpty)
        }
    }

    private func pointer(_ className: String) -> JSONValue {
        ["__type": "Pointer", "className": .string(className), "objectId": "x"]
    }
}

extension JSONObject {
    fileprivate func merging(_ others: JSONObject) -> JSONObject {
        var merged = self
        for (key, value) in others { merged[key] = value }
        return merged
    }
}
