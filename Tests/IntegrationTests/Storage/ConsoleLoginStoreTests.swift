import JSON
import Logins
import Postgres
import PushCore
import StorageAdmin
import Support
import Testing

@testable import Storage

@Suite(
    "Storage of the console's logins",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ConsoleLoginStoreTests {
    private func login(
        _ name: String,
        app: String = StorageFixture.app,
        secret: [UInt8]? = nil
    ) -> StoredConsoleLogin {
        StoredConsoleLogin(
            name: name,
            app: app,
            title: "Staff",
            issuer: "https://id.example",
            clientID: "console",
            clientSecretSealed: secret,
            isSecretInHeader: false,
            authorizationURL: "https://id.example/authorize",
            tokenURL: "https://id.example/token",
            jwksURL: "https://id.example/jwks",
            roleClaim: "realm_access.roles",
            roles: ["push-admins": .admin, "staff": .viewer],
            nameClaim: "preferred_username",
            isListed: false
        )
    }

    @Test("A login is stored as set; setting it again gives it a new stamp")
    func stored() async throws {
        try await StorageFixture.run { fixture in
            let logins = fixture.database.consoleLogins
            #expect(try await !logins.set(login("staff"), isDryRun: true))
            #expect(try await logins.list() == [])
            #expect(try await !logins.set(login("staff", secret: [1, 2])))
            let first = try #require(try await logins.list().first)
            var expected = login("staff", secret: [1, 2])
            (expected.stamp, expected.createdAt) = (first.stamp, first.createdAt)
            #expect(first == expected && first.stamp.utf8.count == 36)
            #expect(try await logins.set(login("staff")))
            let second = try #require(try await logins.list(StorageFixture.app).first)
            #expect(second.stamp != first.stamp && second.clientSecretSealed == nil)
            #expect(try await logins.remove(StorageFixture.app, name: "staff"))
            #expect(try await !logins.remove(StorageFixture.app, name: "staff"))
        }
    }

    @Test("A name belongs to one app, and goes with it")
    func ofOneApp() async throws {
        try await StorageFixture.run { fixture in
            let logins = fixture.database.consoleLogins
            try await fixture.createApp("games")
            _ = try await logins.set(login("staff"))
            for isDryRun in [true, false] {
                await #expect(throws: StorageError.self) {
                    try await logins.set(login("staff", app: "games"), isDryRun: isDryRun)
                }
            }
            await #expect(throws: StorageError.self) {
                try await logins.set(login("x", app: "none"))
            }
            #expect(try await !logins.remove("games", name: "staff"))
            #expect(try await logins.list("games") == [])
            #expect(try await logins.list().map(\.app) == [StorageFixture.app])
        }
    }

    @Test("Its secret is sealed again with all others, unless it was changed meanwhile")
    func sealedAgain() async throws {
        try await StorageFixture.run { fixture in
            let logins = fixture.database.consoleLogins
            _ = try await logins.set(login("staff", secret: [7, 7]))
            _ = try await logins.set(login("open"))
            let sealed = fixture.database.sealed
            let found = try await sealed.all().filter { $0.place == .consoleLogin(name: "staff") }
            let value = try #require(found.first)
            #expect(found.count == 1 && value.sealed == [7, 7])
            #expect(value.context == login("staff").context)
            #expect(try await sealed.replace(value, by: [8]))
            #expect(try await !sealed.replace(value, by: [9]))
            let kept = try await logins.list().first { $0.name == "staff" }
            #expect(kept?.clientSecretSealed == [8])
        }
    }

    @Test("The issuer's keys are due at the service that serves the console, and no other")
    func keys() async throws {
        try await StorageFixture.run { fixture in
            let (logins, jwks) = (fixture.database.consoleLogins, fixture.database.jwks)
            _ = try await logins.set(login("staff"))
            let url = "https://id.example/jwks"
            #expect(try await jwks.due(.operators) == [url])
            #expect(try await jwks.due(.readers) == [])
            #expect(try await jwks.all().map(\.url) == [url])
            try await jwks.keep(url, ["keys": []], freshFor: .seconds(100))
            #expect(try await jwks.due(.operators) == [])
            try await jwks.prune()
            #expect(try await jwks.find(url) != nil)
            _ = try await logins.remove(StorageFixture.app, name: "staff")
            try await jwks.prune()
            #expect(try await jwks.find(url) == nil)
        }
    }
}
