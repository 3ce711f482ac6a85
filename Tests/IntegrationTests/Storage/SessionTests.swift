import JSON
import Postgres
import PushCore
import Support
import Testing

@testable import PushStorage
@testable import Storage

@Suite(
    "Takeover from a dead dispatcher",
    .timeLimit(.minutes(1)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct SessionTests {
    private static let expire = "update dispatchers set lease_until = now() - interval '1 s'"

    /// Makes a push to two devices, whose rows that session owns.
    private func plan(
        _ fixture: StorageFixture,
        _ id: String,
        session: Int
    ) async throws -> [Delivery] {
        try await fixture.database.intake.plan(
            session: session,
            [
                try fixture.push(
                    id,
                    [
                        "tokens": [
                            ["platform": "fcm", "token": .string(id + "-one")],
                            ["platform": "fcm", "token": .string(id + "-two")],
                        ]
                    ]
                )
            ]
        ).deliveries
    }

    @Test(
        "Rows of a dead session are released, except a locked one, which follows once it is unlocked"
    )
    func locked() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let dead = try await database.sessions.open(name: "dead")
            let planned = try await plan(fixture, "locked", session: dead)
            _ = try await fixture.server.query(Self.expire)
            try await fixture.another { stopped in
                try await stopped.database.transaction { transaction in
                    let held = try await transaction.execute(
                        "SELECT 1 AS one FROM deliveries WHERE target = $1 FOR UPDATE",
                        [.text(planned[0].target)]
                    )
                    #expect(held.count == 1)
                    let reaped = try await database.sessions.reap()
                    #expect(reaped.sessions == 1)
                    #expect(reaped.deliveries == 1)
                    let next = try await database.sessions.open(name: "next")
                    let claimed = try await database.due.claim(
                        session: next,
                        lane: 0,
                        limit: 10
                    )
                    #expect(claimed.map(\.key) == [planned[1].key])
                }
            }
            #expect(try await database.sessions.reap().deliveries == 1)
        }
    }

    @Test("Rows are released although a stopped transaction locks the session's row")
    func heldSession() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let name = "carillon-stopped"
            let stopped = PushDatabase(
                DatabaseConfiguration(uri: fixture.server.url, applicationName: name),
                on: fixture.loop
            )
            let dead = try await database.sessions.open(name: "dead", connections: name)
            let planned = try await plan(fixture, "held", session: dead)
            _ = try await fixture.server.query(Self.expire)
            await #expect(throws: StorageError.self) {
                try await stopped.database.transaction { transaction in
                    try await SessionStore.hold(dead, transaction)
                    var deliveries = 0
                    while deliveries == 0 {
                        deliveries = try await database.sessions.reap().deliveries
                    }
                    #expect(deliveries == planned.count)
                }
            }
            await stopped.close()
        }
    }

    @Test("The connections of a process with a newer session stay open")
    func livesOn() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let name = "carillon-alive"
            let alive = PushDatabase(
                DatabaseConfiguration(uri: fixture.server.url, applicationName: name),
                on: fixture.loop
            )
            _ = try await database.sessions.open(name: "before", connections: name)
            _ = try await fixture.server.query(Self.expire)
            let now = try await database.sessions.open(name: "now", connections: name)
            try await alive.database.transaction { transaction in
                try await SessionStore.hold(now, transaction)
                #expect(try await database.sessions.reap().sessions == 1)
                try await SessionStore.hold(now, transaction)
            }
            await alive.close()
        }
    }

    @Test("Rows, shards and plans without a session's row are found")
    func orphans() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let dead = try await database.sessions.open(name: "dead")
            let planned = try await plan(fixture, "orphans", session: dead)
            for index in 0..<3 { try await fixture.install(fixture.iPhone("a\(index)")) }
            let large = try fixture.push("large", [:])
            _ = try await database.intake.plan(session: dead, [large])
            #expect(try await database.planning.claim(session: dead)?.id == large.id)
            // A session that was itself ended before it released anything leaves this.
            _ = try await fixture.server.query("delete from dispatchers")
            #expect(try await database.sessions.reap().deliveries == planned.count)
            let next = try await database.sessions.open(name: "next")
            #expect(try await database.planning.claim(session: next)?.id == large.id)
        }
    }
}
