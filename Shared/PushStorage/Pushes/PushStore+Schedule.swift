import Postgres
import PushCore

/// Pushes that wait for their time, until somebody releases them.
extension PushStore {
    /// Those that wait, the next first; `nil`: of all apps.
    ///
    /// - Throws: `PageTooLarge`, and otherwise.
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

    /// Cancels a push that waits for its time, and only that: there is nothing on the books yet.
    ///
    /// - Returns: Whether there was such a push. One that was released is none any more.
    package func cancelScheduled(app: String, scheduleID: Int) async throws -> Bool {
        try await database.execute(
            """
            UPDATE pushes SET \(PushBooks.cancelled)
            WHERE schedule_id = $1 AND app = $2 AND is_waiting
            """,
            [.integer(scheduleID), .text(app)]
        ).affectedRows == 1
    }
}
