import Postgres
package import PushCore
import Storage

/// The operations of an authenticated reader on its own content.
///
/// Ids that are invented, another identity's, another app's, expired, deleted or consumed are searched by
/// the same statement, and get the same empty answer.
extension SecurePayloadStore {
    /// The maximum of entries in a reader's list.
    package static let maximumWaiting = 100

    /// `$1` to `$4`: the id, the reader's app and identity, and the reading device.
    private static let isThere = """
        p.id = $1 AND p.app = $2 AND p.identity = $3 AND p.is_kept AND p.ends_at > now()
        """
    private static let isSealedToIt = """
        EXISTS (SELECT FROM secure_sealed s WHERE s.payload = p.id AND s.installation = $4)
        """

    private static func parameters(_ id: String, _ reader: SecureReader) -> [PostgresValue] {
        // An invalid id is searched all the same: it takes as long as any other.
        [
            .text(SecureID.isWellFormed(id) ? id : ""), .text(storable(reader.app)),
            .text(storable(reader.identity)), .text(storable(reader.device ?? "")),
        ]
    }

    /// Returns an empty string for one with NUL, which Postgres cannot store: no identity has such a name.
    private static func storable(_ text: String) -> String {
        text.utf8.contains(0) ? "" : text
    }

    /// Reads the content of an id, for its reader. Marks nothing.
    ///
    /// - Returns: `nil` if this reader cannot read it, for any reason.
    package func look(_ id: String, for reader: SecureReader) async throws -> SecureContent? {
        let found = try await database.execute(
            """
            SELECT p.push_id, p.is_sealed, p.read_at IS NOT NULL AS was_read,
                CASE WHEN p.is_sealed THEN s.content ELSE p.content END AS bytes,
                EXISTS (SELECT FROM secure_reads r WHERE r.payload = p.id
                    AND r.installation = CASE WHEN p.is_sealed THEN $4 ELSE $5 END) AS is_noted
            FROM secure_payloads p
            LEFT JOIN secure_sealed s ON s.payload = p.id AND s.installation = $4
            WHERE \(Self.isThere) AND (NOT p.is_sealed OR s.payload IS NOT NULL)
            """,
            Self.parameters(id, reader) + [.text(Self.storable(reader.installation ?? ""))]
        )
        guard let row = found.first else { return nil }
        let isSealed = try row.boolean("is_sealed")
        return SecureContent(
            id: id,
            app: reader.app,
            identity: reader.identity,
            pushID: try row.uuid("push_id"),
            bytes: try row.bytesOrNil("bytes") ?? [],
            isSealed: isSealed,
            wasRead: try row.boolean("was_read"),
            isNoted: try row.boolean("is_noted"),
            device: isSealed ? reader.device : reader.installation
        )
    }

    /// Whether `look` would find it.
    package func exists(_ id: String, for reader: SecureReader) async throws -> Bool {
        try await database.execute(
            """
            SELECT 1 AS there FROM secure_payloads p
            WHERE \(Self.isThere) AND (NOT p.is_sealed OR \(Self.isSealedToIt))
            """,
            Self.parameters(id, reader)
        ).first != nil
    }

    /// Records a reader's first read: the time of the first of all, the reader, its push's counters, and
    /// the record that reports it, all or nothing. A repeat changes nothing.
    ///
    /// - Parameters:
    ///   - content: The result of `look`.
    ///   - grace: How long content that is read once remains after its first read.
    ///   - record: The report, used if this is the reader's first read.
    /// - Returns: Whether it had been read before, which is false for exactly one reader; `nil` if the
    ///   content was deleted meanwhile.
    /// - Throws: `StorageError`.
    package func markRead(
        _ content: SecureContent,
        grace: Duration,
        confirming record: OutgoingRecord
    ) async throws -> Bool? {
        let found = try await database.execute(
            Self.markSQL,
            [
                .text(content.id), .text(content.app), .text(content.identity),
                .text(content.device ?? ""), .integer(Int(clamping: grace.wholeMilliseconds)),
            ] + OutboxStore.parameters(of: [record])
        )
        return try found.first?.boolean("was_read")
    }

    // The row is locked first: of two concurrent readers the second sees the first one's change.
    private static let markSQL = """
        WITH held AS MATERIALIZED (
            SELECT p.id, p.app, p.push_id, p.read_at IS NOT NULL AS was_read, p.read_once
            FROM secure_payloads p WHERE \(isThere) FOR NO KEY UPDATE
        ), noted AS (
            INSERT INTO secure_reads (payload, app, installation) SELECT id, app, $4 FROM held
            ON CONFLICT (payload, installation) DO NOTHING RETURNING payload
        ), opened AS (
            UPDATE secure_payloads p SET read_at = clock_timestamp(),
                ends_at = CASE WHEN h.read_once
                    THEN least(p.ends_at, clock_timestamp() + $5 * interval '1 millisecond')
                    ELSE p.ends_at END
            FROM held h WHERE p.id = h.id AND NOT h.was_read
        ), counted AS (
            UPDATE pushes u SET confirmed = u.confirmed + 1
            FROM held h JOIN noted n ON n.payload = h.id WHERE u.id = h.push_id
        ), told AS (
            \(OutboxStore.insertion(from: 6)) WHERE EXISTS (SELECT FROM noted) RETURNING id
        )
        SELECT h.was_read,
            (SELECT pg_notify('\(NotifyChannel.outbox.rawValue)', '') FROM told LIMIT 1)
        FROM held h
        """

    /// Deletes content for all devices, when a device has received it, or its identity does not want it any more.
    ///
    /// - Returns: Whether this reader could read it.
    package func delete(_ id: String, for reader: SecureReader) async throws -> Bool {
        try await database.execute(
            """
            WITH held AS MATERIALIZED (
                SELECT p.id FROM secure_payloads p
                WHERE \(Self.isThere) AND (NOT p.is_sealed OR $4 = '' OR \(Self.isSealedToIt))
                FOR NO KEY UPDATE
            ), \(Self.emptied)
            SELECT id FROM held
            """,
            Self.parameters(id, reader)
        ).first != nil
    }

    /// The deletion of content on request: common table expressions after `held (id)`.
    static let emptied = """
        copies AS (DELETE FROM secure_sealed s USING held h WHERE s.payload = h.id),
        emptied AS (
            UPDATE secure_payloads p SET content = NULL, is_kept = false,
                deleted_at = CASE WHEN p.ends_at > now() THEN now() ELSE p.deleted_at END,
                ends_at = least(p.ends_at, now())
            FROM held h WHERE p.id = h.id AND p.is_kept
        )
        """

    /// Returns a reader's unread payloads, the newest first.
    package func waiting(for reader: SecureReader) async throws -> [SecureEntry] {
        try await database.execute(
            """
            SELECT \(SecureEntry.columns) FROM secure_payloads p
            WHERE p.app = $1 AND p.identity = $2 AND p.is_kept AND p.ends_at > now()
                AND p.read_at IS NULL
                AND (NOT p.is_sealed OR EXISTS (SELECT FROM secure_sealed s
                    WHERE s.payload = p.id AND s.installation = $3))
            ORDER BY p.created_at DESC, p.id DESC LIMIT \(Self.maximumWaiting)
            """,
            [
                .text(Self.storable(reader.app)), .text(Self.storable(reader.identity)),
                .text(Self.storable(reader.device ?? "")),
            ]
        ).rows.map(SecureEntry.init)
    }
}

extension SecureReader {
    /// The device whose copy of sealed content the reader may have.
    var device: String? { installation ?? named }
}
