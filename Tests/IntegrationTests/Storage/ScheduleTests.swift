import InstallationStorage
import JSON
import PushCore
import PushStorage
import Storage
import Support
import Testing

@Suite(
    "Scheduled pushes",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct ScheduleTests {
    private func request(_ number: Int) -> JSONObject {
        [
            "tokens": [["platform": "fcm", "token": .string("token-\(number)")]],
            "push_time": .string(Instant.now().adding(milliseconds: 3_600_000).iso8601),
        ]
    }

    /// Makes all scheduled pushes due.
    private func comeTime(_ fixture: StorageFixture) async throws {
        _ = try await fixture.server.query(
            "update pushes set release_at = now() where status = 'scheduled'"
        )
    }

    @Test("A future push is not released, and a due one is, with its deliveries")
    func waits() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            #expect(try await database.schedules.untilNextRelease() == nil)
            let push = try fixture.push("later", request(1))
            let planned = try await database.intake.plan(session: session, [push])
            #expect(planned.scheduledPushIDs == [push.id])
            #expect(planned.newPushIDs == [push.id])
            #expect(planned.deliveries.isEmpty)
            #expect(planned.planningPushIDs.isEmpty)
            let accepted = try #require(try await database.pushes.find(push.id))
            #expect(accepted.status == .scheduled)
            #expect(accepted.releaseAt == push.releaseAt)
            #expect(accepted.ledger == Ledger())

            #expect(try await database.schedules.release(session: session).pushes.isEmpty)
            let wait = try #require(try await database.schedules.untilNextRelease())
            #expect(wait > .seconds(3000) && wait <= .seconds(3600))
            // As if it had been accepted long ago.
            _ = try await fixture.server.query(
                "update pushes set created_at = created_at - interval '30 days'"
            )
            try await comeTime(fixture)
            #expect(try await database.schedules.untilNextRelease() == .zero)
            let released = try await database.schedules.release(session: session)
            #expect(released.pushes.map(\.id) == [push.id])
            #expect(released.pushes.first?.eventID == "later")
            #expect(released.deliveries.map(\.pushID) == [push.id])
            // It keeps the direct lane, and its rows are today's.
            #expect(released.deliveries.map(\.lane) == [0])
            #expect(
                released.deliveries.allSatisfy { $0.key.day >= accepted.updatedAt.day }
            )
            let after = try #require(try await database.pushes.find(push.id))
            #expect(after.status == .sending)
            #expect(after.createdAt < accepted.createdAt)
            #expect(
                try await database.ledger.record(
                    session: session,
                    released.deliveries.map(delivered)
                ).count == 1
            )
            #expect(try await fixture.balancedLedger(of: push.id).delivered == 1)
            let done = try #require(try await database.pushes.find(push.id))
            #expect(done.status == .done)
            // It is counted by its deliveries, and still known once they are deleted.
            let counts = [
                push.id: [PlatformCount(platform: .fcm, isDelivered: true, count: 1)]
            ]
            #expect(try await database.pushes.platforms(of: [done]) == counts)
            _ = try await fixture.server.query("delete from deliveries")
            #expect(try await database.pushes.platforms(of: [done]).isEmpty)
            let kept = try #require(try await database.pushes.find(push.id))
            #expect(try await database.pushes.platforms(of: [kept]) == counts)
        }
    }

    @Test("Two replicas that release at once release each push once, with its deliveries once")
    func releasesOnce() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let first = try await database.sessions.open(name: "first")
            let pushes = try (0..<60).map { try fixture.push("event-\($0)", request($0)) }
            _ = try await database.intake.plan(session: first, pushes)
            try await comeTime(fixture)
            try await fixture.another { other in
                let second = try await other.sessions.open(name: "second")
                let released = try await withThrowingTaskGroup(of: [ReleasedBatch].self) { group in
                    for (door, session) in [(database, first), (other, second)] {
                        for _ in 0..<3 {
                            group.addTask {
                                var batches: [ReleasedBatch] = []
                                // It skips rows that others have locked, until nothing is left.
                                while try await door.schedules.untilNextRelease() != nil {
                                    batches.append(
                                        try await door.schedules.release(
                                            session: session,
                                            limit: 7
                                        )
                                    )
                                }
                                return batches
                            }
                        }
                    }
                    return try await group.reduce(into: []) { $0 += $1 }
                }
                let ids = released.flatMap(\.pushes).map(\.id)
                #expect(ids.sorted() == pushes.map(\.id).sorted())
                let sent = released.flatMap(\.deliveries).map(\.pushID)
                #expect(sent.sorted() == pushes.map(\.id).sorted())
            }
            for push in pushes {
                #expect(try await fixture.balancedLedger(of: push.id).targeted == 1)
            }
        }
    }

    @Test("A broadcast is planned by the first dispatcher once it is due")
    func broadcasts() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            for number in 0..<3 { try await fixture.install(fixture.iPhone("ab0\(number)")) }
            let session = try await database.sessions.open(name: "replica")
            var object = request(0)
            object["tokens"] = nil
            let push = try fixture.push("all", object)
            _ = try await database.intake.plan(session: session, [push])
            #expect(try await database.planning.claim(session: session) == nil)
            // Registered after the push was accepted and before its time, it is in its audience.
            try await fixture.install(fixture.iPhone("ab09"))
            try await comeTime(fixture)
            let released = try await database.schedules.release(session: session)
            #expect(released.isPlanning)
            #expect(released.deliveries.isEmpty)
            #expect(try await database.planning.claim(session: session)?.id == push.id)
            let page = try await database.planning.planPage(
                session: session,
                pushID: push.id,
                shardSize: 100
            )
            #expect(page.inserted == 4)
            #expect(try await fixture.balancedLedger(of: push.id).pending == 4)
        }
    }

    @Test("A push cancelled before its time is never released, and after it the rest is suppressed")
    func cancels() async throws {
        try await StorageFixture.run { fixture in
            let (database, pushes) = (fixture.database, fixture.database.pushes)
            let session = try await database.sessions.open(name: "replica")
            let new = try (0..<3).map { try fixture.push("event-\($0)", request($0)) }
            _ = try await database.intake.plan(session: session, new)
            let listed = try await pushes.scheduled(app: StorageFixture.app)
            #expect(Set(listed.map(\.id)) == Set(new.map(\.id)))
            let numbers = Dictionary(
                uniqueKeysWithValues: listed.map { ($0.id, $0.scheduleID ?? 0) }
            )
            #expect(Set(numbers.values).count == 3)
            let number = try #require(numbers[new[0].id])
            #expect(try await !pushes.cancelScheduled(app: "another", scheduleID: number))
            #expect(
                try await pushes.cancelScheduled(app: StorageFixture.app, scheduleID: number)
            )
            #expect(
                try await !pushes.cancelScheduled(app: StorageFixture.app, scheduleID: number)
            )
            #expect(try await pushes.cancel(new[1].id)?.status == .cancelled)
            #expect(try await pushes.scheduled(app: nil).map(\.id) == [new[2].id])

            try await comeTime(fixture)
            _ = try await fixture.server.query(
                "update pushes set release_at = now() where status = 'cancelled'"
            )
            let released = try await database.schedules.release(session: session)
            #expect(released.pushes.map(\.id) == [new[2].id])
            for push in new.prefix(2) {
                #expect(try await pushes.find(push.id)?.status == .cancelled)
                #expect(try await fixture.balancedLedger(of: push.id) == Ledger())
            }
            // A released push is not scheduled any more, but can be cancelled.
            let last = try #require(numbers[new[2].id])
            #expect(try await !pushes.cancelScheduled(app: StorageFixture.app, scheduleID: last))
            try await database.sessions.close(session)
            #expect(try await pushes.cancel(new[2].id)?.status == .cancelled)
            #expect(try await fixture.suppressRest() == 1)
            #expect(try await fixture.balancedLedger(of: new[2].id).suppressed == 1)
        }
    }

    @Test("An HTTP push for later is scheduled from the start, and is one with its event")
    func acceptedOverHTTP() async throws {
        try await StorageFixture.run { fixture in
            let (database, pushes) = (fixture.database, fixture.database.pushes)
            let push = try fixture.push("http", request(1))
            let record = OutgoingRecord(topic: "push.requests", key: [1], value: [2])
            let accepted = try await pushes.accept(push, record: record)
            #expect(accepted.status == .queued)
            let listed = try #require(try await pushes.scheduled(app: StorageFixture.app).first)
            #expect(listed.id == push.id)
            let session = try await database.sessions.open(name: "replica")
            let planned = try await database.intake.plan(session: session, [push])
            #expect(planned.scheduledPushIDs == [push.id])
            let again = try #require(try await pushes.scheduled(app: StorageFixture.app).first)
            #expect(again.status == .scheduled)
            #expect(again.scheduleID == listed.scheduleID)
            #expect(again.createdAt == listed.createdAt)

            // It is cancelled before its event has come, which changes nothing any more.
            let other = try fixture.push("http-2", request(2))
            _ = try await pushes.accept(other, record: record)
            let number = try #require(try await pushes.find(other.id)?.scheduleID)
            #expect(
                try await pushes.cancelScheduled(app: StorageFixture.app, scheduleID: number)
            )
            let late = try await database.intake.plan(session: session, [other])
            #expect(late.newPushIDs.isEmpty)
            #expect(try await pushes.find(other.id)?.status == .cancelled)
        }
    }

    @Test("A push that cannot be released is isolated, and the others are released")
    func unreleasable() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            let pushes = try (0..<5).map { try fixture.push("event-\($0)", request($0)) }
            _ = try await database.intake.plan(session: session, pushes)
            try await comeTime(fixture)
            _ = try await fixture.server.query(
                "alter table deliveries add constraint poison check (token <> 'token-3')"
            )
            let error = await #expect(throws: StorageError.self) {
                _ = try await database.schedules.release(session: session)
            }
            #expect(error?.isOfTheValues == true)
            var released: Set<String> = []
            while try await database.schedules.untilNextRelease() != nil {
                do {
                    let batch = try await database.schedules.release(session: session, limit: 1)
                    released.formUnion(batch.pushes.map(\.id))
                } catch let error as UnreleasablePush {
                    #expect(error.id == pushes[3].id)
                    try await database.pushes.fail(error.id, error: error.cause.description)
                }
            }
            #expect(released == Set(pushes.map(\.id)).subtracting([pushes[3].id]))
            #expect(try await database.pushes.find(pushes[3].id)?.status == .failed)
        }
    }

    @Test("A dry run and a push in the past do not wait")
    func atOnce() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            let session = try await database.sessions.open(name: "replica")
            var dry = request(1)
            dry["dry_run"] = true
            var past = request(2)
            past["push_time"] = "2026-01-01T00:00:00Z"
            let pushes = [try fixture.push("dry", dry), try fixture.push("past", past)]
            let planned = try await database.intake.plan(session: session, pushes)
            #expect(planned.scheduledPushIDs.isEmpty)
            #expect(planned.planningPushIDs == [pushes[0].id])
            #expect(planned.deliveries.map(\.pushID) == [pushes[1].id])
        }
    }

    @Test("Installations that a wave invalidated are counted by reason, and restored")
    func restores() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            for number in 0..<3 { try await fixture.install(fixture.iPhone("ab0\(number)")) }
            let start = Instant.now()
            _ = try await fixture.server.query(
                """
                update installations set valid = false, invalidated_at = now(),
                    invalid_reason = case when token = 'ab00' then 'Other' else 'Unregistered' end
                """
            )
            let found = try await database.installations.invalidated(since: start)
            #expect(found.map(\.app) == [StorageFixture.app, StorageFixture.app])
            #expect(found.map(\.reason) == ["Other", "Unregistered"])
            #expect(found.map(\.count) == [1, 2])
            #expect(
                try await database.installations.restore(since: start, reason: "Unregistered")
                    == 2
            )
            #expect(
                try await database.installations.invalidated(since: start).map(\.reason)
                    == ["Other"]
            )
            #expect(try await database.installations.invalidated(since: .latest).isEmpty)
        }
    }
}
