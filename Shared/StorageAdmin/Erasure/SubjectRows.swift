import JSON
import Postgres
import PushCore
import PushStorage
import Storage

/// Redaction of the rows that stay: deliveries, the requests of pushes, bounds of shards, outbox records,
/// and audit entries. Each in the caller's transaction.
enum SubjectRows {
    /// The number of names per statement.
    private static let namesAtOnce = 200
    private static let reason = "erased"

    private static func forgetBounds(
        of pushIDs: [String],
        _ names: SubjectNames,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        guard !names.objectIDs.isEmpty else { return 0 }
        return try await transaction.execute(
            """
            WITH found AS (
                SELECT push_id, shard FROM shards
                WHERE push_id = ANY ($1::uuid[]) AND finished AND owner IS NULL
                    AND (lower_id = ANY ($2::text[]) OR upper_id = ANY ($2::text[])
                        OR cursor = ANY ($2::text[]) OR prepared = ANY ($2::text[]))
                ORDER BY push_id, shard FOR UPDATE
            )
            UPDATE shards s SET \(Personal.shards)
            FROM found f WHERE s.push_id = f.push_id AND s.shard = f.shard
            """,
            [.uuidArray(pushIDs.sorted()), .textArray(names.objectIDs.sorted())]
        ).affectedRows
    }

    /// Redacts the pushes of a page.
    static func clean(
        _ page: SubjectSearch.Page,
        _ names: SubjectNames,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        counts["shards"] += try await forgetBounds(of: page.ids, names, transaction)
        let affected = page.named.union(page.delivered).sorted()
        try await clean(affected, names, &counts, transaction)
    }

    /// Redacts the deliveries of some pushes to the subject, and their requests.
    static func clean(
        _ pushIDs: [String],
        _ names: SubjectNames,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        guard !pushIDs.isEmpty else { return }
        let pushIDs = pushIDs.sorted()
        try await EventPushes.unpack(pushIDs, transaction)
        let locked = try await transaction.execute(
            """
            SELECT id, app, event_source, event_id, request, notes, status
            FROM pushes WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE
            """,
            [.uuidArray(pushIDs)]
        )
        let targets = names.targets
        for start in stride(from: 0, to: targets.count, by: namesAtOnce) {
            let part = Array(targets.dropFirst(start).prefix(namesAtOnce))
            let rows = try await transaction.execute(
                deliveriesSQL,
                [.uuidArray(pushIDs), .textArray(part), .text(reason)]
            )
            counts["deliveries"] += try rows.first?.integer("erased") ?? 0
            counts["endedDeliveries"] += try rows.first?.integer("ended") ?? 0
            counts["deliveries"] += try await DeliveryChunks.erase(part, in: pushIDs, transaction)
        }
        let sole = try await SolePush.allErased(of: pushIDs, transaction)
        try await redact(locked.rows, names, sole, &counts, transaction)
    }

    // A delivery that no dispatcher has sent yet ends as suppressed. One that a dispatcher owns may be in
    // flight: its outcome stays unknown, and the dispatcher finds that it has lost the row.
    private static let deliveriesSQL = """
        WITH found AS (
            SELECT d.day, d.push_id, d.target, d.state, d.owner
            FROM pushes p JOIN deliveries d ON d.day = (p.created_at AT TIME ZONE 'UTC')::date
                AND d.push_id = p.id AND d.target = ANY ($2::text[])
            WHERE p.id = ANY ($1::uuid[]) FOR UPDATE OF d
        ), changed AS (
            UPDATE deliveries d SET \(Personal.deliveries), owner = NULL,
                state = CASE WHEN f.state <> \(DeliveryState.pending.sql) THEN f.state
                    WHEN f.owner IS NULL THEN \(DeliveryState.suppressed.sql)
                    ELSE \(DeliveryState.inDoubt.sql) END,
                last_reason = CASE WHEN f.state = \(DeliveryState.pending.sql) THEN $3 ELSE d.last_reason END,
                updated_at = now()
            FROM found f
            WHERE d.day = f.day AND d.push_id = f.push_id AND d.target = f.target
            RETURNING d.push_id, f.state = \(DeliveryState.pending.sql) AS is_ended, f.owner IS NULL AS is_free
        ), sums AS (
            SELECT push_id, count(*) AS ended, count(*) FILTER (WHERE is_free) AS suppressed,
                count(*) FILTER (WHERE NOT is_free) AS in_doubt
            FROM changed WHERE is_ended GROUP BY push_id
        ), books AS (
            UPDATE pushes p SET \(LedgerSQL.change([
                .pending: "-s.ended", .suppressed: "s.suppressed", .inDoubt: "s.in_doubt",
            ]))
            FROM sums s WHERE p.id = s.push_id
        )
        SELECT count(*) AS erased, count(*) FILTER (WHERE is_ended) AS ended FROM changed
        """

    private static func redact(
        _ rows: PostgresRows,
        _ names: SubjectNames,
        _ sole: Set<String>,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        let redaction = Redaction(names)
        for row in rows {
            let id = try row.uuid("id")
            let request = try row.json("request").object ?? [:]
            let eventID = try row.text("event_id")
            var notes = try row.json("notes").object ?? [:]
            let isSole = sole.contains(id) || redaction.isSoleRecipient(request)
            if isSole {
                notes = SolePush.withoutContent(notes: notes)
                _ = try await transaction.execute(
                    "DELETE FROM connection_contents WHERE push_id = $1",
                    [.uuid(id)]
                )
            }
            let status = PushStatus(rawValue: try row.text("status"))
            let isOver = status?.isFinal ?? true
            let after = (
                request: isOver
                    ? redaction.redactedSent(request, isSole: isSole)
                    : redaction.redactedUnsent(request, isSole: isSole),
                eventID: redaction.withoutNames(eventID),
                notes: isOver ? redaction.redactedSent(.object(notes)) : .object(notes)
            )
            if after.eventID != eventID {
                // If the event comes again, it selects no device.
                counts["eventKeys"] += try await transaction.execute(
                    "DELETE FROM event_keys WHERE app = $1 AND source = $2 AND id = $3",
                    [
                        .text(try row.text("app")), .text(try row.text("event_source")),
                        .text(eventID),
                    ]
                ).affectedRows
            }
            counts["pushes"] += try await transaction.execute(
                """
                UPDATE pushes SET request = $2, event_id = $3, notes = $4
                WHERE id = $1 AND (request::text <> $2::json::text OR event_id <> $3 OR notes <> $4)
                """,
                [
                    .uuid(id), .json(.object(after.request)), .text(after.eventID),
                    .json(after.notes),
                ]
            ).affectedRows
        }
    }

    /// Redacts records that were accepted and not produced to Kafka yet.
    private static func cleanOutbox(
        _ names: SubjectNames,
        of app: String,
        until: Int64?,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        let redaction = Redaction(names)
        let needles = names.needles.map { Array($0.utf8) }
        var count = 0
        for start in stride(from: 0, to: needles.count, by: namesAtOnce) {
            let found = try await transaction.execute(
                """
                SELECT id, value, (SELECT p.app FROM sync_pools p WHERE p.name = CASE
                    WHEN kafka_topic LIKE '%dataset.changes'
                    THEN convert_from(value, 'UTF8')::json ->> 'identityPoolId' END) AS pool_app
                FROM outbox
                WHERE EXISTS (SELECT FROM unnest($1::bytea[]) AS n(needle)
                    WHERE position(n.needle IN value) > 0)
                    AND ($2::timestamptz IS NULL OR created_at <= $2::timestamptz)
                ORDER BY id FOR UPDATE
                """,
                [
                    .bytesArray(Array(needles.dropFirst(start).prefix(namesAtOnce))),
                    .optional(timestamp: until),
                ]
            )
            for row in found.rows {
                let value = try row.bytes("value")
                guard let object = try? JSONValue.parse(value).object,
                    try (object["app"]?.string ?? row.textOrNil("pool_app")) == app
                else { continue }
                let id = PostgresValue.integer(try row.integer("id"))
                if redaction.isReading(object) || redaction.isSync(object) {
                    // Without the reader, or the dataset's owner, the record has no meaning.
                    _ = try await transaction.execute("DELETE FROM outbox WHERE id = $1", [id])
                    count += 1
                    continue
                }
                let isSole = redaction.isSoleRecipient(object)
                let after = JSONValue.object(redaction.redactedUnsent(object, isSole: isSole)).bytes
                guard after != value else { continue }
                _ = try await transaction.execute(
                    "UPDATE outbox SET value = $2 WHERE id = $1",
                    [id, .bytes(after)]
                )
                count += 1
            }
        }
        return count
    }

    /// Redacts outbox records and audit entries until a moment.
    static func cleanRest(
        of subject: Subject,
        _ names: SubjectNames,
        until: Int64? = nil,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        counts["outboxRecords"] += try await cleanOutbox(
            names,
            of: subject.app,
            until: until,
            transaction
        )
        counts["auditEntries"] += try await AuditStore.forget(
            names.texts.sorted(),
            of: subject.app,
            until: until,
            transaction
        )
    }
}
