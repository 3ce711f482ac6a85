import Postgres
import Storage

/// The place in an audience where a page begins, and its bounds.
struct PageStart {
    let cursor: String?
    /// Microseconds since 1970.
    let plannedUntil: Int64
    let limit: Int
    /// The last id of the page; `nil` if it has no upper bound.
    var end: String?

    /// Returns the condition that an installation `n` is not behind `end`.
    func bound(_ parameters: inout [PostgresValue]) -> String {
        guard let end else { return "" }
        parameters.append(.text(end))
        return " AND n.object_id <= $\(parameters.count)"
    }

    /// Returns the id at which a page of so many of the app's installations ends, from the primary key
    /// alone; `nil` if the page takes all that are left.
    func pageEnd(
        of app: String,
        installations: Int,
        _ transaction: PostgresTransaction
    ) async throws -> String? {
        try await transaction.execute(
            """
            SELECT object_id FROM installations WHERE app = $1 AND object_id > $2
            ORDER BY object_id OFFSET $3 LIMIT 1
            """,
            [.text(app), .text(cursor ?? ""), .integer(installations - 1)]
        ).first?.text("object_id")
    }
}

/// The result of planning one page of an audience.
struct AudiencePage {
    /// Shards of a page.
    static let shardsAtOnce = 10

    var inserted = 0
    var shards = 0
    /// The place where the next page begins; `nil` if this was the last one.
    var cursor: String?
}
