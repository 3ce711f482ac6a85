import JSON
import Postgres

/// A record on its way to Kafka, kept until the broker has acknowledged it.
package struct OutboxRecord: Sendable, Equatable {
    package var kafkaTopic: String
    package var key: [UInt8]?
    package var value: [UInt8]
    package var headers: [Header]

    package struct Header: Sendable, Equatable {
        package var name: String
        package var value: String

        package init(_ name: String, _ value: String) {
            self.name = name
            self.value = value
        }
    }

    package init(kafkaTopic: String, key: [UInt8]?, value: [UInt8], headers: [Header] = []) {
        self.kafkaTopic = kafkaTopic
        self.key = key
        self.value = value
        self.headers = headers
    }
}

/// A record that a relay has to bring to Kafka.
package struct ClaimedOutboxRecord: Sendable, Equatable {
    package var id: Int
    package var record: OutboxRecord

    fileprivate static func read(_ row: PostgresRow) throws -> ClaimedOutboxRecord {
        ClaimedOutboxRecord(
            id: try row.integer("id"),
            record: OutboxRecord(
                kafkaTopic: try row.text("kafka_topic"),
                key: try row.bytesOrNil("key"),
                value: try row.bytes("value"),
                headers: (try row.json("headers").array ?? []).compactMap { pair in
                    guard let name = pair[0]?.string, let value = pair[1]?.string else {
                        return nil
                    }
                    return OutboxRecord.Header(name, value)
                }
            )
        )
    }
}

/// What Kafka said of a record.
package enum OutboxVerdict: Sendable {
    /// It is kept.
    case acknowledged
    /// Kafka is away, or slow: nothing is known against the record.
    case unavailable
    /// This record, as it is, is not taken.
    case refused
}

package struct OutboxStore: Sendable {
    let database: PushDatabase

    /// A relay that dies leaves what it claimed to the others after this.
    package static let leaseSeconds = 15

    /// Takes records that are due, those that have waited longest first, and hides them from other
    /// relays until the lease ends. A relay that outlives its lease sends them beside another, which
    /// event keys absorb.
    ///
    /// - Returns: At most `limit`, by id; empty when nothing is due.
    package func claim(limit: Int = 500) async throws -> [ClaimedOutboxRecord] {
        try await database.execute(
            """
            UPDATE outbox SET due_at = now() + make_interval(secs => $2) WHERE id IN (
                SELECT id FROM outbox WHERE due_at <= now()
                ORDER BY due_at, id LIMIT $1 FOR UPDATE SKIP LOCKED)
            RETURNING id, kafka_topic, key, value, headers
            """,
            [.integer(min(max(limit, 1), 10_000)), .integer(Self.leaseSeconds)]
        ).rows.map(ClaimedOutboxRecord.read).sorted { $0.id < $1.id }
    }

    /// Writes down what became of claimed records, all or none: what Kafka keeps is deleted, what it
    /// could not be asked about is due again at once, and what it refused waits longer each time, up
    /// to five minutes, so that it stands in nobody's way.
    package func finish(_ verdicts: [(id: Int, verdict: OutboxVerdict)]) async throws {
        let ids = { (wanted: OutboxVerdict) in
            PostgresValue.integerArray(
                verdicts.filter { $0.verdict == wanted }.map(\.id).sorted()
            )
        }
        _ = try await database.execute(
            """
            WITH kept AS (DELETE FROM outbox WHERE id = ANY ($1::bigint[]))
            UPDATE outbox SET
                refusals = refusals + CASE WHEN id = ANY ($3::bigint[]) THEN 1 ELSE 0 END,
                due_at = CASE WHEN id = ANY ($3::bigint[]) THEN now() + least(
                        interval '5 minutes', interval '1 second' * power(2, least(refusals, 10)))
                    ELSE now() END
            WHERE id = ANY ($2::bigint[] || $3::bigint[])
            """,
            [ids(.acknowledged), ids(.unavailable), ids(.refused)]
        )
    }

    /// How many records wait.
    package func count() async throws -> Int {
        try await database.execute("SELECT count(*) AS count FROM outbox").first?
            .integer("count") ?? 0
    }

    static func append(
        _ records: [OutboxRecord],
        _ transaction: PostgresTransaction
    ) async throws {
        _ = try await transaction.execute(
            """
            INSERT INTO outbox (kafka_topic, key, value, headers)
            SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[], $4::jsonb[])
            """,
            [
                .textArray(records.map(\.kafkaTopic)), .bytesArray(records.map(\.key)),
                .bytesArray(records.map(\.value)),
                .jsonArray(
                    records.map { record in
                        .array(record.headers.map { [.string($0.name), .string($0.value)] })
                    }
                ),
            ]
        )
        _ = try await transaction.execute(
            "SELECT pg_notify('\(StorageChannel.outbox.rawValue)', '')"
        )
    }
}
