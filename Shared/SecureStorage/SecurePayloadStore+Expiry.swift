import Postgres
package import PushCore
import Storage

/// The expiry. Any replica may call it at any time; each takes other rows.
extension SecurePayloadStore {
    /// The counts of deleted contents.
    package struct Emptied: Sendable, Equatable {
        package var expired = 0
        /// Read once, and its grace period has ended.
        package var consumed = 0

        package var count: Int { expired + consumed }

        package init(expired: Int = 0, consumed: Int = 0) {
            self.expired = expired
            self.consumed = consumed
        }
    }

    /// Content that should have been deleted.
    package struct Overdue: Sendable, Equatable {
        package var count: Int
        package var since: Instant
    }

    /// Deletes the bytes of expired content, in one small batch: a value may have 64 KiB.
    ///
    /// - Returns: Their number; fewer than `limit`: none are left that no other process has locked.
    package func emptyExpired(limit: Int = 200) async throws -> Emptied {
        let rows = try await database.execute(
            """
            WITH held AS MATERIALIZED (
                SELECT p.id, p.ends_at < p.expires_at AS is_consumed FROM secure_payloads p
                WHERE p.is_kept AND p.ends_at <= now()
                ORDER BY p.ends_at LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED
            ), \(Self.emptied)
            SELECT count(*) FILTER (WHERE NOT is_consumed) AS expired,
                count(*) FILTER (WHERE is_consumed) AS consumed FROM held
            """,
            [.integer(limit)]
        )
        return Emptied(
            expired: try rows.first?.integer("expired") ?? 0,
            consumed: try rows.first?.integer("consumed") ?? 0
        )
    }

    /// Deletes rows without content that ended this long ago; afterwards the number may be used again.
    ///
    /// - Returns: Their number; fewer than `limit`: none are left.
    package func forget(endedBefore retention: Duration, limit: Int = 1000) async throws -> Int {
        try await database.execute(
            """
            DELETE FROM secure_payloads WHERE id IN (
                SELECT id FROM secure_payloads
                WHERE NOT is_kept AND ends_at < now() - $1 * interval '1 millisecond'
                ORDER BY ends_at LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            [.integer(Int(clamping: retention.wholeMilliseconds)), .integer(limit)]
        ).affectedRows
    }

    /// Deletes requests' keys of this age.
    ///
    /// - Returns: Their number; fewer than `limit`: none are left.
    package func forgetKeys(olderThan retention: Duration, limit: Int = 1000) async throws -> Int {
        try await database.execute(
            """
            DELETE FROM secure_keys WHERE (app, key) IN (
                SELECT app, key FROM secure_keys
                WHERE created_at < now() - $1 * interval '1 millisecond'
                ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED)
            """,
            [.integer(Int(clamping: retention.wholeMilliseconds)), .integer(limit)]
        ).affectedRows
    }

    /// Returns contents that expired this long ago and still have their bytes; `nil` if there are none.
    package func overdue(by timeLimit: Duration) async throws -> Overdue? {
        let row = try await database.execute(
            """
            SELECT count(*) AS count, min(ends_at) AS since FROM secure_payloads
            WHERE is_kept AND ends_at < now() - $1 * interval '1 millisecond'
            """,
            [.integer(Int(clamping: timeLimit.wholeMilliseconds))]
        ).first
        guard let row, let since = try row.instantOrNil("since") else { return nil }
        return Overdue(count: try row.integer("count"), since: since)
    }
}
