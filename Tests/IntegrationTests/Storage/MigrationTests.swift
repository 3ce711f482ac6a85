import EventLoop
import Storage
import Support
import Testing

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct MigrationTests {
    @Test("Promise 11: migrating from several replicas at once applies each step once")
    func migratesFromSeveralAtOnce() async throws {
        try await StorageFixture.run(migrated: false) { fixture in
            #expect(try await fixture.database.schemaState() == .missing)
            try await fixture.another { other in
                async let first = fixture.database.migrate()
                async let second = other.migrate()
                async let third = other.migrate()
                let applied = try await [first, second, third]
                #expect(applied.flatMap { $0 }.sorted() == Array(1...PushDatabase.schemaVersion))
                #expect(try await other.migrate().isEmpty)
            }
            #expect(
                try await fixture.database.schemaState()
                    == .usable(version: PushDatabase.schemaVersion)
            )
        }
    }

    @Test("Promise 11: a service older than the schema allows ends, naming both versions")
    func refusesASchemaTooNew() async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query(
                "insert into carillon_schema values (1000, 999, now())"
            )
            await #expect(throws: SchemaTooNew.self) { try await fixture.database.migrate() }
            let error = await #expect(throws: SchemaTooNew.self) {
                try await fixture.database.run()
            }
            #expect(error?.description.contains("version 1000") == true)
            #expect(error?.description.contains("version 999") == true)
            #expect(
                error?.description.contains("built for version \(PushDatabase.schemaVersion)")
                    == true
            )
        }
    }

    @Test("Promise 11: a newer schema that still allows this version is used as it is")
    func usesANewerSchema() async throws {
        try await StorageFixture.run { fixture in
            let newer = PushDatabase.schemaVersion + 1
            _ = try await fixture.server.query(
                "insert into carillon_schema values (\(newer), 1, now())"
            )
            #expect(try await fixture.database.schemaState() == .usable(version: newer))
            #expect(try await fixture.database.migrate().isEmpty)
        }
    }

    @Test(
        "Promise 11: a service without a schema waits, reports it, and continues once it exists"
    )
    func waitsForTheSchema() async throws {
        try await StorageFixture.run(migrated: false) { fixture in
            let database = fixture.database
            let running = Task(executorPreference: fixture.loop) { try await database.run() }
            let reason = try await eventually("the reason") {
                database.notReadyReason().flatMap { $0.contains("missing") ? $0 : nil }
            }
            #expect(reason.contains("carillon migrate"))
            try await fixture.another { other in _ = try await other.migrate() }
            try await database.untilReady()
            #expect(database.notReadyReason() == nil)
            running.cancel()
            try await running.value
        }
    }
}
