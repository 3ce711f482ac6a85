import JSON
import Postgres
package import PushCore

/// A record that a relay has to bring to Kafka.
package struct ClaimedOutboxRecord: Sendable, Equatable {
    package var id: Int
    /// Whose claim it is: until when it is hidden, in microseconds since 1970.
    fileprivate var claim: Int64
    package var record: OutgoingRecord
    /// Whether another of its order key may come now that this one is claimed.
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

/// What Kafka said of a record. The raw values are those of the SQL.
package enum OutboxVerdict: Int, Sendable {
    /// It is kept.
    case acknowledged = 0
    /// Kafka is away, or slow, or takes nothing from us: nothing is known against the record.
    case unavailable = 1
    /// This record, as it is, is not taken.
    case refused = 2
}

package struct OutboxStore: Sendable {
    let database: Database

    /// A relay that dies leaves what it claimed to the others after this. Longer than a relay waits
    /// for Kafka, or each outage would send records twice.
    package static let leaseSeconds = 15

    /// Takes records that are due, those that have waited longest first, and hides them from other
    /// relays until the lease ends. A relay that outlives its lease sends them beside another, which
    /// event keys absorb. Of those with an order key only the first of each is taken: what comes after
    /// it waits until Kafka has it.
    ///
    /// - Returns: At most `limit`, by id; empty when nothing is due.
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

    /// Writes down what became of claimed records, all or none: what Kafka keeps is deleted, what it
    /// could not be asked about is due again in its old place, and what it refused waits longer each
    /// time, up to five minutes, so that it stands in nobody's way. Records that another relay has
    /// claimed since are left to it.
    package func finish(_ verdicts: [(ClaimedOutboxRecord, OutboxVerdict)]) async throws {
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

    /// How many records wait.
    package func count() async throws -> Int {
        try await database.execute("SELECT count(*) AS count FROM outbox").first?
            .integer("count") ?? 0
    }

    /// Headers are kept as text; a record without a value, which nobody accepts here, as an empty one.
    static func append(
        _ records: [OutgoingRecord],
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.pipeline(appending(records))
    }

    /// The same, for a pipeline of one's own.
    static func appending(
        _ records: [OutgoingRecord]
    ) -> [(sql: String, parameters: [PostgresValue])] {
        [
            (insertion(from: 1), parameters(of: records)),
            ("SELECT pg_notify('\(StorageChannel.outbox.rawValue)', '')", []),
        ]
    }

    /// SQL that writes records down, whose parameters begin at this number; a condition may follow.
    static func insertion(from first: Int) -> String {
        """
        INSERT INTO outbox (kafka_topic, key, value, headers, order_key)
        SELECT * FROM unnest($\(first)::text[], $\(first + 1)::bytea[], $\(first + 2)::bytea[],
            $\(first + 3)::jsonb[], $\(first + 4)::text[])
        """
    }

    static func parameters(of records: [OutgoingRecord]) -> [PostgresValue] {
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
