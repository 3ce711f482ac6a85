import Postgres
import PushCore
import Support
import Testing

@testable import Storage

/// Claims of the outbox: apps take turns.
@Suite(
    "Turns of apps in the outbox",
    .timeLimit(.minutes(2)),
    .enabled(if: TestEnvironment.databaseURL != nil, "DATABASE_URL is not set")
)
struct OutboxTurnTests {
    /// Stores records as services do, with the numbers as values, in their order.
    private func append(
        _ numbers: Range<Int>,
        to queue: String,
        orderKey: String? = nil,
        _ fixture: StorageFixture
    ) async throws {
        try await fixture.database.database.transaction { transaction in
            try await OutboxStore.append(
                numbers.map {
                    OutgoingRecord(
                        topic: "t",
                        key: nil,
                        value: Array(String($0).utf8),
                        orderKey: orderKey,
                        queue: queue
                    )
                },
                transaction
            )
        }
    }

    /// The numbers of a queue's records.
    private func numbers(_ records: [ClaimedOutboxRecord], of queue: String) -> [Int] {
        records.filter { $0.record.queue == queue }
            .compactMap { Int(String(decoding: $0.record.value ?? [], as: UTF8.self)) }
    }

    private func count(_ condition: String, _ fixture: StorageFixture) async throws -> Int {
        try await fixture.server.query("SELECT count(*) FROM outbox WHERE \(condition)")
            .first.flatMap(Int.init) ?? -1
    }

    @Test("A record is in the first claim, although another app has 2,000 older ones")
    func firstClaim() async throws {
        try await StorageFixture.run { fixture in
            let outbox = fixture.database.outbox
            try await append(0..<2000, to: "large", fixture)
            try await append(0..<1, to: "small", fixture)
            var claim = try await outbox.claim()
            #expect(numbers(claim.records, of: "small") == [0])
            // The small app's part is not lost.
            #expect(claim.records.count == 500)
            #expect(claim.hasMore)
            var found: [Int] = []
            for _ in 0..<6 where !claim.records.isEmpty {
                found += numbers(claim.records, of: "large")
                try await outbox.finish(claim.records.map { ($0, .acknowledged) })
                claim = try await outbox.claim(from: claim.next)
            }
            #expect(found == Array(0..<2000))
            #expect(!claim.hasMore && claim.next == "")
            #expect(try await outbox.count() == 0)
        }
    }

    @Test("More queues than a claim has records get their turns one after the other")
    func manyQueues() async throws {
        try await StorageFixture.run { fixture in
            let outbox = fixture.database.outbox
            let queues = (10..<35).map { "app-\($0)" }
            for queue in queues { try await append(0..<3, to: queue, fixture) }
            var turns: [String] = []
            var next = ""
            for _ in 0..<3 {
                let claim = try await outbox.claim(limit: 10, from: next)
                #expect(claim.records.count == 10 && claim.hasMore)
                turns += Set(claim.records.map(\.record.queue)).sorted()
                next = claim.next
            }
            // Five queues are left for the third claim, which has two records of each.
            #expect(turns == queues)
            #expect(next == "")
            var claims = 0
            var claim = try await outbox.claim(limit: 10, from: next)
            while claim.hasMore {
                #expect(claim.records.count <= 10)
                claims += 1
                claim = try await outbox.claim(limit: 10, from: claim.next)
            }
            #expect(try await count("due_at <= now()", fixture) == 0)
            #expect(claims < 12)
        }
    }

    @Test("A claim of more queues than its limit begins again with the first one")
    func beginsAgain() async throws {
        try await StorageFixture.run { fixture in
            let outbox = fixture.database.outbox
            for queue in ["a", "b", "c"] { try await append(0..<1, to: queue, fixture) }
            let first = try await outbox.claim(limit: 2)
            #expect(first.records.map(\.record.queue) == ["a", "b"] && first.next == "c")
            try await append(1..<2, to: "a", fixture)
            let second = try await outbox.claim(limit: 2, from: first.next)
            #expect(second.records.map(\.record.queue) == ["c"])
            // "a" was not looked at.
            #expect(second.hasMore && second.next == "")
            let third = try await outbox.claim(limit: 2, from: second.next)
            #expect(numbers(third.records, of: "a") == [1])
            // Nothing is left for a claim that begins behind all queues either.
            let behind = try await outbox.claim(limit: 2, from: "z")
            #expect(behind.records.isEmpty && behind.hasMore && behind.next == "")
        }
    }

    @Test("Records of services of the version before have a turn, too")
    func withoutQueue() async throws {
        try await StorageFixture.run { fixture in
            let outbox = fixture.database.outbox
            try await append(0..<1000, to: "shop", fixture)
            _ = try await fixture.server.query(
                """
                INSERT INTO outbox (kafka_topic, key, value, headers, order_key)
                SELECT 't', NULL, n::text::bytea, '[]', NULL FROM generate_series(0, 299) n
                """
            )
            let claim = try await outbox.claim()
            #expect(numbers(claim.records, of: "shop") == Array(0..<250))
            #expect(numbers(claim.records, of: "") == Array(0..<250))
        }
    }

    @Test("A record waits for an earlier one of its order key, also one without a queue")
    func orderKeys() async throws {
        try await StorageFixture.run { fixture in
            let outbox = fixture.database.outbox
            try await append(0..<1, to: "", orderKey: "config/shop", fixture)
            try await append(1..<3, to: "shop", orderKey: "config/shop", fixture)
            try await append(0..<1, to: "news", orderKey: "config/news", fixture)
            for number in 0..<3 {
                let claim = try await outbox.claim()
                let ofShop = claim.records.filter { $0.record.orderKey == "config/shop" }
                #expect(ofShop.map(\.record.value) == [Array(String(number).utf8)])
                #expect(numbers(claim.records, of: "news") == (number == 0 ? [0] : []))
                #expect(try await outbox.claim().records.isEmpty)
                try await outbox.finish(claim.records.map { ($0, .acknowledged) })
            }
            #expect(try await outbox.count() == 0)
        }
    }

    @Test("Records of a relay that died are claimed when its lease ends, in their old order")
    func lease() async throws {
        try await StorageFixture.run { fixture in
            let outbox = fixture.database.outbox
            try await append(0..<3, to: "shop", fixture)
            let lost = try await outbox.claim().records
            #expect(try await outbox.claim().records.isEmpty)
            _ = try await fixture.server.query("UPDATE outbox SET due_at = now()")
            try await fixture.another { other in
                let claim = try await other.outbox.claim()
                #expect(numbers(claim.records, of: "shop") == [0, 1, 2])
                // The first relay comes back: what Kafka has is deleted, the rest is the other's.
                try await outbox.finish([(lost[0], .acknowledged), (lost[1], .unavailable)])
                #expect(try await count("due_at > now()", fixture) == 2)
                try await other.outbox.finish(claim.records.map { ($0, .unavailable) })
            }
            #expect(numbers(try await outbox.claim().records, of: "shop") == [1, 2])
        }
    }

    @Test("Relays that claim at once get different records, and all of them")
    func several() async throws {
        try await StorageFixture.run { fixture in
            for queue in ["a", "b", "c"] { try await append(0..<400, to: queue, fixture) }
            let claimed = try await withThrowingTaskGroup { group in
                for _ in 0..<4 {
                    group.addTask {
                        var (own, next) = ([Int](), "")
                        while true {
                            let claim = try await fixture.database.outbox.claim(
                                limit: 50,
                                from: next
                            )
                            own += claim.records.map(\.id)
                            next = claim.next
                            if !claim.hasMore { return own }
                        }
                    }
                }
                return try await group.reduce(into: [Int]()) { $0 += $1 }
            }
            // A claim may find only rows that others have locked, and end early.
            let rest = try await fixture.database.outbox.claim(limit: 1200).records.map(\.id)
            #expect((claimed + rest).count == 1200)
            #expect(Set(claimed + rest).count == 1200)
        }
    }

    @Test(
        "A statement that was planned for an empty outbox reads a backlog by the index for it",
        arguments: [
            (OutboxStore.claimSQL, "500, 15, ''", ["outbox_queues", "outbox_order"]),
            (OutboxStore.finishSQL, "'{1}', '{2026-01-01}', '{0}'", ["outbox_pkey"]),
        ]
    )
    func plans(sql: String, values: String, indexes: [String]) async throws {
        try await StorageFixture.run { fixture in
            _ = try await fixture.server.query("VACUUM ANALYZE outbox")
            let plan = try await fixture.database.database.transaction { transaction in
                for statement in [
                    IndexPlan.sql, "SET LOCAL plan_cache_mode = force_generic_plan",
                    "PREPARE planned AS \(sql)",
                ] {
                    _ = try await transaction.execute(statement, isPrepared: false)
                }
                return try await transaction.execute(
                    "EXPLAIN (COSTS OFF) EXECUTE planned(\(values))",
                    isPrepared: false
                ).rows.map { try $0.text("QUERY PLAN") }
            }
            let scans = plan.filter { $0.contains("Scan") && $0.contains(" on outbox") }
            let used = Set(
                scans.compactMap { line in
                    line.split(separator: " using ").dropFirst().first?
                        .split(separator: " ").first.map(String.init)
                }
            )
            #expect(used == Set(indexes), "\(plan)")
            #expect(scans.contains { $0.contains("Tid Scan") })
            #expect(scans.allSatisfy { $0.contains(" using ") || $0.contains("Tid Scan") })
        }
    }
}
