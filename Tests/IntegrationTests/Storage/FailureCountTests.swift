import JSON
import PushCore
import PushStorage
import Support
import Testing

@Suite(
    "Reasons of failed deliveries",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct FailureCountTests {
    private func failed(_ delivery: Delivery, _ reason: String?, _ status: Int? = 400)
        -> DeliveryRecord
    {
        ended(delivery, .failed, status: status, reason: reason)
    }

    @Test("Failures are counted once by provider and reason, with the ledger")
    func settled() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            var names: [JSONValue] = []
            for number in 10..<16 {
                names.append(
                    .string(try await fixture.install(fixture.iPhone("fa\(number)")).objectID)
                )
            }
            let session = try await database.sessions.open(name: "replica")
            let push = try fixture.push("why", ["installations": .array(names)])
            let members = try await database.intake.plan(session: session, [push]).deliveries
            #expect(try await database.pushes.find(push.id)?.failures == [])
            let first = [
                failed(members[0], "BadTopic"), delivered(members[1]),
                failed(members[2], "the payload is too large: 5001 bytes of at most 4096", nil),
            ]
            _ = try await database.ledger.record(session: session, first)
            // A caller that lost the reply repeats the call.
            _ = try await database.ledger.record(session: session, first)
            _ = try await database.ledger.record(
                session: session,
                [
                    failed(members[3], "the payload is too large: 6000 bytes of at most 4096"),
                    failed(members[4], nil, 418), failed(members[5], nil, nil),
                ]
            )
            let record = try #require(try await database.pushes.find(push.id))
            #expect(record.status == .done)
            #expect(
                record.failures == [
                    FailureCount(provider: .apns, reason: "the payload is too large", count: 2),
                    FailureCount(provider: .apns, reason: "BadTopic", count: 1),
                    FailureCount(provider: .apns, reason: "no reason given", count: 1),
                    FailureCount(provider: .apns, reason: "status 418", count: 1),
                ]
            )
            #expect(record.failures.reduce(0) { $0 + $1.count } == record.ledger.failed)
            let examples = try await database.deliveries.examples(
                of: record.failures,
                in: push.id,
                limit: 1
            )
            #expect(examples.map(\.targets.count) == [1, 1, 1, 1])
            #expect(examples[1].targets == [members[0].target])
            let listed = try await database.pushes.list(app: StorageFixture.app)
            #expect(listed.first?.failures == record.failures)
        }
    }

    @Test("A checkpoint counts the failures of its shard, as rows are counted")
    func checkpointed() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<6)
            let push = try await fixture.broadcast("why", shardSize: 20)
            let session = try await database.sessions.open(name: "replica")
            let shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard)
            let reasons: [(String?, Int?)] = [
                ("Unregistered", 410), ("Unregistered", 410), (nil, 503),
                ("the payload is too large: 4097 bytes of at most 4096", nil), (nil, nil),
            ]
            var records = zip(members, reasons).map { member, end in
                failed(member, end.0, end.1)
            }
            records.append(
                inFlight(members[5])
            )
            let checkpoint = ShardCheckpoint(cursor: nil, records: records, isFinished: true)
            for _ in 0..<2 {
                _ = try await database.ledger.checkpoint(session: session, shard, checkpoint)
            }
            _ = try await database.ledger.record(
                session: session,
                [failed(members[5], "Unregistered", 410)]
            )
            let record = try #require(try await database.pushes.find(push.id))
            #expect(
                record.failures.map { "\($0.count) \($0.reason)" } == [
                    "3 Unregistered", "1 no reason given", "1 status 503",
                    "1 the payload is too large",
                ]
            )
            #expect(record.ledger.failed == 6)
        }
    }

    @Test("A push keeps the most frequent reasons apart, and counts every failure")
    func bounded() async throws {
        try await StorageFixture.run { fixture in
            let database = fixture.database
            try await fixture.populate(0..<100)
            let push = try await fixture.broadcast("noise", shardSize: 200)
            let session = try await database.sessions.open(name: "replica")
            var shard = try #require(try await fixture.claim(session).first)
            let members = try await fixture.members(of: shard)
            for start in stride(from: 0, to: 100, by: 20) {
                let part = members[start..<(start + 20)]
                let checkpoint = ShardCheckpoint(
                    cursor: part.last?.target,
                    records: part.enumerated().map { index, member in
                        failed(member, index < 5 ? "usual" : "one of \(start + index)")
                    },
                    isFinished: start == 80
                )
                _ = try await database.ledger.checkpoint(session: session, shard, checkpoint)
                shard.cursor = part.last?.target
            }
            let record = try #require(try await database.pushes.find(push.id))
            #expect(record.ledger.failed == 100)
            #expect(record.failures.reduce(0) { $0 + $1.count } == 100)
            #expect(record.failures.count <= 33)
            #expect(record.failures[0].count + record.failures[1].count > 60)
            #expect(record.failures.contains { $0.reason == "usual" && $0.count == 25 })
            #expect(record.failures.contains { $0.reason == "other" })
            #expect(record.failures.json.array?.count == 10)
        }
    }
}
