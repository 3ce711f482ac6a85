package import JSON
import Postgres
package import PushCore
import Storage

/// The configuration of an identity pool.
package struct SyncPool: Sendable, Equatable {
    package var name: String
    package var app: String
    /// The latest setting, unchanged; `nil` if it was never set.
    package var pushSync: JSONObject?
    package var streams: JSONObject?
}

/// A pool as lists show it, without sums over its datasets.
package struct SyncPoolEntry: Sendable, Equatable {
    package var name: String
    /// Whether devices are notified of changes.
    package var isPushing: Bool
    /// The number of issued session tokens.
    package var sessions: Int
    package var createdAt: Instant
    package var modifiedAt: Instant
}

/// The storage used by all identities of a pool.
package struct SyncPoolUsage: Sendable, Equatable {
    package var name: String
    /// The number of issued session tokens.
    package var sessions: Int
    package var bytes: Int
    package var modifiedAt: Instant
}

/// The state of a pool's last bulk publish.
package struct SyncBulk: Sendable, Equatable {
    package enum Status: String, Sendable {
        case inProgress = "IN_PROGRESS"
        case succeeded = "SUCCEEDED"
        case failed = "FAILED"
    }

    package var status: Status
    package var startedAt: Instant
    package var completedAt: Instant?
    package var failure: String?
}

/// The pools that are linked to apps.
package struct SyncPoolStore: Sendable {
    let database: Database

    private static let ofCaller = "p.name = $1 AND p.app = $2 AND p.is_linked"

    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`.
    package func find(_ name: String, app: String) async throws -> SyncPool {
        try Self.pool(
            try await database.execute(
                "SELECT p.name, p.app, p.push_sync, p.streams FROM sync_pools p WHERE \(Self.ofCaller)",
                [.text(name), .text(app)]
            ).first
        )
    }

    /// Sets the given values, and leaves the others.
    ///
    /// - Parameters:
    ///   - name: The pool.
    ///   - app: The app.
    ///   - pushSync: The client's object; its list of applications says whether the pool pushes.
    ///   - isPushing: Whether that list is not empty.
    ///   - streams: The client's object.
    /// - Returns: The new configuration.
    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`.
    package func configure(
        _ name: String,
        app: String,
        pushSync: JSONObject?,
        isPushing: Bool,
        streams: JSONObject?
    ) async throws -> SyncPool {
        try Self.pool(
            try await database.execute(
                """
                UPDATE sync_pools p SET push_sync = coalesce($3, p.push_sync),
                    is_pushing = CASE WHEN $3::json IS NULL THEN p.is_pushing ELSE $4 END,
                    streams = coalesce($5, p.streams), modified_at = now()
                WHERE \(Self.ofCaller) RETURNING p.name, p.app, p.push_sync, p.streams
                """,
                [
                    .text(name), .text(app), .optional(json: pushSync.map(JSONValue.object)),
                    .boolean(isPushing), .optional(json: streams.map(JSONValue.object)),
                ]
            ).first
        )
    }

    private static func pool(_ row: PostgresRow?) throws -> SyncPool {
        guard let row else { throw SyncRefusal.unknownPool }
        return SyncPool(
            name: try row.text("name"),
            app: try row.text("app"),
            pushSync: try row.jsonOrNil("push_sync")?.object,
            streams: try row.jsonOrNil("streams")?.object
        )
    }

    /// Returns the pools of an app, by name, at the cost of one look-up each.
    ///
    /// - Returns: At most `limit`, and whether there are more.
    package func list(
        app: String,
        after name: String?,
        limit: Int
    ) async throws -> (pools: [SyncPoolEntry], hasMore: Bool) {
        try await page(of: app, after: name, limit, Self.entryColumns, Self.entry)
    }

    private func page<Pool>(
        of app: String,
        after name: String?,
        _ limit: Int,
        _ columns: String,
        _ read: (PostgresRow) throws -> Pool
    ) async throws -> (pools: [Pool], hasMore: Bool) {
        let rows = try await database.execute(
            """
            SELECT \(columns) FROM sync_pools p
            WHERE p.app = $1 AND p.is_linked AND p.name > $2 ORDER BY p.name LIMIT $3
            """,
            [.text(app), .text(name ?? ""), .integer(limit + 1)]
        ).rows
        return (try rows.prefix(limit).map(read), rows.count > limit)
    }

    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`.
    package func entry(_ name: String, app: String) async throws -> SyncPoolEntry {
        let row = try await database.execute(
            "SELECT \(Self.entryColumns) FROM sync_pools p WHERE \(Self.ofCaller)",
            [.text(name), .text(app)]
        ).first
        guard let row else { throw SyncRefusal.unknownPool }
        return try Self.entry(row)
    }

    private static let entryColumns =
        "p.name, p.is_pushing, p.sessions, p.created_at, p.modified_at"

    private static func entry(_ row: PostgresRow) throws -> SyncPoolEntry {
        SyncPoolEntry(
            name: try row.text("name"),
            isPushing: try row.boolean("is_pushing"),
            sessions: try row.integer("sessions"),
            createdAt: try row.instant("created_at"),
            modifiedAt: try row.instant("modified_at")
        )
    }

    // MARK: Usage

    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`.
    package func usage(of name: String, app: String) async throws -> SyncPoolUsage {
        let row = try await database.execute(
            "SELECT \(Self.usageColumns) FROM sync_pools p WHERE \(Self.ofCaller)",
            [.text(name), .text(app)]
        ).first
        guard let row else { throw SyncRefusal.unknownPool }
        return try Self.usage(row)
    }

    /// Returns the pools of an app, by name.
    ///
    /// - Returns: At most `limit`, and whether there are more.
    package func usages(
        app: String,
        after name: String?,
        limit: Int
    ) async throws -> (pools: [SyncPoolUsage], hasMore: Bool) {
        try await page(of: app, after: name, limit, Self.usageColumns, Self.usage)
    }

    private static let usageColumns = """
        p.name, p.sessions, (SELECT coalesce(sum(d.bytes), 0)::bigint FROM sync_datasets d
            WHERE d.pool = p.id) AS bytes, p.modified_at
        """

    private static func usage(_ row: PostgresRow) throws -> SyncPoolUsage {
        SyncPoolUsage(
            name: try row.text("name"),
            sessions: try row.integer("sessions"),
            bytes: try row.integer("bytes"),
            modifiedAt: try row.instant("modified_at")
        )
    }

    /// Adds to the numbers of issued session tokens.
    package func countSessions(_ counts: [String: Int]) async throws {
        let sorted = counts.sorted { $0.key < $1.key }
        _ = try await database.execute(
            """
            UPDATE sync_pools p SET sessions = p.sessions + n.count
            FROM unnest($1::text[], $2::bigint[]) AS n(name, count) WHERE p.name = n.name
            """,
            [.textArray(sorted.map(\.key)), .integerArray(sorted.map(\.value))]
        )
    }

    // MARK: Bulk publish

    /// Starts a bulk publish: all of a pool's subscriptions are notified of their datasets' current counts.
    ///
    /// - Throws: `SyncRefusal`; `StorageError`.
    package func startBulk(of name: String, app: String) async throws {
        try await database.transaction { transaction in
            let row = try await transaction.execute(
                """
                SELECT p.id, p.is_pushing, b.status,
                    b.completed_at > clock_timestamp() - interval '1 day' AS is_late
                FROM sync_pools p LEFT JOIN sync_bulk b ON b.pool = p.id
                WHERE \(Self.ofCaller) FOR UPDATE OF p
                """,
                [.text(name), .text(app)]
            ).first
            guard let row else { throw SyncRefusal.unknownPool }
            switch try row.textOrNil("status").flatMap(SyncBulk.Status.init) {
            case .inProgress: throw SyncRefusal.bulkInProgress
            case .succeeded where try row.booleanOrNil("is_late") ?? false:
                throw SyncRefusal.bulkDoneLately
            default: break
            }
            _ = try await transaction.execute(
                """
                INSERT INTO sync_bulk (pool, status) VALUES ($1, $2)
                ON CONFLICT (pool) DO UPDATE SET status = excluded.status, cursor = 0, told = 0,
                    failure = NULL, started_at = clock_timestamp(), completed_at = NULL
                """,
                [
                    .integer(try row.integer("id")),
                    .text(SyncBulk.Status.inProgress.rawValue),
                ]
            )
            try await NotifyChannel.syncWindows.notify(transaction)
        }
    }

    /// - Returns: `nil` if there never was one.
    /// - Throws: `SyncRefusal.unknownPool`; `StorageError`.
    package func bulk(of name: String, app: String) async throws -> SyncBulk? {
        let row = try await database.execute(
            """
            SELECT b.status, b.started_at, b.completed_at, b.failure
            FROM sync_pools p LEFT JOIN sync_bulk b ON b.pool = p.id WHERE \(Self.ofCaller)
            """,
            [.text(name), .text(app)]
        ).first
        guard let row else { throw SyncRefusal.unknownPool }
        guard let status = try row.textOrNil("status").flatMap(SyncBulk.Status.init) else {
            return nil
        }
        return SyncBulk(
            status: status,
            startedAt: try row.instant("started_at"),
            completedAt: try row.instantOrNil("completed_at"),
            failure: try row.textOrNil("failure")
        )
    }
}
