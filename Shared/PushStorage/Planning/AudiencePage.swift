import Postgres
import Storage

/// The place in an audience where a page begins, and its bounds.
struct PageStart {
    let cursor: String?
    /// Installations created after this time are not in the audience. Microseconds since 1970.
    let plannedUntil: Int64
    let limit: Int
    /// The last id of the page; `nil` if it has no upper bound.
    var end: String?

    /// Returns an SQL condition that limits `n.object_id` to `end`; empty without an `end`.
    func bound(_ parameters: inout [PostgresValue]) -> String {
        guard let end else { return "" }
        parameters.append(.text(end))
        return " AND n.object_id <= $\(parameters.count)"
    }

    /// Returns the object id of the last of the app's next `installations`, read from the primary
    /// key alone; `nil` if fewer are left.
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
    /// The most shards that one page creates.
    static let maximumShards = 10

    var inserted = 0
    var shards = 0
    /// The place where the next page begins; `nil` if this was the last one.
    var cursor: String?
}
