import JSON
import Postgres
package import PushCore
import Storage

/// The state of an identity's datasets, devices and subscriptions, for the operator.
package struct SyncState: Sendable, Equatable {
    package struct Device: Sendable, Equatable {
        package var id: String
        package var platform: String
        package var installation: String
        /// Whether its installation may be sent to.
        package var isReached: Bool
        package var registeredAt: Instant
    }

    package struct Subscription: Sendable, Equatable {
        package var dataset: String
        package var device: String
        /// The last count that it was notified of; initially the count when it subscribed.
        package var notifiedCount: Int
        package var notifiedAt: Instant?
    }

    package struct Window: Sendable, Equatable {
        package var dataset: String
        package var syncCount: Int
        package var changes: Int
        package var dueAt: Instant
    }

    package var pool: String
    package var isLinked: Bool
    package var isPushing: Bool
    package var datasets: [SyncDataset] = []
    package var devices: [Device] = []
    package var subscriptions: [Subscription] = []
    /// The pending changes.
    package var windows: [Window] = []

    package var isEmpty: Bool { datasets.isEmpty && devices.isEmpty }
}

package struct SyncStateStore: Sendable {
    let database: Database

    /// Returns the state of an identity.
    ///
    /// - Parameters:
    ///   - pool: The pool, of whatever app.
    ///   - identity: The identity.
    ///   - maximumDevices: The most devices, by id.
    ///   - maximumSubscriptions: The most subscriptions, by dataset and device.
    /// - Returns: `nil` if the pool does not exist.
    /// - Throws: `StorageError`.
    package func find(
        pool: String,
        identity: String,
        maximumDevices: Int = 1000,
        maximumSubscriptions: Int = 20_000
    ) async throws -> SyncState? {
        let own: [PostgresValue] = [.text(pool), .text(identity)]
        let results = try await database.transaction(of: [
            ("SELECT id, is_linked, is_pushing FROM sync_pools WHERE name = $1", [.text(pool)]),
            (
                """
                SELECT \(SyncDatasetStore.columns) FROM sync_datasets d
                JOIN sync_pools p ON p.id = d.pool
                WHERE p.name = $1 AND d.identity = $2 AND d.is_there ORDER BY d.name
                """, own
            ),
            (Self.devicesSQL, own + [.integer(maximumDevices)]),
            (Self.subscriptionsSQL, own + [.integer(maximumSubscriptions)]),
            (
                """
                SELECT d.name, w.sync_count, w.changes, w.due_at FROM sync_windows w
                JOIN sync_datasets d ON d.id = w.dataset JOIN sync_pools p ON p.id = d.pool
                WHERE p.name = $1 AND d.identity = $2 ORDER BY d.name
                """, own
            ),
        ])
        guard let row = results[0].first else { return nil }
        var state = SyncState(
            pool: pool,
            isLinked: try row.boolean("is_linked"),
            isPushing: try row.boolean("is_pushing")
        )
        state.datasets = try results[1].rows.map(SyncDatasetStore.dataset)
        state.devices = try results[2].rows.map(Self.device)
        state.subscriptions = try results[3].rows.map(Self.subscription)
        state.windows = try results[4].rows.map { row in
            SyncState.Window(
                dataset: try row.text("name"),
                syncCount: try row.integer("sync_count"),
                changes: try row.integer("changes"),
                dueAt: try row.instant("due_at")
            )
        }
        return state
    }

    private static let devicesSQL = """
        SELECT v.device_id, v.platform, v.installation, v.registered_at,
            i.valid AND i.provider IS NOT NULL AS is_reached
        FROM sync_devices v JOIN sync_pools p ON p.id = v.pool
        JOIN installations i ON i.app = v.app AND i.object_id = v.installation
        WHERE p.name = $1 AND v.identity = $2 ORDER BY v.device_id LIMIT $3
        """

    private static let subscriptionsSQL = """
        SELECT d.name, v.device_id, s.told, s.told_at FROM sync_datasets d
        JOIN sync_pools p ON p.id = d.pool JOIN sync_subscriptions s ON s.dataset = d.id
        JOIN sync_devices v ON v.id = s.device
        WHERE p.name = $1 AND d.identity = $2 ORDER BY d.name, v.device_id LIMIT $3
        """

    private static func device(_ row: PostgresRow) throws -> SyncState.Device {
        SyncState.Device(
            id: try row.text("device_id"),
            platform: try row.text("platform"),
            installation: try row.text("installation"),
            isReached: try row.boolean("is_reached"),
            registeredAt: try row.instant("registered_at")
        )
    }

    private static func subscription(_ row: PostgresRow) throws -> SyncState.Subscription {
        SyncState.Subscription(
            dataset: try row.text("name"),
            device: try row.text("device_id"),
            notifiedCount: try row.integer("told"),
            notifiedAt: try row.instantOrNil("told_at")
        )
    }

    /// Returns the pools with changes that have waited to be sent for longer than this.
    package func overdue(by timeLimit: Duration) async throws -> (count: Int, since: Instant)? {
        let row = try await database.execute(
            """
            SELECT count(*) AS count, min(due_at) AS since FROM sync_windows
            WHERE due_at < now() - $1 * interval '1 millisecond'
            """,
            [.integer(Int(clamping: timeLimit.wholeMilliseconds))]
        ).first
        guard let row, let since = try row.instantOrNil("since") else { return nil }
        return (try row.integer("count"), since)
    }
}
