import Postgres
package import PushCore
import Storage

/// A version reported as published.
package struct PublishedConfig: Sendable, Equatable {
    package var app: String
    package var namespace: String
    package var version: Int
    package var updateType: String

    package init(app: String, namespace: String, version: Int, updateType: String) {
        self.app = app
        self.namespace = namespace
        self.version = version
        self.updateType = updateType
    }
}

/// The announcement state of a template.
package struct ConfigAnnouncementState: Sendable, Equatable {
    package var app: String
    package var namespace: String
    /// 0: no version was announced yet.
    package var announcedVersion: Int
    package var announcedAt: Instant?
    /// The version that is to be announced.
    package var pendingVersion: Int?
}

/// The latest version that an app's clients were notified of.
package struct LatestConfigAnnouncement: Sendable, Equatable {
    package var app: String
    /// The creation of the app: an app created later with the same id is a different one.
    package var createdAt: Instant
    /// 0: none yet.
    package var version: Int

    package init(app: String, createdAt: Instant, version: Int) {
        self.app = app
        self.createdAt = createdAt
        self.version = version
    }
}

/// The store of versions to announce and of announced ones: of a burst, only the highest is announced.
package struct ConfigAnnouncementStore: Sendable {
    let database: Database

    /// The minimum time between seeing a version, and so its commit, and its announcement:
    /// meanwhile each replica has read the current version.
    package static let settling = Duration.milliseconds(500)
    /// The only namespace that is announced, as no client fetches the servers' templates.
    static let announcedNamespace = "firebase"

    /// Notes published versions, to be announced.
    ///
    /// - Parameter heard: The versions; their apps exist.
    /// - Returns: Whether each of `heard` can be announced: false for one above the current one of
    ///   a template that is stored here.
    /// - Throws: `StorageError`.
    package func note(_ heard: [PublishedConfig]) async throws -> [Bool] {
        guard !heard.isEmpty else { return [] }
        let parameters: [PostgresValue] = [
            .textArray(heard.map(\.app)), .textArray(heard.map(\.namespace)),
            .integerArray(heard.map(\.version)),
        ]
        return try await database.transaction { transaction in
            let judged = try await transaction.execute(
                """
                SELECT coalesce(s.version <= h.current_version, true) AS usable
                FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY
                    AS s(app, namespace, version, number)
                LEFT JOIN config_heads h ON h.app = s.app AND h.namespace = s.namespace
                    AND h.last_version > 0
                ORDER BY s.number
                """,
                parameters
            ).rows.map { try $0.boolean("usable") }
            _ = try await transaction.execute(
                """
                INSERT INTO config_pending (app, namespace, version, update_type)
                SELECT DISTINCT ON (s.app, s.namespace) s.app, s.namespace, s.version, s.type
                FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::boolean[])
                    AS s(app, namespace, version, type, usable)
                LEFT JOIN config_announcements a ON a.app = s.app AND a.namespace = s.namespace
                WHERE s.usable AND s.version > coalesce(a.announced_version, 0)
                ORDER BY s.app, s.namespace, s.version DESC
                ON CONFLICT DO NOTHING
                """,
                parameters + [.textArray(heard.map(\.updateType)), .booleanArray(judged)]
            )
            try await NotifyChannel.configPending.notify(transaction)
            return judged
        }
    }

    /// Announces due versions: marks them as announced, and appends the records that do it.
    ///
    /// - Parameters:
    ///   - delay: How long after the first of a burst was seen the highest is announced, and how long
    ///     after an announcement the next may follow.
    ///   - limit: The maximum of apps at once.
    ///   - record: The announcement of a version.
    /// - Returns: The announced versions, the number of due apps, and for each template that is
    ///   stored here the seconds from its publish to its announcement; empty if nothing is due.
    /// - Throws: `StorageError`.
    package func announce(
        after delay: Duration,
        limit: Int = 100,
        record: @escaping @Sendable (PublishedConfig) -> OutgoingRecord
    ) async throws -> (announced: [PublishedConfig], due: Int, seconds: [Double]) {
        try await see()
        let wait = Self.milliseconds(max(delay, Self.settling))
        return try await database.transaction { transaction in
            _ = try await transaction.execute(ConfigStore.idleTimeout)
            let due = try await transaction.execute(
                """
                SELECT app, namespace FROM config_announcements a
                WHERE EXISTS (SELECT FROM config_pending p
                    WHERE p.app = a.app AND p.namespace = a.namespace
                        AND p.seen_at <= clock_timestamp() - $1 * interval '1 millisecond')
                    AND (announced_at IS NULL
                        OR announced_at <= clock_timestamp() - $1 * interval '1 millisecond')
                ORDER BY app, namespace LIMIT $2 FOR UPDATE SKIP LOCKED
                """,
                [wait, .integer(limit)]
            ).rows.map { (app: try $0.text("app"), namespace: try $0.text("namespace")) }
            guard !due.isEmpty else { return ([], 0, []) }
            // Another replica may have announced it before this one locked the row; that is seen here.
            let rows = try await transaction.execute(
                """
                WITH picked AS MATERIALIZED (
                    SELECT DISTINCT ON (p.app, p.namespace) p.app, p.namespace, p.version,
                        p.update_type
                    FROM config_pending p
                    JOIN unnest($1::text[], $2::text[]) AS d(app, namespace)
                        ON d.app = p.app AND d.namespace = p.namespace
                    WHERE p.seen_at <= clock_timestamp() - $3 * interval '1 millisecond'
                    ORDER BY p.app, p.namespace, p.version DESC
                ), gone AS (
                    DELETE FROM config_pending p USING picked k
                    WHERE p.app = k.app AND p.namespace = k.namespace AND p.version <= k.version
                )
                UPDATE config_announcements a
                SET announced_version = k.version, announced_at = clock_timestamp()
                FROM picked k WHERE a.app = k.app AND a.namespace = k.namespace
                    AND k.version > a.announced_version
                RETURNING k.app, k.namespace, k.version, k.update_type,
                    (SELECT extract(epoch FROM a.announced_at - v.published_at)::double precision
                    FROM config_versions v WHERE v.app = k.app AND v.namespace = k.namespace
                        AND v.version = k.version) AS seconds
                """,
                [
                    .textArray(due.map(\.app)), .textArray(due.map(\.namespace)),
                    Self.milliseconds(Self.settling),
                ]
            ).rows
            let announced = try rows.map { row in
                PublishedConfig(
                    app: try row.text("app"),
                    namespace: try row.text("namespace"),
                    version: try row.integer("version"),
                    updateType: try row.text("update_type")
                )
            }
            guard !announced.isEmpty else { return ([], due.count, []) }
            try await OutboxStore.append(announced.map(record), transaction)
            _ = try await transaction.execute(
                """
                SELECT pg_notify('\(NotifyChannel.config.rawValue)', app)
                FROM unnest($1::text[]) AS s(app)
                """,
                [.textArray(announced.map(\.app))]
            )
            return (announced, due.count, try rows.compactMap { try $0.doubleOrNil("seconds") })
        }
    }

    /// Sets the time of committed versions that are seen for the first time, and creates a lockable row
    /// for each app with pending versions: in one statement, as the process may be killed after any.
    private func see() async throws {
        _ = try await database.execute(
            """
            WITH seen AS (
                UPDATE config_pending p SET seen_at = clock_timestamp()
                FROM (SELECT app, namespace, version FROM config_pending WHERE seen_at IS NULL
                    ORDER BY app, namespace, version LIMIT 1000 FOR UPDATE SKIP LOCKED) n
                WHERE p.app = n.app AND p.namespace = n.namespace AND p.version = n.version
            )
            INSERT INTO config_announcements (app, namespace)
            SELECT DISTINCT p.app, p.namespace FROM config_pending p
            WHERE NOT EXISTS (SELECT FROM config_announcements a
                WHERE a.app = p.app AND a.namespace = p.namespace)
            ORDER BY p.app, p.namespace
            ON CONFLICT DO NOTHING
            """
        )
    }

    /// Returns the time until a version is due; `nil` if none is pending.
    package func untilNext(after delay: Duration) async throws -> Duration? {
        let row = try await database.execute(
            """
            SELECT (extract(epoch FROM min(greatest(p.first, a.announced_at))
                    - clock_timestamp()) * 1000)::bigint + $1 AS wait
            FROM (SELECT app, namespace, min(coalesce(seen_at, clock_timestamp())) AS first
                FROM config_pending GROUP BY app, namespace) p
            LEFT JOIN config_announcements a ON a.app = p.app AND a.namespace = p.namespace
            """,
            [Self.milliseconds(max(delay, Self.settling))]
        ).first
        return try row?.integerOrNil("wait").map { .milliseconds(max($0, 0)) }
    }

    private static func milliseconds(_ duration: Duration) -> PostgresValue {
        .integer(Int(clamping: duration.wholeMilliseconds))
    }

    /// Returns the announcement states of an app's namespaces, without those that have none.
    package func all(of app: String) async throws -> [ConfigAnnouncementState] {
        try await announcements("WHERE app = $1 ORDER BY namespace", [.text(app)])
    }

    /// Returns the latest announcements of some apps in one namespace, without apps that do not exist or
    /// are being deleted.
    package func latest(
        of apps: [String],
        in namespace: String
    ) async throws -> [LatestConfigAnnouncement] {
        try await database.execute(
            """
            SELECT id, created_at, coalesce(announced_version, 0) AS version
            FROM apps LEFT JOIN config_announcements ON app = id AND namespace = $2
            WHERE id = ANY ($1::text[]) AND app_key_sealed <> ''
            """,
            [.textArray(apps), .text(namespace)]
        ).rows.map { row in
            LatestConfigAnnouncement(
                app: try row.text("id"),
                createdAt: try row.instant("created_at"),
                version: try row.integer("version")
            )
        }
    }

    private func announcements(
        _ condition: String,
        _ parameters: [PostgresValue]
    ) async throws -> [ConfigAnnouncementState] {
        try await database.execute(
            """
            SELECT app, namespace, announced_version, announced_at, (SELECT max(version)
                FROM config_pending p WHERE p.app = s.app AND p.namespace = s.namespace)
                AS pending_version
            FROM (SELECT app, namespace, announced_version, announced_at FROM config_announcements
                UNION ALL
                SELECT DISTINCT app, namespace, 0, NULL::timestamptz FROM config_pending p
                WHERE NOT EXISTS (SELECT FROM config_announcements a
                    WHERE a.app = p.app AND a.namespace = p.namespace)) s
            \(condition)
            """,
            parameters
        ).rows.map { row in
            ConfigAnnouncementState(
                app: try row.text("app"),
                namespace: try row.text("namespace"),
                announcedVersion: try row.integer("announced_version"),
                announcedAt: try row.instantOrNil("announced_at"),
                pendingVersion: try row.integerOrNil("pending_version")
            )
        }
    }
}
