import JSON
import Logins
import Postgres
import PushCore
import Storage
import Support
import Testing

@Suite(
    "Storage of logins",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct LoginStoreTests {
    private static let url = "https://id.example/jwks"
    private static let keys: JSONValue = ["keys": [["kty": "EC"]]]

    private func login(
        _ audience: String,
        app: String = StorageFixture.app,
        issuer: String = "https://id.example",
        keys: StoredLogin.Keys = .url(url),
        prefix: String = ""
    ) -> StoredLogin {
        StoredLogin(
            app: app,
            issuer: issuer,
            audience: audience,
            keys: keys,
            identityClaim: "email",
            identityPrefix: prefix
        )
    }

    private func problem(_ body: () async throws -> Void) async throws -> String? {
        do {
            try await body()
            return nil
        } catch let error as StorageError where error.kind == .conflict {
            return error.description
        }
    }

    @Test("A login is stored as set, and another of the same issuer and audience replaces it")
    func replaced() async throws {
        try await StorageFixture.run { fixture in
            let logins = fixture.database.logins
            #expect(try await logins.list(StorageFixture.app) == [])
            #expect(try await !logins.set(login("phones"), isDryRun: true))
            #expect(try await logins.list(StorageFixture.app) == [])
            #expect(try await !logins.set(login("phones")))
            var expected = login("phones")
            var found = try await logins.list(StorageFixture.app)
            expected.createdAt = try #require(found.first).createdAt
            #expect(found == [expected])
            #expect(
                try await logins.set(login("phones", keys: .fixed(Self.keys)), isDryRun: true)
            )
            #expect(try await logins.set(login("phones", keys: .fixed(Self.keys), prefix: "p:")))
            expected.keys = .fixed(Self.keys)
            expected.identityPrefix = "p:"
            found = try await logins.list(StorageFixture.app)
            #expect(found == [expected])
            #expect(try await logins.list() == found)
            #expect(
                try await logins.remove(
                    StorageFixture.app,
                    issuer: "https://id.example",
                    audience: "phones"
                )
            )
            #expect(
                try await !logins.remove(
                    StorageFixture.app,
                    issuer: "https://id.example",
                    audience: "phones"
                )
            )
            #expect(try await logins.list() == [])
        }
    }

    @Test("An issuer and audience belong to one app, which is found by a token with both")
    func ofOneApp() async throws {
        try await StorageFixture.run { fixture in
            let logins = fixture.database.logins
            try await fixture.createApp("games")
            _ = try await logins.set(login("phones"))
            _ = try await logins.set(login("consoles", app: "games"))
            for isDryRun in [true, false] {
                let problem = try await problem {
                    _ = try await logins.set(
                        login("phones", app: "games", prefix: "g:"),
                        isDryRun: isDryRun
                    )
                }
                #expect(problem?.contains("another app's") == true)
            }
            let missing = try await problem { _ = try await logins.set(login("x", app: "none")) }
            #expect(missing?.contains("no app none") == true)
            func apps(_ audiences: String...) async throws -> [String] {
                try await logins.apps(issuer: "https://id.example", audiences: audiences)
            }
            #expect(try await apps("phones") == [StorageFixture.app])
            #expect(try await apps("others", "consoles") == ["games"])
            #expect(try await apps("phones", "consoles") == ["games", StorageFixture.app])
            #expect(try await apps("Phones") == [])
            #expect(
                try await logins.apps(issuer: "https://ID.example", audiences: ["phones"]) == []
            )
            _ = try await fixture.server.query("DELETE FROM apps WHERE id = 'games'")
            #expect(try await apps("consoles") == [])
        }
    }

    @Test("A prefix is required from the second login on, and no prefix begins another")
    func prefixes() async throws {
        try await StorageFixture.run { fixture in
            let logins = fixture.database.logins
            _ = try await logins.set(login("one"))
            for bad in [login("two"), login("two", issuer: "https://else.example")] {
                #expect(try await problem { _ = try await logins.set(bad) } != nil)
            }
            _ = try await logins.set(login("two", prefix: "two:"))
            for prefix in ["two:", "two", "two:x", "t"] {
                let bad = login("three", prefix: prefix)
                #expect(try await problem { _ = try await logins.set(bad) } != nil, "\(prefix)")
            }
            _ = try await logins.set(login("three", prefix: "Two:"))
            _ = try await logins.set(login("one"))
            _ = try await logins.set(login("two", prefix: "two"))
            _ = try await logins.set(login("one", prefix: "1:"))
            #expect(try await problem { _ = try await logins.set(login("one")) } != nil)
            #expect(
                try await logins.list(StorageFixture.app).map(\.identityPrefix).sorted() == [
                    "1:", "Two:", "two",
                ]
            )
        }
    }

    @Test("One of many concurrent logins without a prefix is stored")
    func atOnce() async throws {
        try await StorageFixture.run { fixture in
            let done = await withTaskGroup(of: Bool.self) { group in
                for number in 0..<10 {
                    let login = login("audience \(number)")
                    group.addTask { (try? await fixture.database.logins.set(login)) != nil }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(done == 1)
            let kept = try await fixture.database.logins.list(StorageFixture.app).count
            #expect(kept == 1)
        }
    }

    @Test("An app has a bounded number of logins")
    func bounded() async throws {
        try await StorageFixture.run { fixture in
            let logins = fixture.database.logins
            for number in 0..<LoginLimits.loginsOfApp {
                _ = try await logins.set(login("a\(number)", prefix: "\(1000 + number):"))
            }
            let problem = try await problem {
                _ = try await logins.set(login("more", prefix: "more:"))
            }
            #expect(problem?.contains("remove some first") == true)
            #expect(try await logins.set(login("a0", prefix: "more:")), "one in another's place")
        }
    }

    @Test("One of many callers may fetch from an issuer, once a minute")
    func claimed() async throws {
        try await StorageFixture.run { fixture in
            let jwks = fixture.database.jwks
            #expect(try await jwks.find(Self.url) == nil)
            let claims = await withTaskGroup(of: Bool.self) { group in
                for _ in 0..<10 {
                    group.addTask { (try? await jwks.claim(Self.url)) == true }
                }
                return await group.reduce(0) { $0 + ($1 ? 1 : 0) }
            }
            #expect(claims == 1)
            var stored = try #require(try await jwks.find(Self.url))
            #expect(stored.isBeingAsked && stored.keys == nil && stored.stamp == 0)
            #expect(try #require(stored.askedAgo) < .seconds(60))
            try await jwks.recordFailure(Self.url)
            stored = try #require(try await jwks.find(Self.url))
            #expect(!stored.isBeingAsked && stored.keys == nil)
            #expect(try await !jwks.claim(Self.url), "a minute has not passed")
            // A time in the future, by a clock that was set back since, is not a reason to wait.
            for asked in ["now() - interval '61 seconds'", "now() + interval '1 hour'"] {
                _ = try await fixture.server.query("UPDATE jwks SET asked_at = \(asked)")
                #expect(try await jwks.claim(Self.url), "\(asked)")
                #expect(try await !jwks.claim(Self.url))
            }
        }
    }

    @Test("Keys are stored with their ages, and differ from earlier ones")
    func kept() async throws {
        try await StorageFixture.run { fixture in
            let jwks = fixture.database.jwks
            #expect(try await jwks.claim(Self.url))
            try await jwks.keep(Self.url, Self.keys, freshFor: .seconds(300))
            let first = try #require(try await jwks.find(Self.url))
            #expect(first.keys == Self.keys && !first.isBeingAsked && first.stamp > 0)
            #expect(first.age < .seconds(60) && first.freshFor > .seconds(240))
            #expect(first.freshFor <= .seconds(300))
            #expect(try await jwks.changed([(Self.url, first.stamp)]) == [])
            #expect(try await jwks.changed([(Self.url, 0), ("https://none", 0)]).count == 1)
            try await jwks.keep(Self.url, ["keys": []], freshFor: .seconds(3600))
            let second = try #require(try await jwks.find(Self.url))
            #expect(second.stamp > first.stamp && second.keys == ["keys": []])
            #expect(
                try await jwks.changed([(Self.url, first.stamp)]).map(\.stamp) == [second.stamp]
            )
            _ = try await fixture.server.query(
                """
                UPDATE jwks SET fetched_at = now() - interval '2 days',
                    fresh_until = now() - interval '47 hours'
                """
            )
            let old = try #require(try await jwks.find(Self.url))
            #expect(old.age > .seconds(172_700) && old.freshFor < .seconds(-169_000))
            // No time of a row gives a duration that traps.
            _ = try await fixture.server.query(
                "UPDATE jwks SET fetched_at = '0001-01-01', fresh_until = '9999-12-31'"
            )
            let odd = try #require(try await jwks.find(Self.url))
            #expect(odd.age == .seconds(31_536_000) && odd.freshFor == .seconds(31_536_000))
        }
    }

    @Test("Keys are due before they are stale, and keys without a login are deleted")
    func due() async throws {
        try await StorageFixture.run { fixture in
            let (logins, jwks) = (fixture.database.logins, fixture.database.jwks)
            #expect(try await jwks.due() == [])
            _ = try await logins.set(login("one"))
            #expect(try await jwks.due() == [Self.url])
            #expect(try await jwks.all().map(\.url) == [Self.url])
            #expect(try await jwks.all().first?.stored == nil)
            try await jwks.keep(Self.url, Self.keys, freshFor: .seconds(1000))
            #expect(try await jwks.due() == [])
            for (age, isDue) in [(790, false), (810, true)] {
                _ = try await fixture.server.query(
                    """
                    UPDATE jwks SET fetched_at = now() - interval '\(age) seconds',
                        fresh_until = now() - interval '\(age) seconds' + interval '1000 seconds',
                        asked_at = now() - interval '\(age) seconds'
                    """
                )
                #expect(try await jwks.due() == (isDue ? [Self.url] : []), "\(age)")
            }
            #expect(try await jwks.oldestAge() >= .seconds(810))
            #expect(try await jwks.claim(Self.url))
            #expect(try await jwks.due() == [], "somebody asks")
            _ = try await logins.set(login("one", keys: .fixed(Self.keys)))
            #expect(try await jwks.find(Self.url) == nil)
            #expect(try await jwks.oldestAge() == .zero)
            try await jwks.keep(Self.url, Self.keys, freshFor: .seconds(1000))
            try await jwks.prune()
            #expect(try await jwks.find(Self.url) == nil)
        }
    }
}
