package import JSON
import Postgres
package import PushCore
import Storage

/// Rows of other writers: validated before they are served.
extension ConfigStore {
    /// A row that was not validated yet.
    package struct UncheckedConfigVersion: Sendable {
        package var stored: StoredConfigVersion
        /// Probably JSON: Postgres accepts some that is invalid, such as numbers out of bounds. `nil`
        /// if it is too large to be read.
        package var template: String?
    }

    /// The result of validating a row.
    package enum RowVerdict: Sendable {
        /// Valid, and stored in this form from now on: clients demand members that other writers omit.
        case holds(as: JSONObject)
        case refused(String)
    }

    /// Validates the oldest unchecked row whose template is not locked, and makes it current if it is
    /// valid and higher than the current version: all in one transaction, so that only one of several
    /// processes does it.
    ///
    /// - Parameters:
    ///   - maximumBytes: A larger template is not read.
    ///   - verdict: Validates the row.
    ///   - record: Makes the announcement if it becomes current.
    /// - Returns: The row in its new state; `nil` if there is none to validate.
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

    /// Returns refused versions that are above the current version or recent, for the operator.
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

    /// Deletes versions that are older than their retention, except for current ones.
    ///
    /// - Returns: Their number.
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
