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
                orderKey: try row.textOrNil("order_key")
            )
        )
    }
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

    /// Claims due records, the longest waiting first, and hides them from other relays until the
    /// lease ends. If a relay outlives its lease, its records are sent twice; event keys
    /// deduplicate them. Of each order key only the first record is claimed: the next record waits
    /// until Kafka has the first.
    ///
    /// - Returns: At most `limit`, by id; empty if nothing is due.
    package func claim(limit: Int = 500) async throws -> [ClaimedOutboxRecord] {
        try await database.execute(
            """
            WITH due AS MATERIALIZED (
                SELECT id FROM outbox w WHERE due_at <= now()
                    AND (order_key IS NULL OR NOT EXISTS (SELECT FROM outbox e
                        WHERE e.order_key = w.order_key AND e.id < w.id))
                ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
            UPDATE outbox o SET due_at = now() + make_interval(secs => $2)
            FROM due WHERE o.id = due.id
            RETURNING o.id, o.due_at, o.kafka_topic, o.key, o.value, o.headers, o.order_key
            """,
            [.integer(min(max(limit, 1), 10_000)), .integer(Self.leaseSeconds)]
        ).rows.map(ClaimedOutboxRecord.read).sorted { $0.id < $1.id }
    }

    /// Stores the results of claimed records in one statement. Acknowledged records are deleted.
    /// Unavailable records are due again in their old place. Refused records are delayed, longer
    /// each time, up to five minutes, so that they do not block others. A record that another relay
    /// has claimed since is left to that relay, unless it is acknowledged.
    package func finish(_ verdicts: [(ClaimedOutboxRecord, OutboxResult)]) async throws {
        let ordered = verdicts.sorted { $0.0.id < $1.0.id }
        _ = try await database.execute(
            """
            WITH said AS MATERIALIZED (
                SELECT o.id, s.verdict, o.due_at = s.claim AS is_ours
                FROM unnest($1::bigint[], $2::timestamptz[], $3::smallint[])
                    AS s(id, claim, verdict)
                JOIN outbox o ON o.id = s.id
                ORDER BY o.id FOR UPDATE OF o
            ), kept AS (
                DELETE FROM outbox o USING said WHERE o.id = said.id AND said.verdict = 0
            )
            UPDATE outbox o SET
                refusals = o.refusals + CASE WHEN said.verdict = 2 THEN 1 ELSE 0 END,
                due_at = CASE WHEN said.verdict = 2 THEN now() + least(
                        interval '5 minutes', interval '1 second' * power(2, least(o.refusals, 10)))
                    ELSE o.created_at END
            FROM said WHERE o.id = said.id AND said.verdict <> 0 AND said.is_ours
            """,
            [
                .integerArray(ordered.map(\.0.id)), .timestampArray(ordered.map(\.0.claim)),
                .integerArray(ordered.map(\.1.rawValue)),
            ]
        )
    }

    /// Returns the number of waiting records.
    package func count() async throws -> Int {
        try await database.execute("SELECT count(*) AS count FROM outbox").first?
            .integer("count") ?? 0
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
        INSERT INTO outbox (kafka_topic, key, value, headers, order_key)
        SELECT * FROM unnest($\(first)::text[], $\(first + 1)::bytea[], $\(first + 2)::bytea[],
            $\(first + 3)::jsonb[], $\(first + 4)::text[])
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
            .textArray(records.map(\.orderKey)),
        ]
    }
}
