import Postgres
package import PushCore
import Storage

extension InstallationStore {
    private static let restoredAtOnce = 5000

    /// Undoes a mass invalidation: installations that a provider's answers made invalid become valid
    /// again. Installations that were registered again in the meantime, or muted by their client, are
    /// left alone, and so are those that a dispatcher older than the schema's version 4 made invalid.
    ///
    /// It works in many small transactions. After an interruption, it can be called again.
    ///
    /// - Parameters:
    ///   - since: The earliest time of the invalidation.
    ///   - reason: The reason of the invalidation, as the provider gave it.
    ///   - app: The app; `nil` for all apps.
    /// - Returns: How many are valid again.
    /// - Throws: `StorageError`; the installations of earlier transactions stay valid.
    package func restore(since: Instant, reason: String, app: String? = nil) async throws -> Int {
        var restored = 0
        while true {
            let count = try await database.transaction { transaction in
                try await IndexPlan.require(transaction)
                // `IS TRUE` keeps the planner from using the index of invalidations for the lookups
                // by key.
                return try await transaction.execute(
                    """
                    WITH found AS MATERIALIZED (
                        SELECT app, object_id FROM installations
                        WHERE invalidated_at >= $1 AND NOT valid AND invalid_reason = $2
                            AND ($3::text IS NULL OR app = $3)
                        LIMIT $4
                    ), ordered AS MATERIALIZED (
                        SELECT * FROM found ORDER BY app, object_id
                    ), locked AS MATERIALIZED (
                        SELECT o.app, o.object_id FROM ordered o
                        CROSS JOIN LATERAL (
                            SELECT FROM installations i
                            WHERE i.app = o.app AND i.object_id = o.object_id AND NOT i.valid
                                AND i.invalid_reason = $2
                                AND (i.invalidated_at >= $1) IS TRUE
                            FOR UPDATE
                        ) AS held
                    )
                    UPDATE installations i SET valid = true, invalid_reason = NULL,
                        invalidated_at = NULL, updated_at = date_trunc('milliseconds', now())
                    FROM locked l WHERE i.app = l.app AND i.object_id = l.object_id
                    """,
                    [
                        .timestamp(since.microseconds), .text(reason), .optional(text: app),
                        .integer(Self.restoredAtOnce),
                    ]
                ).affectedRows
            }
            restored += count
            if count == 0 { return restored }
        }
    }

    /// Makes one installation valid again that a provider's answer, or silence, made invalid: the same
    /// act on one installation.
    ///
    /// - Returns: Whether it was invalid for such a reason.
    package func restore(app: String, objectID: String) async throws -> Bool {
        try await database.execute(
            """
            UPDATE installations SET valid = true, invalid_reason = NULL, invalidated_at = NULL,
                updated_at = date_trunc('milliseconds', now())
            WHERE app = $1 AND object_id = $2 AND NOT valid AND invalid_reason IS NOT NULL
                AND invalidated_at IS NOT NULL
            """,
            [.text(app), .text(objectID)]
        ).affectedRows > 0
    }
}
