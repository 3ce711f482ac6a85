import Postgres
package import PushCore
import Storage

/// A version that is stuck between its publish and its announcement.
package struct OverdueConfigVersion: Sendable, Equatable {
    package enum Stage: String, Sendable, CaseIterable {
        /// Another system wrote it, and it was not validated yet.
        case unchecked
        /// It is current, and no watcher has seen it.
        case unheard
        /// A watcher has seen it, and none has announced it.
        case pending
    }

    package var app: String
    package var namespace: String
    package var version: Int
    package var stage: Stage
    package var since: Instant
}

extension ConfigStore {
    /// Returns versions that have waited longer than they should while a watcher runs, for the operator.
    ///
    /// - Returns: At most 100, the oldest first.
    /// - Throws: `StorageError`.
    package func overdue(by timeLimit: Duration) async throws -> [OverdueConfigVersion] {
        try await database.execute(
            """
            SELECT app, namespace, version, stage, since FROM (
                SELECT app, namespace, version, 'unchecked' AS stage, published_at AS since
                FROM config_versions WHERE state = \(ConfigVersionState.unchecked.sql)
                UNION ALL
                SELECT app, namespace, version, 'pending', seen_at
                FROM config_pending WHERE seen_at IS NOT NULL
                UNION ALL
                SELECT h.app, h.namespace, h.current_version, 'unheard', v.published_at
                FROM config_heads h
                JOIN config_versions v ON v.app = h.app AND v.namespace = h.namespace
                    AND v.version = h.current_version
                LEFT JOIN config_announcements a ON a.app = h.app AND a.namespace = h.namespace
                WHERE h.namespace = $2 AND h.current_version > greatest(a.announced_version, 0,
                    (SELECT max(p.version) FROM config_pending p WHERE p.app = h.app
                        AND p.namespace = h.namespace AND p.seen_at IS NOT NULL))) waiting
            WHERE since < now() - $1 * interval '1 millisecond'
            ORDER BY since, app, namespace, version LIMIT 100
            """,
            [
                .integer(Int(clamping: timeLimit.wholeMilliseconds)),
                .text(Self.clientNamespace),
            ]
        ).rows.map { row in
            let name = try row.text("stage")
            guard let stage = OverdueConfigVersion.Stage(rawValue: name) else {
                throw StorageError(.corrupt, "a version waits at the unknown stage \(name)")
            }
            return OverdueConfigVersion(
                app: try row.text("app"),
                namespace: try row.text("namespace"),
                version: try row.integer("version"),
                stage: stage,
                since: try row.instant("since")
            )
        }
    }

    /// The namespace that clients fetch, so that its versions are announced.
    private static let clientNamespace = "firebase"
}
