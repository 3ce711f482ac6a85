package import Postgres
package import PushCore
import Storage

/// A token that belongs to no device any more, according to its provider.
package struct DeadToken {
    let app: String
    let device: DeviceTarget
    package let diedAt: Instant
    let reason: String?

    package init(
        app: String,
        device: DeviceTarget,
        diedAt: Instant,
        reason: String?
    ) {
        self.app = app
        self.device = device
        self.diedAt = diedAt
        self.reason = reason
    }

    private static let columns = Columns<DeadToken>([
        .text("app", \.app), .text("provider") { $0.device.provider.rawValue },
        .text("environment") { $0.device.environment.rawValue },
        .text("token", \.device.token), .time("died_at", \.diedAt),
        .text("reason") { $0.reason ?? "unregistered" },
    ])

    /// Disables the installations that still have a dead token. A token that was registered again
    /// after the provider found it dead is valid, and a replaced token does not count. A
    /// `BadDeviceToken` counts only if the installation names that environment: otherwise the push
    /// may have chosen the wrong one.
    package static func disable(_ dead: [DeadToken], _ transaction: PostgresTransaction)
        async throws
    {
        guard !dead.isEmpty else { return }
        _ = try await transaction.execute(
            """
            WITH dead AS (
                SELECT i.app, i.provider, i.environment,
                    i.token, sha256(convert_to(i.token, 'UTF8')) AS token_hash, i.died_at, i.reason
                FROM \(columns.source(as: "i"))
            ), held AS MATERIALIZED (
                SELECT i.object_id, dead.* FROM dead
                CROSS JOIN LATERAL (
                    SELECT n.object_id FROM installations n
                    WHERE n.app = dead.app AND n.provider = dead.provider
                        AND n.token_hash = dead.token_hash
                        AND (n.environment = dead.environment
                            OR n.environment = '' AND dead.reason <> 'BadDeviceToken')
                    UNION ALL
                    SELECT n.object_id FROM installations n
                    WHERE n.app = dead.app AND n.template_only AND n.token IS NOT NULL
                        AND hashtextextended(n.token, 0) = hashtextextended(dead.token, 0)
                        AND n.token = dead.token AND n.provider = dead.provider
                        AND (n.environment = dead.environment
                            OR n.environment = '' AND dead.reason <> 'BadDeviceToken')
                ) AS i
            ), ordered AS MATERIALIZED (
                SELECT * FROM held ORDER BY app COLLATE "C", object_id
            ), found AS MATERIALIZED (
                SELECT o.app, o.object_id, o.reason FROM ordered o
                CROSS JOIN LATERAL (
                    SELECT FROM installations n
                    WHERE n.app = o.app AND n.object_id = o.object_id AND n.valid
                        AND n.token = o.token AND n.token_updated_at <= o.died_at
                    FOR UPDATE
                ) AS locked
            )
            UPDATE installations i SET valid = false, invalid_reason = found.reason,
                invalidated_at = now()
            FROM found WHERE i.app = found.app AND i.object_id = found.object_id
            """,
            columns.parameters(of: dead)
        )
    }
}
