import Postgres
package import PushCore

/// How many deliveries of one push had one end on one platform.
package struct PlatformCount: Sendable, Equatable {
    package let platform: Platform
    /// Whether the provider took them; otherwise they came to another end.
    package let isDelivered: Bool
    package let count: Int
}

extension PushStore {
    /// The deliveries of a push that have come to an end, counted by platform for as long as they
    /// are kept (`DELIVERY_RETENTION`). Reads each of its rows: for one push at a time.
    package func platforms(of push: StoredPush) async throws -> [PlatformCount] {
        try await database.execute(
            """
            SELECT provider, state = $3 AS delivered, count(*) AS count FROM deliveries
            WHERE push_id = $1 AND day = $2::date AND state <> $4 GROUP BY 1, 2 ORDER BY 1, 2
            """,
            [
                .uuid(push.id), .text(push.createdAt.day),
                .integer(DeliveryState.delivered.rawValue),
                .integer(DeliveryState.pending.rawValue),
            ]
        ).rows.compactMap { row in
            guard let platform = Platform(rawValue: try row.text("provider")) else { return nil }
            return PlatformCount(
                platform: platform,
                isDelivered: try row.boolean("delivered"),
                count: try row.integer("count")
            )
        }
    }
}
