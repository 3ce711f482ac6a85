import JSON
import PushCore
import Storage
import Support
import Testing

@testable import PushStorage

/// A dispatcher whose clock is ahead or behind reads records that HTTP accepted.
@Suite(
    "The row's times of a push are not computed again",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct AcceptedTimesTests {
    /// Returns the push as it was accepted, and as a dispatcher reads it whose clock is `ahead`.
    private func accept(
        _ name: String,
        _ object: JSONObject,
        ahead: Int64,
        _ fixture: StorageFixture
    ) async throws -> (accepted: NewPush, read: NewPush) {
        let accepted = try fixture.push(name, object)
        _ = try await fixture.database.pushes.accept(
            accepted,
            record: OutgoingRecord(topic: "push.requests", key: nil, value: nil)
        )
        let now = Instant.now().adding(milliseconds: ahead * 1000)
        let read = accepted.with(
            releaseAt: accepted.request.releaseTime(acceptedAt: now),
            expiresAt: accepted.request.expiresAt(acceptedAt: now)
        )
        return (accepted, read)
    }

    private func inSeconds(_ seconds: Int64) -> JSONValue {
        .string(Instant.now().adding(milliseconds: seconds * 1000).iso8601)
    }

    @Test(
        "A push in 60 s is not sent early by a dispatcher whose clock is two minutes ahead",
        arguments: [true, false]
    )
    func notEarly(isNamed: Bool) async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            var object: JSONObject = ["push_time": inSeconds(60)]
            object[isNamed ? "installations" : "channels"] = [.string(phone.objectID)]
            let (accepted, read) = try await accept("soon", object, ahead: 120, fixture)
            #expect(read.releaseAt == nil && read.isForFewDevices == isNamed)
            if isNamed {
                guard case .many? = try await database.fewDevices.lookUp([read]).first else {
                    Issue.record("it waits for its time, as rows do")
                    return
                }
            }
            let planned = try await database.intake.plan(session: session, [read])
            #expect(planned.scheduledPushIDs == [read.id] && planned.deliveries.isEmpty)
            let stored = try #require(try await database.pushes.find(read.id))
            #expect(stored.status == .scheduled && stored.releaseAt == accepted.releaseAt)
            #expect(try await database.schedules.release(session: session).pushes.isEmpty)
        }
    }

    @Test(
        "A push that was due when HTTP accepted it is sent at once, also by a clock that is behind"
    )
    func notLate() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            let object: JSONObject = [
                "push_time": inSeconds(-1), "installations": [.string(phone.objectID)],
            ]
            let (_, read) = try await accept("now", object, ahead: -120, fixture)
            #expect(read.releaseAt != nil)
            let planned = try await database.intake.plan(session: session, [read])
            #expect(planned.scheduledPushIDs.isEmpty && planned.deliveries.count == 1)
        }
    }

    @Test("Rule 15: its deliveries expire at the row's time", arguments: [-3600, 120, 3600])
    func expiry(ahead: Int64) async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let phone = try await fixture.install(fixture.iPhone("aa11"))
            let session = try await database.sessions.open(name: "replica")
            let object: JSONObject = [
                "expiration_interval": 100, "installations": [.string(phone.objectID)],
            ]
            let (accepted, read) = try await accept("short", object, ahead: ahead, fixture)
            #expect(read.expiresAt != accepted.expiresAt)
            guard
                case .new(let found, _, true)? =
                    try await database.fewDevices.lookUp([read]).first
            else {
                Issue.record("it is new")
                return
            }
            #expect(found.map(\.expiresAt) == [accepted.expiresAt])
            let planned = try await database.intake.plan(session: session, [read])
            #expect(planned.deliveries.map(\.expiresAt) == [accepted.expiresAt])
        }
    }

    @Test("A session's renewal measures Postgres' clock")
    func measured() async throws {
        try await StorageFixture.run { fixture in
            let clock = fixture.database.clock
            let session = try await fixture.database.sessions.open(name: "replica")
            #expect(try await fixture.database.sessions.heartbeat(session))
            #expect(!clock.isInDoubt)
            // This is as after an answer of a server with another clock.
            let now = MonotonicInstant.now()
            clock.measured(.earliest, asked: now, answered: now)
            #expect(clock.isInDoubt)
            #expect(try await fixture.database.sessions.heartbeat(session))
            #expect(!clock.isInDoubt)
        }
    }
}
