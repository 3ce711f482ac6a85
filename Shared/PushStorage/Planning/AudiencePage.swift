import Postgres

/// Where a page of an audience begins.
struct PageStart {
    let cursor: String?
    /// Microseconds since 1970.
    let plannedUntil: Int64
    let limit: Int
    /// The last id that is looked at; `nil`: there is no such.
    var end: String?

    /// What holds of an installation `n` up to there.
    func bound(_ parameters: inout [PostgresValue]) -> String {
        guard let end else { return "" }
        parameters.append(.text(end))
        return " AND n.object_id <= $\(parameters.count)"
    }

    /// Where a page of so many of the app's installations ends: the primary key alone is asked. `nil`: it
    /// takes all that are left.
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

/// What a page of an audience came to.
struct AudiencePage {
    /// Shards of a page.
    static let shardsAtOnce = 10

    var inserted = 0
    var shards = 0
    /// Where the next page begins; `nil`: there is none.
    var cursor: String?
}
