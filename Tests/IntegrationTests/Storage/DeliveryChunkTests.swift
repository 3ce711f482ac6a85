import JSON
import PushCore
import Support
import Testing

@testable import PushStorage
@testable import Storage
@testable import StorageAdmin

@Suite(
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct DeliveryChunkTests {
    private func end(
        _ member: Delivery,
        _ outcome: Outcome = .delivered,
        reason: String? = nil,
        message: String? = nil
    ) -> DeliveryRecord {
        ended(
            member,
            outcome,
            status: outcome == .delivered ? 200 : 400,
            reason: reason,
            messageID: message
        )
    }

    /// Makes a broadcast to 30 phones, of which one failed and one is an FCM device, as one
    /// checkpoint.
    private func sent(
        _ fixture: StorageFixture,
        _ id: String
    ) async throws -> (push: NewPush, members: [Delivery]) {
        let database = fixture.database
        let push = try await fixture.broadcast(id, shardSize: 100)
        let session = try await database.sessions.open(name: "replica")
        let shard = try #require(try await fixture.claim(session).first)
        var members = try await fixture.members(of: shard)
        members[3].device.provider = .fcm
        members[3].device.environment = .none
        var records = members.map { end($0) }
        records[3] = end(members[3], message: "projects/p/messages/3")
        records[4] = end(members[4], .failed, reason: "BadPath")
        let checkpoint = ShardCheckpoint(
            cursor: members.last?.target,
            records: records.shuffled(),
            isFinished: true
        )
        _ = try await database.ledger.checkpoint(session: session, shard, checkpoint)
        // Its answer was lost, so it is repeated.
        _ = try await database.ledger.checkpoint(session: session, shard, checkpoint)
        try await database.sessions.close(session)
        return (push, members)
    }

    @Test("A broadcast's delivered members are a chunk for each form, equivalent to rows")
    func isRead() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<30)
            let (push, members) = try await sent(fixture, "chunks")
            #expect(
                try await fixture.server.query(
                    "SELECT cardinality(targets), messages FROM delivery_chunks ORDER BY 1"
                ) == ["1|{projects/p/messages/3}", "28|"]
            )
            #expect(
                try await fixture.server.query("SELECT target FROM deliveries")
                    == [members[4].target]
            )
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 29)
            #expect(ledger.failed == 1)
            #expect(ledger.isSettled)
            let states = try await database.deliveries.states(pushID: push.id)
            #expect(states.map(\.target) == members.map(\.target))
            #expect(states.map(\.installationID) == members.map(\.installationID))
            #expect(states.filter { $0.state == .delivered && $0.status == 200 }.count == 29)
            let counts = try await database.deliveries.counts(of: [push.id])
            #expect(counts.map(\.count).reduce(0, +) == 30)
            let record = try #require(try await database.pushes.find(push.id))
            let examples = try await database.deliveries.examples(
                of: record.failures,
                in: push.id,
                limit: 5
            )
            #expect(examples.map(\.targets) == [[members[4].target]])
            let named = [members[3], members[4], members[5]].map(\.target)
            let recent = try #require(
                try await database.deliveries.recent(
                    of: named + ["unknown"],
                    app: record.app,
                    pushes: 10,
                    withinMilliseconds: 5000
                )
            )
            #expect(recent.deliveries.map(\.target) == named)
            #expect(recent.deliveries.map(\.state) == [.delivered, .failed, .delivered])
            #expect(recent.pushes == 1 && recent.since == record.createdAt)
        }
    }

    @Test("An erased device is overwritten in its chunk, and its neighbours stay unchanged")
    func isErased() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<30)
            let (push, members) = try await sent(fixture, "erased")
            // The first and the last one too, by which the chunk is found.
            for number in [0, 3, 12, 29] {
                let target = members[number].target
                let subject = Subject(app: StorageFixture.app, .installation, target)
                let export = try await database.erasures.export(subject)
                let shown = try #require(export[.deliveries].first?.object)
                #expect(shown["pushId"] == .string(push.id))
                #expect(shown["providerMessageId"]?.string?.isEmpty == false)
                let receipt = try await database.erasures.erase(
                    subject,
                    by: AuditEntry(app: "shop", actor: "test", action: "erase", status: 200)
                )
                #expect(receipt.erased["deliveries"] == 1)
            }
            for (text, count) in [
                (members[0].target, 0), (members[3].target, 0), (members[12].target, 0),
                (members[29].target, 0), ("projects/p/messages/3", 0), (members[1].target, 1),
            ] {
                for table in ["delivery_chunks", "deliveries"] {
                    let found = try await fixture.server.query(
                        "SELECT count(*) FROM \(table) t WHERE strpos(t::text, '\(text)') > 0"
                    )
                    #expect(found == [table == "deliveries" ? "0" : "\(count)"], "\(text)")
                }
            }
            let ledger = try await fixture.balancedLedger(of: push.id)
            #expect(ledger.delivered == 29)
            let states = try await database.deliveries.states(pushID: push.id)
            #expect(states.filter { $0.installationID == nil }.count == 4)
            #expect(
                try await fixture.server.query(
                    "SELECT first_id, last_id FROM delivery_chunks WHERE provider = 'apns'"
                ) == ["\(members[1].target)|\(members[28].target)"]
            )
        }
    }

    @Test("A deleted app's chunks go with its pushes, and an old day's chunks with the day")
    func isDropped() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<30)
            _ = try await database.maintenance.maintain(now: .now())
            _ = try await sent(fixture, "dropped")
            #expect(
                try await fixture.server.query("SELECT count(*) FROM delivery_chunks_default")
                    == ["0"]
            )
            let later = Instant.now().adding(milliseconds: 9 * 86_400_000)
            _ = try await database.maintenance.maintain(now: later)
            #expect(try await fixture.server.query("SELECT count(*) FROM delivery_chunks") == ["0"])

            let (push, _) = try await sent(fixture, "deleted")
            #expect(try await database.pushes.audit(push.id)?.counted.delivered == 29)
            let deletion = try await database.apps.delete(StorageFixture.app)
            #expect(deletion.deliveries == 30)
            #expect(try await fixture.server.query("SELECT count(*) FROM delivery_chunks") == ["0"])
        }
    }
}
