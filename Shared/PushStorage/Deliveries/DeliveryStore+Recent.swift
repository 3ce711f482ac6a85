import Postgres
package import PushCore
import Storage

/// One delivery to one device, for the history of devices.
package struct RecentDelivery: Sendable, Equatable {
    package var pushID: String
    package var target: String
    package var platform: Platform
    package var state: DeliveryState
    package var status: Int?
    package var reason: String?
    package var updatedAt: Instant
}

/// The deliveries to some devices among an app's latest pushes.
package struct RecentDeliveries: Sendable, Equatable {
    /// Those of the newest push first.
    package var deliveries: [RecentDelivery] = []
    /// The number of pushes that were searched.
    package var pushes = 0
    /// When the oldest of these came; `nil` if there are none.
    package var since: Instant?
}

extension DeliveryStore {
    /// The most targets of one search.
    package static let maximumRecentTargets = 20

    /// Finds the deliveries to some targets among an app's latest pushes: one lookup by key for each
    /// push and target, whatever the number of devices.
    ///
    /// - Parameters:
    ///   - targets: Installations by their object ids, and tokens by their hash; the first 20 count.
    ///   - app: The app.
    ///   - pushes: How many pushes to search, the latest.
    ///   - limit: The time limit in milliseconds.
    /// - Returns: `nil` if the time was too short.
    /// - Throws: `StorageError`.
    package func recent(
        of targets: [String],
        app: String,
        pushes: Int,
        withinMilliseconds limit: Int
    ) async throws -> RecentDeliveries? {
        let parameters: [PostgresValue] = [
            .text(app), .textArray(Array(targets.prefix(Self.maximumRecentTargets))),
            .integer(min(max(pushes, 1), 1000)),
        ]
        let limit = PostgresValue.text(String(max(1, limit)))
        do {
            let rows = try await database.asking { transaction in
                try await transaction.pipeline([
                    (IndexPlan.sql, []),
                    ("SELECT set_config('statement_timeout', $1, true)", [limit]),
                    (Self.recentSQL, parameters),
                ])[2].rows
            }
            return try Self.recent(rows)
        } catch let error as StorageError where error.isStatementTimeout {
            return nil
        }
    }

    // The conditions on `first_id` and `last_id` find the one chunk that may have the target.
    private static let recentSQL = """
        SELECT p.id::text AS push_id, p.created_at, d.target, d.provider, d.state, d.last_status,
            d.last_reason, d.updated_at
        FROM (
            SELECT id, created_at FROM all_pushes WHERE app = $1
            ORDER BY created_at DESC, id DESC LIMIT $3) p
        LEFT JOIN LATERAL (
            SELECT t.target, a.* FROM unnest($2::text[]) AS t(target) CROSS JOIN LATERAL (
                SELECT a.provider, a.state, a.last_status, a.last_reason, a.updated_at
                FROM all_deliveries a
                WHERE a.day = (p.created_at AT TIME ZONE 'UTC')::date AND a.push_id = p.id
                    AND a.first_id <= t.target AND a.last_id >= t.target AND a.target = t.target
                LIMIT 1) a) d ON true
        """

    private static func recent(_ rows: PostgresRows) throws -> RecentDeliveries {
        var found = RecentDeliveries()
        var times: [String: Instant] = [:]
        for row in rows {
            let pushID = try row.text("push_id")
            times[pushID] = try row.instant("created_at")
            guard let target = try row.textOrNil("target"),
                let platform = Platform(rawValue: try row.text("provider"))
            else { continue }
            found.deliveries.append(
                RecentDelivery(
                    pushID: pushID,
                    target: target,
                    platform: platform,
                    state: DeliveryState(rawValue: try row.integer("state")) ?? .pending,
                    status: try row.integerOrNil("last_status"),
                    reason: try row.textOrNil("last_reason"),
                    updatedAt: try row.instant("updated_at")
                )
            )
        }
        found.pushes = times.count
        found.since = times.values.min()
        found.deliveries.sort { one, two in
            let (first, second) = (times[one.pushID], times[two.pushID])
            return first == second
                ? (one.pushID, one.target) < (two.pushID, two.target)
                : (first ?? .earliest) > (second ?? .earliest)
        }
        return found
    }
}
