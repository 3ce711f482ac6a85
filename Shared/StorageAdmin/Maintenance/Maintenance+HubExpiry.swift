import Postgres
package import PushCore
import Storage

extension Maintenance {
    private static let expiredAtOnce = 1000

    /// Invalidates the installations whose `expirationTime` has passed.
    ///
    /// - Returns: Their number.
    package func expireHubInstallations(now: Instant, batches: Int) async throws -> Int {
        var total = 0
        for _ in 0..<max(1, batches) {
            let changed = try await database.execute(
                """
                UPDATE installations n SET valid = false, invalid_reason = $2,
                    invalidated_at = now(), updated_at = date_trunc('milliseconds', now())
                FROM (SELECT app, object_id FROM installations
                    WHERE valid AND jsonb_typeof(fields->'_azure'->'expiresAt') = 'number'
                        AND (fields->'_azure'->'expiresAt')::numeric <= $1
                    ORDER BY app, object_id LIMIT $3 FOR UPDATE SKIP LOCKED) e
                WHERE n.app = e.app AND n.object_id = e.object_id
                """,
                [
                    .integer(Int(now.milliseconds)), .text(Installation.hubExpiredReason),
                    .integer(Self.expiredAtOnce),
                ]
            ).affectedRows
            total += changed
            if changed < Self.expiredAtOnce { break }
        }
        return total
    }
}
