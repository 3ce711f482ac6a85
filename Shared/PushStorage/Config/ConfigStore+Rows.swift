package import JSON
import Postgres
package import PushCore

/// What other writers put into the table: looked at before it counts.
extension ConfigStore {
    /// A row that nobody has looked at.
    package struct UncheckedConfigVersion: Sendable {
        package var stored: StoredConfigVersion
        /// JSON, perhaps: Postgres takes some that is none, such as numbers out of bounds. `nil` where
        /// it is too large to be read.
        package var template: String?
    }

    /// What came of looking at a row.
    package enum RowVerdict: Sendable {
        /// Kept in this form from now on: clients demand members that others leave out.
        case holds(as: JSONObject)
        case refused(String)
    }

    /// Looks at the oldest row that nobody has looked at, of a template that nobody holds, and makes it
    /// current where it holds and is higher than what is: all in one transaction, so that of several
    /// lookers one does it.
    ///
    /// - Parameters:
    ///   - maximumBytes: A larger template is not read.
    ///   - verdict: Whether it holds.
    ///   - record: What is told of it, where it becomes current.
    /// - Returns: The row as it stands now; `nil` where there is none to look at.
    /// - Throws: `StorageError`.
    package func checkNext(
        maximumBytes: Int,
        verdict: @escaping @Sendable (UncheckedConfigVersion) async -> RowVerdict,
        record: @escaping @Sendable (StoredConfigVersion) -> OutgoingRecord
    ) async throws -> StoredConfigVersion? {
        try await database.transaction { transaction in
            _ = try await transaction.execute(ConfigStore.idleTimeout)
            let found = try await transaction.execute(
                """
                SELECT \(StoredConfigVersion.columns),
                    CASE WHEN octet_length(template::text) <= $1 THEN template::text END AS template
                FROM config_versions v
                WHERE (app, namespace, version) = (SELECT v.app, v.namespace, v.version
                    FROM config_versions v
                    JOIN config_heads h ON h.app = v.app AND h.namespace = v.namespace
                    WHERE v.state = \(ConfigVersionState.unchecked.sql)
                    ORDER BY v.published_at, v.app, v.namespace, v.version LIMIT 1
                    FOR UPDATE SKIP LOCKED)
                """,
                [.integer(maximumBytes)]
            )
            guard let row = found.first else { return nil }
            var stored = try StoredConfigVersion(row, withTemplate: false)
            let verdict = await verdict(
                UncheckedConfigVersion(stored: stored, template: try row.textOrNil("template"))
            )
            var template: PostgresValue = .null
            switch verdict {
            case .holds(let object):
                stored.state = .good
                stored.reason = nil
                template = .json(.object(object))
            case .refused(let reason):
                stored.state = .refused
                stored.reason = reason
            }
            let place: [PostgresValue] = [.text(stored.app), .text(stored.namespace)]
            let head = try await transaction.pipeline([
                (
                    """
                    UPDATE config_versions
                    SET state = $4, reason = $5, template = coalesce($6::json, template)
                    WHERE app = $1 AND namespace = $2 AND version = $3
                    """,
                    place + [
                        .integer(stored.version), .integer(stored.state.rawValue),
                        .optional(text: stored.reason), template,
                    ]
                ),
                (
                    """
                    SELECT \(ConfigHead.columns) FROM config_heads
                    WHERE app = $1 AND namespace = $2 FOR UPDATE
                    """,
                    place
                ),
            ])[1].first.map(ConfigHead.init)
            guard stored.state == .good, stored.version > head?.currentVersion ?? 0 else {
                return stored
            }
            try await Self.makeCurrent(stored, record(stored), transaction)
            return stored
        }
    }

    /// Those that were refused and stand above the current version or are recent, for the operator.
    ///
    /// - Parameter app: `nil`: of all apps.
    /// - Returns: At most 100, the latest first.
    /// - Throws: `StorageError`.
    package func refused(_ app: String? = nil) async throws -> [StoredConfigVersion] {
        try await database.execute(
            """
            SELECT \(StoredConfigVersion.columns) FROM config_versions v
            WHERE state = \(ConfigVersionState.refused.sql) AND ($1::text IS NULL OR app = $1)
                AND version > (SELECT coalesce(max(h.current_version), 0) FROM config_heads h
                    WHERE h.app = v.app AND h.namespace = v.namespace)
            ORDER BY published_at DESC, app, namespace, version LIMIT 100
            """,
            [.optional(text: app)]
        ).rows.map { try StoredConfigVersion($0, withTemplate: false) }
    }

    /// Deletes versions that are older than they are kept, but for current ones.
    ///
    /// - Returns: How many.
    /// - Throws: `StorageError`.
    package func prune(olderThan retention: Duration, limit: Int = 1000) async throws -> Int {
        try await database.execute(
            """
            DELETE FROM config_versions WHERE (app, namespace, version) IN (
                SELECT v.app, v.namespace, v.version FROM config_versions v
                JOIN config_heads h ON h.app = v.app AND h.namespace = v.namespace
                WHERE v.published_at < now() - $1 * interval '1 second'
                    AND v.version <> h.current_version
                    AND v.state <> \(ConfigVersionState.unchecked.sql)
                ORDER BY v.published_at LIMIT $2 FOR UPDATE OF v SKIP LOCKED)
            """,
            [.integer(Int(retention.components.seconds)), .integer(limit)]
        ).affectedRows
    }
}
