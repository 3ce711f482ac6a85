import InstallationStorage
import Postgres
import PushCore
import Storage

/// Pushes that wait for their time, until they are released.
extension PushStore {
    /// Returns the waiting pushes of `app`, or of all apps if it is `nil`, the next first.
    ///
    /// - Throws: `PageTooLarge`, `StorageError`.
    package func scheduled(
        app: String?,
        limit: Int = 100,
        skip: Int = 0
    ) async throws -> [StoredPush] {
        let page = """
            SELECT \(Self.columns) FROM pushes
            WHERE is_waiting AND ($1::text IS NULL OR app = $1)
            ORDER BY release_at, id LIMIT $2 OFFSET $3
            """
        let rows = try await database.execute(
            PageBound.statement(page, weight: Self.weight),
            [
                .optional(text: app), .integer(min(max(limit, 0), 1000)), .integer(max(skip, 0)),
            ]
        ).rows
        return try PageBound.read(Array(rows), Self.push).whole()
    }

    /// Cancels a push only if it still waits for its time, so that its ledger is empty.
    ///
    /// - Returns: Whether there was such a push; `false` if it was released already.
    package func cancelScheduled(app: String, scheduleID: Int) async throws -> Bool {
        try await database.execute(
            """
            UPDATE pushes SET \(LedgerSQL.cancelled)
            WHERE schedule_id = $1 AND app = $2 AND is_waiting
            """,
            [.integer(scheduleID), .text(app)]
        ).affectedRows == 1
    }
}
