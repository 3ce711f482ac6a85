import JSON
package import Postgres
package import PushCore

/// A record that a relay has to produce to Kafka.
package struct ClaimedOutboxRecord: Sendable, Equatable {
    package var id: Int
    /// The identity of the claim: the time until which the record is hidden, in microseconds since
    /// 1970.
    fileprivate var claim: Int64
    package var record: OutgoingRecord
    /// Whether the record has an order key, so that another record may wait for it.
    package var isOrdered: Bool { record.orderKey != nil }

    fileprivate static func read(_ row: PostgresRow) throws -> ClaimedOutboxRecord {
        ClaimedOutboxRecord(
            id: try row.integer("id"),
            claim: try row.timestampMicroseconds("due_at"),
            record: OutgoingRecord(
                topic: try row.text("kafka_topic"),
                key: try row.bytesOrNil("key"),
                value: try row.bytes("value"),
                headers: (try row.json("headers").array ?? []).compactMap { pair in
                    guard let name = pair[0]?.string, let value = pair[1]?.string else {
                        return nil
                    }
                    return RecordHeader(name, value)
                },
                orderKey: try row.textOrNil("order_key"),
                queue: try row.text("queue")
            )
        )
    }
}

/// The result of a claim.
package struct OutboxClaim: Sendable {
    /// The records, ordered by id; empty if nothing is due in the queues that were looked at.
    package var records: [ClaimedOutboxRecord]
    /// The queue with which the next claim begins; empty for the first.
    package var next: String
    /// Whether more records may be due.
    package var hasMore: Bool
}

/// Kafka's reply for a record. The raw values are those of the SQL.
package enum OutboxResult: Int, Sendable {
    /// Kafka has stored the record.
    case acknowledged = 0
    /// Kafka is unreachable, or slow, or accepts nothing from us: this says nothing about the record.
    case unavailable = 1
    /// Kafka rejects this record.
    case refused = 2
}

package struct OutboxStore: Sendable {
    let database: Database

    /// The lease of a claim: when a relay dies, others claim its records after this time. It is
    /// longer than a relay waits for Kafka; otherwise each outage would send records twice.
    package static let leaseSeconds = 15

    /// Claims due records and hides them from other relays until the lease ends. Queues have equal parts of
    /// a claim; where one has fewer records, the others' parts are larger. In a queue, the longest waiting
    /// record is first. If a relay outlives its lease, its records are sent twice; event keys deduplicate
    /// them. Of each order key only the first record is claimed: the next record waits until Kafka has the
    /// first.
    ///
    /// - Parameters:
    ///   - limit: The most records. If more queues have due records, the rest of the queues has its turn in
    ///     the next claim.
    ///   - first: `next` of the last claim.
    /// - Returns: The records, and where the next claim begins.
    /// - Throws: `StorageError`.
    package func claim(limit: Int = 500, from first: String = "") async throws -> OutboxClaim {
        let rows = try await database.transaction(of: [
            (IndexPlan.sql, []),
            (
                Self.claimSQL,
                [
                    .integer(min(max(limit, 1), 10_000)), .integer(Self.leaseSeconds),
                    .text(first),
                ]
            ),
        ])[1].rows
        let next = try rows.first?.textOrNil("next_queue") ?? ""
        return OutboxClaim(
            records: try rows.map(ClaimedOutboxRecord.read).sorted { $0.id < $1.id },
            next: next,
            // The queues before `first` are still to be looked at.
            hasMore: try rows.first?.boolean("has_more") == true || next != "" || first != ""
        )
    }

    /// Stores the results of claimed records in one statement. Acknowledged records are deleted.
    /// Unavailable records are due again in their old place. Refused records are delayed, longer
    /// each time, up to five minutes, so that they do not block others. A record that another relay
    /// has claimed since is left to that relay, unless it is acknowledged. A record that another
    /// transaction changes at this moment keeps its lease.
    package func finish(_ verdicts: [(ClaimedOutboxRecord, OutboxResult)]) async throws {
        let ordered = verdicts.sorted { $0.0.id < $1.0.id }
        _ = try await database.transaction(of: [
            (IndexPlan.sql, []),
            (
                Self.finishSQL,
                [
                    .integerArray(ordered.map(\.0.id)), .timestampArray(ordered.map(\.0.claim)),
                    .integerArray(ordered.map(\.1.rawValue)),
                ]
            ),
        ])
    }

    /// The waiting records, for operators.
    package struct Depth: Sendable, Equatable {
        package var records: Int
        /// Whether more wait than were counted.
        package var isMore: Bool
        /// The time since the first of them was written.
        package var oldest: Duration

        package init(records: Int, isMore: Bool = false, oldest: Duration) {
            self.records = records
            self.isMore = isMore
            self.oldest = oldest
        }
    }

    private static let maximumCounted = 10_000

    /// Counts the waiting records, 10,000 at most.
    ///
    /// - Throws: `StorageError`; `isStatementTimeout` if it takes longer than 300 ms.
    package func depth() async throws -> Depth {
        let sql = """
            SELECT count(*) AS count, coalesce(greatest(0,
                extract(epoch FROM now() - min(created_at)) * 1000), 0)::bigint AS oldest
            FROM (SELECT created_at FROM outbox ORDER BY id LIMIT \(Self.maximumCounted + 1)) o
            """
        let row = try await database.briefly([(sql, [])])[0].first
        let count = try row?.integer("count") ?? 0
        return Depth(
            records: min(count, Self.maximumCounted),
            isMore: count > Self.maximumCounted,
            oldest: .milliseconds(try row?.integer("oldest") ?? 0)
        )
    }

    /// Returns the number of waiting records.
    package func count() async throws -> Int {
        try await database.execute("SELECT count(*) AS count FROM outbox").first?
            .integer("count") ?? 0
    }

    /// Appends records in a transaction of their own, all or none.
    package func append(_ records: [OutgoingRecord]) async throws {
        try await database.transaction { transaction in
            try await Self.append(records, transaction)
        }
    }

    /// Appends records. Headers are stored as text. A record without a value, which no caller
    /// writes, would be stored with an empty value.
    package static func append(
        _ records: [OutgoingRecord],
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.pipeline(appending(records))
    }

    /// Returns the statements of `append`, for a pipeline of the caller's.
    package static func appending(
        _ records: [OutgoingRecord]
    ) -> [(sql: String, parameters: [PostgresValue])] {
        [
            (insertion(from: 1), parameters(of: records)),
            ("SELECT pg_notify('\(NotifyChannel.outbox.rawValue)', '')", []),
        ]
    }

    /// Returns the SQL that stores records, with parameters from this number on; a condition may follow.
    package static func insertion(from first: Int) -> String {
        """
        INSERT INTO outbox (kafka_topic, key, value, headers, order_key, queue)
        SELECT * FROM unnest($\(first)::text[], $\(first + 1)::bytea[], $\(first + 2)::bytea[],
            $\(first + 3)::jsonb[], $\(first + 4)::text[], $\(first + 5)::text[])
        """
    }

    package static func parameters(of records: [OutgoingRecord]) -> [PostgresValue] {
        [
            .textArray(records.map(\.topic)), .bytesArray(records.map(\.key)),
            .bytesArray(records.map { $0.value ?? [] }),
            .jsonArray(
                records.map { record in
                    .array(
                        record.headers.map { header in
                            [
                                .string(header.name),
                                .string(String(decoding: header.value, as: UTF8.self)),
                            ]
                        }
                    )
                }
            ),
            .textArray(records.map(\.orderKey)), .textArray(records.map(\.queue)),
        ]
    }
}
