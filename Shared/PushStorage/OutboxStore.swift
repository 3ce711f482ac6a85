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

package struct OutboxStore: Sendable {
    let database: PushDatabase

    /// Takes the oldest records, hands them to `produce`, and deletes those that it says were
    /// acknowledged. The rest stays for the next time. The rows are locked meanwhile, so several
    /// relays share the work; a crash in between sends a record twice, which event keys absorb.
    ///
    /// `produce` returns, index by index, whether the record is kept by Kafka now.
    ///
    /// - Returns: How many were taken, and how many of them are gone.
    package func relay(
        limit: Int = 500,
        _ produce: @escaping @Sendable ([OutboxRecord]) async throws -> [Bool]
    ) async throws -> (taken: Int, acknowledged: Int) {
        try await database.transaction { transaction in
            let rows = try await transaction.execute(
                """
                SELECT id, kafka_topic, key, value, headers FROM outbox
                ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
                """,
                [.integer(min(max(limit, 1), 10_000))]
            ).rows
            guard !rows.isEmpty else { return (0, 0) }
            let records = try rows.map { row in
                OutboxRecord(
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
            }
            let acknowledged = try await produce(records)
            var ids: [Int?] = []
            for (row, isAcknowledged) in zip(rows, acknowledged) where isAcknowledged {
                ids.append(try row.integer("id"))
            }
            if !ids.isEmpty {
                _ = try await transaction.execute(
                    "DELETE FROM outbox WHERE id = ANY ($1::bigint[])",
                    [.integerArray(ids)]
                )
            }
            return (rows.count, ids.count)
        }
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
