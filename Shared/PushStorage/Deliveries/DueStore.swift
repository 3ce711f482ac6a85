import Postgres
package import PushCore
import Storage

/// Claims rows that are due: the oldest first, or fairly between apps and providers.
package struct DueStore: Sendable {
    let database: Database

    /// One app at one provider.
    package struct Client: Sendable, Equatable {
        package var app: String
        package var provider: String

        package init(app: String, provider: String) {
            self.app = app
            self.provider = provider
        }
    }

    package struct FairClaim: Sendable {
        package var deliveries: [Delivery] = []
        /// The last app and provider of this turn. The next turn continues after it; `nil` if all
        /// had their turn.
        package var last: Client?
    }

    /// The most apps and providers that take part in one fair claim.
    private static let clientsAtOnce = 256

    /// Claims deliveries that are due, oldest first. No other session can claim them then. If the
    /// push of a delivery was cancelled, its `suppression` says so.
    ///
    /// - Parameters:
    ///   - session: The session that claims them.
    ///   - lane: Their lane.
    ///   - limit: 1...10,000. A full result means that more may be due. Then an app with few due
    ///     deliveries may wait behind an app with many, so `claimFairly` should follow.
    /// - Returns: At most `limit`; empty when nothing is due.
    /// - Throws: `StorageError` of kind `sessionLost`.
    package func claim(session: Int, lane: Int, limit: Int) async throws -> [Delivery] {
        try await database.transaction { transaction in
            try await SessionStore.holdByIndex(session, transaction)
            return try await transaction.execute(
                Self.claimSQL(
                    """
                    SELECT day, push_id, target FROM deliveries
                    WHERE state = \(DeliveryState.pending.sql) AND owner IS NULL AND lane = $2 AND due_at <= now()
                    ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED
                    """
                ),
                [.integer(session), .integer(lane), .integer(Self.bounded(limit))]
            ).rows.map(Self.due)
        }
    }

    /// Claims like `claim`, but the same number of deliveries for each app at each provider. So
    /// retries do not wait behind those of a failing provider.
    ///
    /// - Parameters:
    ///   - session: The session that claims them.
    ///   - lane: Their lane.
    ///   - limit: 1...10,000. Shares are equal, so fewer are returned if some apps have less than
    ///     their share.
    ///   - client: Only apps and providers after this one take part; `nil` to begin with the first.
    /// - Returns: At most `limit` deliveries.
    /// - Throws: `StorageError` of kind `sessionLost`.
    package func claimFairly(
        session: Int,
        lane: Int,
        limit: Int,
        after client: Client?
    ) async throws -> FairClaim {
        try await database.transaction { transaction in
            try await SessionStore.holdByIndex(session, transaction)
            let found = try await transaction.execute(
                Self.clientsSQL,
                [
                    .integer(lane), .text(client?.app ?? ""), .text(client?.provider ?? ""),
                    .integer(Self.clientsAtOnce),
                ]
            ).rows.map { row in
                (
                    client: Client(app: try row.text("app"), provider: try row.text("provider")),
                    isDue: try row.boolean("is_due")
                )
            }
            var claim = FairClaim()
            if found.count == Self.clientsAtOnce { claim.last = found.last?.client }
            let limit = Self.bounded(limit)
            // If there are more clients than the limit, the rest gets a later turn.
            let due = found.filter(\.isDue).shuffled().prefix(limit).map(\.client)
            guard !due.isEmpty else { return claim }
            claim.deliveries = try await transaction.execute(
                Self.claimSQL(
                    """
                    SELECT r.day, r.push_id, r.target
                    FROM unnest($4::text[], $5::text[]) AS c(app, provider) CROSS JOIN LATERAL (
                        SELECT day, push_id, target FROM deliveries
                        WHERE state = \(DeliveryState.pending.sql) AND owner IS NULL AND lane = $2 AND app = c.app
                            AND provider = c.provider AND due_at <= now()
                        ORDER BY due_at LIMIT $3 FOR UPDATE SKIP LOCKED) r
                    """
                ),
                [
                    .integer(session), .integer(lane), .integer(limit / due.count),
                    .textArray(due.map(\.app)), .textArray(due.map(\.provider)),
                ]
            ).rows.map(Self.due)
            return claim
        }
    }

    /// Returns the rows that a session owns, in no order, for the search for strays: rows whose
    /// claim was committed, but its reply was lost.
    package func owned(session: Int, limit: Int = 200_000) async throws -> [Delivery] {
        try await database.execute(
            """
            SELECT \(Delivery.columns) FROM deliveries
            WHERE owner = $1 AND state = \(DeliveryState.pending.sql) LIMIT $2
            """,
            [.integer(session), .integer(limit)]
        ).rows.map(Delivery.read)
    }

    /// Returns when the next delivery of a lane without an owner is due.
    package func nextDue(lane: Int) async throws -> Instant? {
        try await database.execute(
            """
            SELECT min(due_at) AS due FROM deliveries
            WHERE state = \(DeliveryState.pending.sql) AND owner IS NULL AND lane = $1
            """,
            [.integer(lane)]
        ).first?.instantOrNil("due")
    }

    private static func bounded(_ limit: Int) -> Int { min(max(limit, 1), 10_000) }

    private static func claimSQL(_ chosen: String) -> String {
        """
        UPDATE deliveries d SET owner = $1, updated_at = now() FROM (\(chosen)) c
        WHERE d.day = c.day AND d.push_id = c.push_id AND d.target = c.target
        RETURNING \(Delivery.qualified), EXISTS (
            SELECT FROM pushes p WHERE p.id = d.push_id
                AND p.status IN \(PushStatus.sql(where: \.isCutShort)))
            AS is_cancelled
        """
    }

    private static func due(_ row: PostgresRow) throws -> Delivery {
        var delivery = try Delivery.read(row)
        if try row.boolean("is_cancelled") { delivery.suppression = Delivery.cancelledReason }
        return delivery
    }

    // Jumps in the index from the first row of one client to the first row of the next. The rows
    // between them are not read.
    private static let clientsSQL = """
        WITH RECURSIVE clients AS (
            (SELECT app, provider, due_at FROM deliveries
                WHERE state = \(DeliveryState.pending.sql) AND owner IS NULL AND lane = $1
                    AND (app, provider) > ($2::text, $3::text)
                ORDER BY app, provider, due_at LIMIT 1)
            UNION ALL
            SELECT n.app, n.provider, n.due_at FROM clients c CROSS JOIN LATERAL (
                SELECT d.app, d.provider, d.due_at FROM deliveries d
                WHERE d.state = \(DeliveryState.pending.sql) AND d.owner IS NULL AND d.lane = $1
                    AND (d.app, d.provider) > (c.app, c.provider)
                ORDER BY d.app, d.provider, d.due_at LIMIT 1) n
        )
        SELECT app, provider, due_at <= now() AS is_due FROM clients LIMIT $4
        """
}
