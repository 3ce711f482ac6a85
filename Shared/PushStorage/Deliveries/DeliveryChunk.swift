package import Postgres
import PushCore
import Storage

/// Delivered members of a broadcast, recorded by one checkpoint. One row of `delivery_chunks`
/// stores them in a tenth of the bytes of separate rows. They no longer change, except when a
/// member is erased. They are read through `all_deliveries`.
struct DeliveryChunk: Equatable {
    /// The values that all members of a chunk share.
    struct Form: Equatable {
        var provider: Platform
        var environment: PushEnvironment
        var attempts: Int
        var status: Int?
    }

    let form: Form
    private(set) var targets: [String] = []
    /// The provider's message ids, one for each target; `nil` for an id that Carillon made.
    private(set) var messages: [String?] = []
    private var hasMessages = false

    init(_ form: Form) { self.form = form }

    /// Divides a checkpoint's records into chunks and rows.
    ///
    /// - Parameters:
    ///   - records: Records of members behind the shard's last checkpoint.
    ///   - shard: The members' shard.
    /// - Returns: The chunks, one for each form, and the records that need rows of their own.
    static func divide(
        _ records: [DeliveryRecord],
        of shard: ClaimedShard
    ) -> (chunks: [DeliveryChunk], rows: [DeliveryRecord]) {
        var chunks: [DeliveryChunk] = []
        var rows: [DeliveryRecord] = []
        var last = 0
        for record in records {
            guard PushLedger.form(of: record, in: shard) == .chunk, let end = record.end else {
                rows.append(record)
                continue
            }
            let form = Form(record.delivery.device, end)
            if chunks.isEmpty || chunks[last].form != form {
                if let known = chunks.firstIndex(where: { $0.form == form }) {
                    last = known
                } else {
                    chunks.append(DeliveryChunk(form))
                    last = chunks.count - 1
                }
            }
            chunks[last].append(record.delivery.key.target, end.messageID)
        }
        return (chunks, rows)
    }

    private mutating func append(_ target: String, _ message: String?) {
        targets.append(target)
        // APNs' id is Carillon's own, and can be derived from push and target.
        let message = form.provider == .apns ? nil : message
        messages.append(message)
        if message != nil { hasMessages = true }
    }

    /// Returns the statement that writes it.
    func insertion(
        of shard: ClaimedShard
    ) -> (sql: String, parameters: [PostgresValue]) {
        (
            """
            INSERT INTO delivery_chunks (day, push_id, first_id, last_id, app, provider, environment,
                attempts, last_status, targets, messages, created_at, updated_at)
            VALUES ($1::date, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11,
                'epoch'::timestamptz + $12 * interval '1 microsecond', now())
            """,
            [
                .text(shard.day), .uuid(shard.pushID), .optional(text: targets.min()),
                .optional(text: targets.max()), .text(shard.app), .text(form.provider.rawValue),
                .text(form.environment.rawValue), .integer(form.attempts),
                .optional(integer: form.status), .textArray(targets),
                hasMessages ? .textArray(messages) : .null,
                .integer(Int(shard.createdAt.microseconds)),
            ]
        )
    }
}

extension DeliveryChunk.Form {
    fileprivate init(_ device: DeviceTarget, _ end: DeliveryEnd) {
        self.init(
            provider: device.provider,
            environment: device.environment,
            attempts: end.attempts,
            status: end.status
        )
    }
}

/// Queries and changes of chunks.
package enum DeliveryChunks {
    /// Returns SQL for whether a push has a delivery to one of some targets, by one index lookup
    /// each.
    ///
    /// - Parameters:
    ///   - push: An expression with `id` and `day`.
    ///   - targets: An expression: an array of strings.
    /// - Returns: A condition.
    package static func hasDelivery(_ push: String, to targets: String) -> String {
        """
        EXISTS (SELECT FROM unnest(\(targets)) AS t(target) CROSS JOIN LATERAL (
            SELECT FROM all_deliveries d WHERE d.day = \(push).day AND d.push_id = \(push).id
                AND d.first_id <= t.target AND d.last_id >= t.target AND d.target = t.target
            OFFSET 0) d)
        """
    }

    /// Overwrites the ids of targets in the chunks of some pushes, and the providers' message ids.
    ///
    /// - Parameters:
    ///   - targets: The targets. Their deliveries belong to no device from now on.
    ///   - pushIDs: The pushes, locked by the caller.
    ///   - transaction: The transaction.
    /// - Returns: The number of overwritten targets.
    /// - Throws: `PostgresError`.
    package static func erase(
        _ targets: [String],
        in pushIDs: [String],
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        try await transaction.execute(
            """
            WITH found AS (
                SELECT c.tableoid, c.ctid, c.targets, c.messages
                FROM pushes p JOIN delivery_chunks c ON c.push_id = p.id
                    AND c.day = (p.created_at AT TIME ZONE 'UTC')::date
                WHERE p.id = ANY ($1::uuid[]) AND c.targets && $2::text[]
                    AND EXISTS (SELECT FROM unnest($2::text[]) AS t(target)
                        WHERE c.first_id <= t.target AND c.last_id >= t.target)
                FOR UPDATE OF c
            ), without AS (
                SELECT f.tableoid, f.ctid, m.*
                FROM found f CROSS JOIN LATERAL (
                    SELECT array_agg(CASE WHEN NOT i.is_erased THEN i.target END ORDER BY i.number) AS targets,
                        CASE WHEN f.messages IS NOT NULL THEN
                            array_agg(CASE WHEN NOT i.is_erased THEN i.message END ORDER BY i.number)
                        END AS messages,
                        min(i.target) FILTER (WHERE NOT i.is_erased) AS first_id,
                        max(i.target) FILTER (WHERE NOT i.is_erased) AS last_id,
                        count(*) FILTER (WHERE i.is_erased) AS erased
                    FROM (SELECT n.*, coalesce(n.target = ANY ($2::text[]), false) AS is_erased
                        FROM unnest(f.targets, f.messages) WITH ORDINALITY
                            AS n(target, message, number)) i) m
            ), changed AS (
                UPDATE delivery_chunks c SET targets = w.targets, messages = w.messages,
                    first_id = w.first_id, last_id = w.last_id
                FROM without w WHERE c.tableoid = w.tableoid AND c.ctid = w.ctid
                RETURNING w.erased
            )
            SELECT coalesce(sum(erased), 0)::bigint AS erased FROM changed
            """,
            [.uuidArray(pushIDs), .textArray(targets)]
        ).first?.integer("erased") ?? 0
    }
}
