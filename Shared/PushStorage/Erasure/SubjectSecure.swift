import JSON
import Postgres
import PushCore

/// What secure payloads keep of a subject: content that is for it, what was sealed to its devices, who of
/// it has read, and what it proves itself by.
enum SubjectSecure {
    /// A payload may have 64 KiB, and a copy for each device.
    private static let payloadsAtOnce = 200
    private static let rowsAtOnce = 1000

    /// Its devices' secrets and its own, so that it reads nothing more.
    static func eraseProofs(
        of subject: Subject,
        installations: [String],
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws {
        // They would go with their installations, uncounted.
        counts["secureReaders"] += try await transaction.execute(
            "DELETE FROM secure_readers WHERE app = $1 AND installation = ANY ($2::text[])",
            [.text(subject.app), .textArray(installations)]
        ).affectedRows
        guard subject.kind == .identity else { return }
        counts["secureSecrets"] += try await transaction.execute(
            "DELETE FROM identity_secrets WHERE app = $1 AND identity = $2",
            [.text(subject.app), .text(subject.id)]
        ).affectedRows
    }

    /// Erases a portion of what came in until a moment, in microseconds.
    ///
    /// - Returns: Whether there may be more.
    static func erasePortion(
        of subject: Subject,
        _ names: SubjectNames,
        until: Int64,
        _ counts: inout ErasureCounts,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        var isFull = false
        if subject.kind == .identity {
            let own: [PostgresValue] = [
                .text(subject.app), .text(subject.id), .timestamp(until),
            ]
            let payloads = try await transaction.execute(
                """
                DELETE FROM secure_payloads WHERE id IN (
                    SELECT id FROM secure_payloads
                    WHERE app = $1 AND identity = $2 AND created_at <= $3
                    ORDER BY created_at, id LIMIT \(payloadsAtOnce) FOR UPDATE)
                """,
                own
            ).affectedRows
            counts["securePayloads"] += payloads
            // A backend chose the key, and may have named whom it is for.
            let keys = try await transaction.execute(
                """
                DELETE FROM secure_keys WHERE app = $1 AND key IN (
                    SELECT key FROM secure_keys
                    WHERE app = $1 AND identity = $2 AND created_at <= $3
                    ORDER BY key LIMIT \(rowsAtOnce) FOR UPDATE)
                """,
                own
            ).affectedRows
            isFull = payloads == payloadsAtOnce || keys == rowsAtOnce
        }
        let devices: [PostgresValue] = [
            .text(subject.app), .textArray(names.objectIDs.sorted()), .timestamp(until),
        ]
        let copies = try await transaction.execute(
            """
            DELETE FROM secure_sealed WHERE (payload, installation) IN (
                SELECT s.payload, s.installation FROM secure_sealed s
                JOIN secure_payloads p ON p.id = s.payload AND p.created_at <= $3
                WHERE s.app = $1 AND s.installation = ANY ($2::text[])
                ORDER BY s.payload, s.installation LIMIT \(payloadsAtOnce) FOR UPDATE OF s)
            """,
            devices
        ).affectedRows
        counts["securePayloads"] += copies
        let reads = try await transaction.execute(
            """
            DELETE FROM secure_reads WHERE (payload, installation) IN (
                SELECT payload, installation FROM secure_reads
                WHERE app = $1 AND installation = ANY ($2::text[]) AND installation <> ''
                    AND read_at <= $3
                ORDER BY payload, installation LIMIT \(rowsAtOnce) FOR UPDATE)
            """,
            devices
        ).affectedRows
        return isFull || copies == payloadsAtOnce || reads == rowsAtOnce
    }

    /// Adds what those two would count now.
    static func count(
        of subject: Subject,
        _ names: SubjectNames,
        _ counts: inout ErasureCounts,
        in database: Database
    ) async throws {
        let found = try await database.execute(
            """
            SELECT (SELECT count(*) FROM secure_payloads
                    WHERE $4 AND app = $1 AND identity = $2)
                + (SELECT count(*) FROM secure_sealed s JOIN secure_payloads p ON p.id = s.payload
                    WHERE s.app = $1 AND s.installation = ANY ($3::text[])
                        AND NOT ($4 AND p.identity = $2)) AS payloads,
                (SELECT count(*) FROM secure_readers
                    WHERE app = $1 AND installation = ANY ($3::text[])) AS readers,
                (SELECT count(*) FROM identity_secrets
                    WHERE $4 AND app = $1 AND identity = $2) AS secrets
            """,
            [
                .text(subject.app), .text(subject.id), .textArray(names.objectIDs.sorted()),
                .boolean(subject.kind == .identity),
            ]
        ).first
        counts["securePayloads"] += try found?.integer("payloads") ?? 0
        counts["secureReaders"] += try found?.integer("readers") ?? 0
        counts["secureSecrets"] += try found?.integer("secrets") ?? 0
    }

    // MARK: Export

    /// What is kept, without any content, secret or key; at most `limit` payloads, the newest first.
    static func export(
        of subject: Subject,
        _ installations: [Installation],
        limit: Int,
        into export: inout SubjectExport,
        in database: Database
    ) async throws {
        let ids = installations.map(\.objectID)
        // Of a device that which was sealed to it, of an identity all that is for it.
        let (condition, value): (String, PostgresValue) =
            switch subject.kind {
            case .identity: ("p.identity = $2", .text(subject.id))
            case .installation:
                (
                    """
                    p.id IN (SELECT payload FROM secure_sealed
                        WHERE app = $1 AND installation = ANY ($2::text[]))
                    """, .textArray(ids)
                )
            }
        let rows = try await database.execute(
            """
            SELECT \(SecureEntry.columns) FROM secure_payloads p
            WHERE p.app = $1 AND \(condition)
            ORDER BY p.created_at DESC, p.id DESC LIMIT $3
            """,
            [.text(subject.app), value, .integer(limit)]
        ).rows
        export.securePayloads = try rows.map { .object(try SecureEntry($0).json) }
        if rows.count == limit { export.isTruncated = true }
        export.secureReaders = try await database.execute(
            """
            SELECT installation, sealing_key IS NOT NULL AS is_sealing, created_at
            FROM secure_readers WHERE app = $1 AND installation = ANY ($2::text[])
            ORDER BY installation
            """,
            [.text(subject.app), .textArray(ids)]
        ).rows.map { row in
            [
                "objectId": .string(try row.text("installation")),
                "hasSealingKey": .bool(try row.boolean("is_sealing")),
                "createdAt": .string(try row.instant("created_at").iso8601),
            ]
        }
        guard subject.kind == .identity else { return }
        export.secureSecrets = try await database.execute(
            "SELECT updated_at FROM identity_secrets WHERE app = $1 AND identity = $2",
            [.text(subject.app), .text(subject.id)]
        ).rows.map { ["setAt": .string(try $0.instant("updated_at").iso8601)] }
    }
}
