import Postgres
package import PushCore

/// An installation whose channel a push service called dead.
package struct DeadChannel: Sendable, Equatable {
    package var installation: Installation
    package var at: Instant
}

extension InstallationStore {
    /// The latest first, without those that were only silent, or whose time had come.
    package func deadChannels(app: String, limit: Int) async throws -> [DeadChannel] {
        try await database.execute(
            """
            SELECT \(Self.columns), invalidated_at FROM installations
            WHERE app = $1 AND NOT valid AND invalid_reason IS NOT NULL
                AND invalidated_at IS NOT NULL AND invalid_reason <> ALL ($3::text[])
            ORDER BY invalidated_at DESC, object_id LIMIT $2
            """,
            [
                .text(app), .integer(min(max(limit, 0), 10_000)),
                .textArray([Installation.silentReason, Maintenance.hubExpiredReason]),
            ]
        ).rows.map { row in
            DeadChannel(
                installation: try Self.installation(row),
                at: try row.instant("invalidated_at")
            )
        }
    }
}
