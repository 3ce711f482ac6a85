import JSON
import Postgres
package import PushCore
package import PushEvents
import PushStorage
import Storage

/// A device that logs in.
package struct DeviceLogin: Sendable, Hashable {
    package var app: String
    package var installationID: String

    package init(app: String, installationID: String) {
        self.app = app
        self.installationID = installationID
    }
}

/// The stored installation of a device that logs in.
package struct KnownDevice: Sendable, Equatable {
    package var objectID: String
    package var isValid: Bool
    /// Whether another channel of its vendor's serves it.
    package var hasVendor: Bool
    /// SHA-256 of its device secret, if it has one: our own protocols need it.
    package var secretDigest: [UInt8]?
}

/// How far a node has read the messages of all devices.
///
/// New rows are found by their number. A transaction may commit rows with lower numbers later than
/// others: for some seconds every read looks for the numbers that are missing, and the sweep finds the
/// rest by their transaction, within the time that a write may take.
package struct ArrivalCursor: Sendable {
    /// Numbers that were missing when higher ones were read. Some never come: of messages that were
    /// acknowledged already, or not stored.
    struct Gap: Sendable {
        var low: Int
        var high: Int
        let since: MonotonicInstant
    }

    /// The time within which a row is committed after it got its number: more than the longest
    /// statement takes.
    static let overlapMilliseconds: Int64 = 60_000
    private static let markMilliseconds: Int64 = 2000
    private static let gapMilliseconds: Int64 = 2000
    private static let maximumGaps = 256

    private(set) var newest: Int
    /// Every transaction below this one was visible at the last sweep.
    var snapshot: String
    /// Ascending.
    private(set) var gaps: [Gap] = []
    /// Numbers that were the newest at some earlier times, ascending.
    private var marks: [(at: MonotonicInstant, newest: Int)] = []

    init(newest: Int, snapshot: String) {
        self.newest = newest
        self.snapshot = snapshot
        marks = [(.now(), newest)]
    }

    /// The number below which all rows are committed.
    var oldest: Int { marks.first?.newest ?? newest }

    /// Notes the numbers of rows that were read, ascending.
    mutating func read(_ numbers: [Int], at now: MonotonicInstant = .now()) {
        for number in numbers {
            if number <= newest {
                fill(number)
            } else {
                if number > newest + 1 {
                    gaps.append(Gap(low: newest + 1, high: number - 1, since: now))
                }
                newest = number
            }
            // The sweep finds what is in the oldest ones.
            gaps.removeFirst(max(0, gaps.count - Self.maximumGaps))
        }
        let limit = now.adding(milliseconds: -Self.gapMilliseconds)
        gaps.removeAll { $0.since <= limit }
        mark(at: now)
    }

    private mutating func fill(_ number: Int) {
        guard let place = gaps.firstIndex(where: { ($0.low...$0.high).contains(number) }) else {
            return
        }
        var (before, after) = (gaps[place], gaps[place])
        (before.high, after.low) = (number - 1, number + 1)
        gaps.replaceSubrange(place...place, with: [before, after].filter { $0.low <= $0.high })
    }

    private mutating func mark(at now: MonotonicInstant) {
        if let last = marks.last, now.milliseconds(since: last.at) < Self.markMilliseconds {
            return
        }
        marks.append((now, newest))
        let limit = now.adding(milliseconds: -Self.overlapMilliseconds)
        while marks.count > 1, marks[1].at <= limit { marks.removeFirst() }
    }
}

extension ConnectionStore {
    // MARK: Arrivals

    /// The rows of one read of arrivals.
    package static let arrivalPage = 20_000

    /// Returns the present end of all messages, where a node begins.
    package func arrivalStart() async throws -> ArrivalCursor {
        let row = try await indexed.execute(
            """
            SELECT coalesce(max(seq), 0) AS newest,
                pg_snapshot_xmin(pg_current_snapshot())::text AS snapshot
            FROM connection_messages
            """
        ).first
        return ArrivalCursor(
            newest: try row?.integer("newest") ?? 0,
            snapshot: try row?.text("snapshot") ?? "0"
        )
    }

    /// Returns the devices of messages that arrived, and advances the cursor.
    ///
    /// - Returns: With repeats; `isComplete` is false if there are more.
    package func arrived(
        _ cursor: inout ArrivalCursor
    ) async throws -> (devices: [DeviceKey], isComplete: Bool) {
        let rows = try await indexed.execute(
            """
            SELECT m.seq, m.device
            FROM unnest($2::bigint[], $3::bigint[]) AS g(low, high)
            JOIN connection_messages m ON m.seq BETWEEN g.low AND g.high
            UNION ALL (
                SELECT seq, device FROM connection_messages WHERE seq > $1
                ORDER BY seq LIMIT \(Self.arrivalPage))
            ORDER BY seq LIMIT \(Self.arrivalPage)
            """,
            [
                .integer(cursor.newest), .integerArray(cursor.gaps.map(\.low)),
                .integerArray(cursor.gaps.map(\.high)),
            ]
        ).rows
        let numbers = try rows.map { try $0.integer("seq") }
        cursor.read(numbers)
        return (
            try rows.map { DeviceKey(try $0.bytes("device")) }, rows.count < Self.arrivalPage
        )
    }

    /// Returns the devices of messages that were committed after others with a higher number.
    package func missed(_ cursor: inout ArrivalCursor) async throws -> [DeviceKey] {
        let rows = try await indexed.execute(
            """
            SELECT DISTINCT m.device, s.snapshot
            FROM (SELECT pg_snapshot_xmin(pg_current_snapshot())::text AS snapshot) s
            LEFT JOIN connection_messages m ON m.seq > $1 AND m.seq <= $2
                AND m.tx >= $3::text::xid8
            """,
            [.integer(cursor.oldest), .integer(cursor.newest), .text(cursor.snapshot)]
        ).rows
        if let row = rows.first { cursor.snapshot = try row.text("snapshot") }
        cursor.read([])
        return try rows.compactMap { row in
            try row.bytesOrNil("device").map { DeviceKey($0) }
        }
    }

    // MARK: Messages

    /// The bytes of a device's messages from which no more of them are read at once.
    package static let pageBytes = 64 << 10

    /// Reads the unexpired messages of devices, the oldest of each first, up to `pageBytes` for each.
    ///
    /// - Parameters:
    ///   - devices: At most some tens.
    ///   - limit: The most for each device.
    /// - Returns: In the order of the devices.
    /// - Throws: `StorageError`.
    package func waiting(of devices: [DeviceKey], limit: Int) async throws -> [WaitingMessage] {
        guard !devices.isEmpty else { return [] }
        let rows = try await indexed.execute(
            """
            SELECT * FROM (
                SELECT d.place, m.device, m.id, m.seq, m.content, m.target, m.stored_at,
                    m.expires_at, m.has_own_expiry, m.channel, count(*) OVER (PARTITION BY d.place) AS found,
                    row_number() OVER (PARTITION BY d.place ORDER BY m.seq) AS number,
                    coalesce(sum(octet_length(c.body)) OVER (PARTITION BY d.place ORDER BY m.seq
                        ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING), 0) AS before
                FROM unnest($1::bytea[]) WITH ORDINALITY AS d(device, place)
                CROSS JOIN LATERAL (
                    SELECT * FROM connection_messages w
                    WHERE w.device = d.device AND w.expires_at > now()
                    ORDER BY w.seq LIMIT $2) m
                JOIN connection_contents c ON c.id = m.content) m
            WHERE before < \(Self.pageBytes)
            ORDER BY place, seq
            """,
            [.bytesArray(devices.map(\.bytes)), .integer(limit)]
        ).rows
        let contents = try await contents(Set(try rows.map { try $0.integer("content") }))
        return try rows.compactMap { row in
            guard let content = contents[try row.integer("content")] else { return nil }
            return WaitingMessage(
                device: DeviceKey(try row.bytes("device")),
                id: try row.uuid("id"),
                sequence: try row.integer("seq"),
                target: try row.text("target"),
                storedAt: try row.instant("stored_at"),
                expiresAt: try row.instant("expires_at"),
                hasOwnExpiry: try row.boolean("has_own_expiry"),
                channel: try row.textOrNil("channel"),
                isCut: try row.integer("number") < row.integer("found"),
                content: content
            )
        }
    }

    private func contents(_ identities: Set<Int>) async throws -> [Int: MessageContent] {
        var (found, missing) = cache.find(identities)
        guard !missing.isEmpty else { return found }
        let read = try await indexed.execute(
            """
            SELECT id, app, push_id, event_id, body FROM connection_contents
            WHERE id = ANY ($1::bigint[])
            """,
            [.integerArray(missing)]
        ).rows.map { row in
            MessageContent(
                identity: try row.integer("id"),
                app: try row.text("app"),
                pushID: try row.uuid("push_id"),
                eventID: try row.text("event_id"),
                text: try row.bytes("body")
            )
        }
        cache.add(read)
        for content in read { found[content.identity] = content }
        return found
    }

    /// Deletes acknowledged messages, and counts them. For the first acknowledgement of a push by an
    /// installation a receipt is stored, and a record of `push.outcomes` is written to the outbox. The
    /// caller wakes its relay: transactions that notify would commit one after the other.
    ///
    /// - Returns: How many were waiting.
    package func acknowledge(
        _ acks: [MessageAck],
        topics: KafkaTopics,
        at now: Instant
    ) async throws -> Int {
        guard !acks.isEmpty else { return 0 }
        // Several connections of a device acknowledge one message each.
        let acks = Set(acks).sorted {
            $0.device.bytes.lexicographicallyPrecedes($1.device.bytes)
        }
        let records = acks.map { ReceivedRecord($0.app, $0.pushID, $0.eventID, $0.target, at: now) }
        let results = try await database.transaction(of: [
            (IndexPlan.joiningSQL, []),
            (
                Self.acknowledgeSQL,
                [
                    .bytesArray(acks.map(\.device.bytes)), .uuidArray(acks.map(\.id)),
                    .uuidArray(acks.map(\.pushID)), .textArray(acks.map(\.target)),
                    .bytesArray(records.map { Array($0.key.utf8) }),
                    .bytesArray(records.map(\.object.bytes)), .text(topics.pushOutcomes),
                ]
            ),
        ])
        return try results[1].first?.integer("count") ?? 0
    }

    // Acknowledgements and new receipts are grouped, not joined: without statistics a join compares each
    // with each.
    private static let acknowledgeSQL = """
        WITH acked AS MATERIALIZED (
            SELECT m.seq, m.app, a.push_id::text AS push_id, a.target, a.key, a.value
            FROM unnest($1::bytea[], $2::uuid[], $3::uuid[], $4::text[], $5::bytea[], $6::bytea[])
                AS a(device, id, push_id, target, key, value)
            JOIN connection_messages m ON m.device = a.device AND m.id = a.id
            ORDER BY m.seq FOR UPDATE OF m
        ), gone AS (
            DELETE FROM connection_messages m USING acked a WHERE m.seq = a.seq
        ), noted AS (
            INSERT INTO push_receipts (app, target, kind, who)
            SELECT DISTINCT app, push_id, \(ReceiptKind.received.rawValue), target FROM acked
            ORDER BY 1, 2, 4 ON CONFLICT DO NOTHING RETURNING app, target, kind, who
        ), told AS (
            INSERT INTO outbox (kafka_topic, key, value, queue)
            SELECT $7, (array_agg(key) FILTER (WHERE NOT is_first))[1],
                (array_agg(value) FILTER (WHERE NOT is_first))[1],
                app || '\(OutboxQueue.reportsSuffix)'
            FROM (
                SELECT app, push_id, target, key, value, false AS is_first FROM acked
                UNION ALL SELECT app, target, who, NULL, NULL, true FROM noted) r
            GROUP BY app, push_id, target HAVING bool_or(is_first)
            ORDER BY app, push_id, target
        ), counted AS (
            INSERT INTO connection_counts AS c (app, slot, received)
            SELECT app, \(slotSQL), count(*) FROM acked GROUP BY app ORDER BY app
            ON CONFLICT (app, slot) DO UPDATE SET received = c.received + excluded.received
        ), \(ReceiptFigures.counting("noted"))
        SELECT count(*) AS count FROM acked
        """

    /// Deletes messages that must not be shown to their device, and counts them as displaced.
    package func displace(_ messages: [MessageAck]) async throws {
        guard !messages.isEmpty else { return }
        let messages = Set(messages)
        _ = try await indexed.execute(
            """
            WITH old AS MATERIALIZED (
                SELECT m.seq, m.app FROM unnest($1::bytea[], $2::uuid[]) AS g(device, id)
                JOIN connection_messages m ON m.device = g.device AND m.id = g.id
                ORDER BY m.seq FOR UPDATE OF m
            ), gone AS (
                DELETE FROM connection_messages m USING old WHERE m.seq = old.seq
            )
            INSERT INTO connection_counts AS c (app, slot, displaced)
            SELECT app, \(Self.slotSQL), count(*) FROM old GROUP BY app ORDER BY app
            ON CONFLICT (app, slot) DO UPDATE SET displaced = c.displaced + excluded.displaced
            """,
            [.bytesArray(messages.map(\.device.bytes)), .uuidArray(messages.map(\.id))]
        )
    }

    /// Stores that users opened the notifications of messages: once for each push and installation. Those of
    /// a deleted app are ignored.
    package func opened(_ messages: [MessageAck]) async throws {
        guard !messages.isEmpty else { return }
        _ = try await database.execute(
            """
            WITH noted AS (
                INSERT INTO push_receipts (app, target, kind, who)
                SELECT DISTINCT g.app, g.push, \(ReceiptKind.opened.rawValue), g.who
                FROM unnest($1::text[], $2::text[], $3::text[]) AS g(app, push, who)
                JOIN apps a ON a.id = g.app
                ORDER BY 1, 2, 4 ON CONFLICT DO NOTHING RETURNING app, target, kind
            ), \(ReceiptFigures.counting("noted"))
            SELECT count(*) FROM noted
            """,
            [
                .textArray(messages.map(\.app)), .textArray(messages.map(\.pushID)),
                .textArray(messages.map(\.target)),
            ]
        )
    }

    // MARK: Logins

    /// Finds the installations of devices that log in. One that became invalid by itself, not by its
    /// client, is valid again; one without a route gets this one; the time of its last contact is
    /// stored once an hour.
    ///
    /// - Returns: One for each login, in their order; `nil`: no installation is stored yet.
    package func logIn(_ logins: [DeviceLogin]) async throws -> [KnownDevice?] {
        guard !logins.isEmpty else { return [] }
        let parameters: [PostgresValue] = [
            .textArray(logins.map(\.app)), .textArray(logins.map(\.installationID)),
        ]
        let results = try await database.transaction(of: [
            (Self.touchSQL, parameters), (Self.knownSQL, parameters),
        ])
        var known: [KnownDevice?] = Array(repeating: nil, count: logins.count)
        for row in results[1].rows {
            known[try row.integer("place") - 1] = KnownDevice(
                objectID: try row.text("object_id"),
                isValid: try row.boolean("valid"),
                hasVendor: try row.boolean("has_vendor"),
                secretDigest: try row.bytesOrNil("digest")
            )
        }
        return known
    }

    /// SQL: the vendors whose devices a provider serves (`Installation.servedVendors`).
    private static let servedVendors =
        "(" + Installation.servedVendors.sorted().map { "'\($0)'" }.joined(separator: ", ") + ")"

    /// Whether an installation may have a connection and has no route: LeanCloud's rule, as
    /// `InstallationFields.route` decides it for a save.
    private static let isUnrouted = """
        (i.token IS NULL AND coalesce(lower(i.vendor), '') NOT IN \(servedVendors) AND NOT i.template_only
            AND lower(i.device_type) NOT IN ('ios', 'macos', 'osx', 'watchos', 'tvos', 'visionos',
                'applewatch', 'windows', 'winrt', 'wp'))
        """

    private static let touchSQL = """
        WITH held AS MATERIALIZED (
            SELECT i.app, i.object_id, \(isUnrouted) AS is_unrouted
            FROM (SELECT DISTINCT g.app, g.id FROM unnest($1::text[], $2::text[]) AS g(app, id)) g
            JOIN installations i ON i.app = g.app AND i.installation_id = g.id
            WHERE i.updated_at < now() - interval '1 hour' OR i.invalid_reason IS NOT NULL
                OR \(isUnrouted)
            ORDER BY i.app, i.object_id FOR NO KEY UPDATE OF i)
        UPDATE installations i SET updated_at = greatest(now(), i.created_at),
            valid = i.valid OR i.invalid_reason IS NOT NULL, invalid_reason = NULL,
            invalidated_at = CASE WHEN NOT i.valid AND i.invalid_reason IS NULL
                THEN i.invalidated_at END,
            provider = CASE WHEN h.is_unrouted THEN '\(Platform.connection.rawValue)'
                ELSE i.provider END,
            token = CASE WHEN h.is_unrouted THEN i.installation_id ELSE i.token END,
            token_hash = CASE WHEN h.is_unrouted THEN sha256(convert_to(i.installation_id, 'UTF8'))
                ELSE i.token_hash END,
            token_updated_at = CASE WHEN h.is_unrouted THEN now() ELSE i.token_updated_at END
        FROM held h WHERE i.app = h.app AND i.object_id = h.object_id
        """

    private static let knownSQL = """
        SELECT g.place, i.object_id, i.valid, r.digest,
            coalesce(lower(i.vendor), '') IN \(servedVendors) AS has_vendor
        FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS g(app, id, place)
        JOIN installations i ON i.app = g.app AND i.installation_id = g.id
        LEFT JOIN secure_readers r ON r.app = i.app AND r.installation = i.object_id
        """

    // MARK: Expiry

    /// Deletes expired messages.
    ///
    /// - Returns: The number of messages; fewer than `limit`: none are left that no other process has
    ///   locked.
    package func expire(limit: Int = 1000) async throws -> Int {
        let results = try await database.execute([
            (
                """
                WITH old AS MATERIALIZED (
                    SELECT seq FROM connection_messages WHERE expires_at <= now()
                    ORDER BY expires_at LIMIT $1 FOR UPDATE SKIP LOCKED
                ), gone AS (
                    DELETE FROM connection_messages m USING old WHERE m.seq = old.seq
                    RETURNING m.app
                ), counted AS (
                    INSERT INTO connection_counts AS c (app, slot, expired)
                    SELECT app, \(Self.slotSQL), count(*) FROM gone GROUP BY app ORDER BY app
                    ON CONFLICT (app, slot) DO UPDATE SET expired = c.expired + excluded.expired
                )
                SELECT count(*) AS count FROM gone
                """, [.integer(limit)]
            ),
            ("DELETE FROM connection_nodes WHERE seen_at < now() - interval '1 day'", []),
        ])
        return try results[0].first?.integer("count") ?? 0
    }

    /// Deletes contents without messages. They are locked first: the second statement sees the messages
    /// of every transaction that had a lock before.
    ///
    /// - Returns: The number of contents that were looked at; fewer than `limit`: none are left that no
    ///   other process has locked.
    package func expireContents(limit: Int = 1000) async throws -> Int {
        try await database.transaction { transaction in
            let due = try await transaction.execute(
                """
                SELECT id FROM connection_contents WHERE keep_until < now()
                ORDER BY keep_until LIMIT $1 FOR UPDATE SKIP LOCKED
                """,
                [.integer(limit)]
            ).rows.map { try $0.integer("id") }
            guard !due.isEmpty else { return 0 }
            _ = try await transaction.execute(
                """
                WITH used AS MATERIALIZED (
                    SELECT c.id, EXISTS (
                        SELECT FROM connection_messages m WHERE m.content = c.id) AS is_used
                    FROM unnest($1::bigint[]) AS c(id)
                ), deleted AS (
                    DELETE FROM connection_contents c USING used u WHERE c.id = u.id AND NOT u.is_used
                )
                UPDATE connection_contents c SET keep_until = now() + interval '6 hours'
                FROM used u WHERE c.id = u.id AND u.is_used
                """,
                [.integerArray(due)]
            )
            return due.count
        }
    }
}
