import JSON
import PushCore
import Support
import Testing

@testable import PushStorage

@Suite(
    "The age of the oldest unplanned push is known",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct PlanningAgeTests {
    @Test("The oldest push in planning counts, of all apps, but a scheduled one does not")
    func oldest() async throws {
        try await StorageFixture.run { fixture in
            try await fixture.createApp("other")
            let (database, server) = (fixture.database, fixture.server)
            #expect(try await database.planning.oldestAge() == nil)
            let session = try await database.sessions.open(name: "replica")
            let later = Instant.now().adding(milliseconds: 60_000).iso8601
            let pushes = try [
                fixture.push("a", ["where": ["badge": 0]]),
                fixture.push("b", ["channels": ["news"]], app: "other"),
                fixture.push("c", ["channels": ["news"], "push_time": .string(later)]),
            ]
            _ = try await database.intake.plan(session: session, pushes)
            _ = try await server.query(
                """
                update pushes set created_at = now() - interval '2 hours' where event_id = 'c';
                update pushes set created_at = now() - interval '90 s' where event_id = 'b'
                """
            )
            let age = try #require(try await database.planning.oldestAge())
            #expect((.seconds(90) ..< .seconds(150)).contains(age))
            _ = try await server.query("update pushes set status = 'done' where event_id = 'b'")
            let next = try #require(try await database.planning.oldestAge())
            #expect(next < .seconds(90))
        }
    }
}
