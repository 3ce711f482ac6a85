import Postgres
package import PushCore
import Storage

/// Lists of pushes for people, the newest first, page by page.
extension PushStore {
    /// A page of an app's pushes, from the newest on.
    package struct Listing: Sendable {
        /// Only pushes in these states; `nil`: in any.
        package var statuses: [PushStatus]?
        /// The push after which the page begins, by its id; an unknown id gives an empty page.
        package var after: String?

        package init(statuses: [PushStatus]? = nil, after: String? = nil) {
            self.statuses = statuses
            self.after = after
        }
    }

    /// Returns a page of an app's pushes by the time of their arrival, the newest first. The place of
    /// a page is a push, so pushes that arrive meanwhile move nothing.
    ///
    /// - Throws: `StorageError`; its `isStatementTimeout` means that a rare state takes too long to
    ///   find.
    package func list(app: String, _ listing: Listing, limit: Int) async throws -> [StoredPush] {
        if let after = listing.after, !PushIdentity.isUUID(after) { return [] }
        return try await database.ask(
            """
            SELECT \(Self.columns) FROM all_pushes p
            WHERE app = $1 AND ($2::text[] IS NULL OR status = ANY ($2::text[]))
                AND ($3::uuid IS NULL OR (p.created_at, p.id) < (
                    SELECT l.created_at, l.id FROM all_pushes l WHERE l.id = $3 AND l.app = $1))
            ORDER BY p.created_at DESC, p.id DESC LIMIT $4
            """,
            [
                .text(app),
                listing.statuses.map { .textArray($0.map(\.rawValue)) } ?? .null,
                listing.after.map { .uuid($0) } ?? .null, .integer(min(max(limit, 1), 1000)),
            ]
        ).rows.map(Self.push)
    }

    /// The sums of the ledgers of an app's pushes since a time.
    package struct Totals: Sendable, Equatable {
        package var pushes = 0
        package var ledger = Ledger()

        package init() {}
    }

    /// Adds up the ledgers of the pushes that came since a time.
    ///
    /// - Throws: `StorageError`; its `isStatementTimeout` means that there are too many to add up now.
    package func totals(app: String, since: Instant) async throws -> Totals {
        let row = try await database.ask(
            """
            SELECT count(*) AS pushes, coalesce(sum(targeted), 0)::bigint AS targeted,
                coalesce(sum(delivered), 0)::bigint AS delivered,
                coalesce(sum(failed), 0)::bigint AS failed,
                coalesce(sum(expired), 0)::bigint AS expired,
                coalesce(sum(suppressed), 0)::bigint AS suppressed,
                coalesce(sum(in_doubt), 0)::bigint AS in_doubt,
                coalesce(sum(pending), 0)::bigint AS pending
            FROM all_pushes WHERE app = $1 AND created_at >= $2
            """,
            [.text(app), .timestamp(since.microseconds)]
        ).first
        var totals = Totals()
        guard let row else { return totals }
        totals.pushes = try row.integer("pushes")
        totals.ledger.targeted = try row.integer("targeted")
        totals.ledger.delivered = try row.integer("delivered")
        totals.ledger.failed = try row.integer("failed")
        totals.ledger.expired = try row.integer("expired")
        totals.ledger.suppressed = try row.integer("suppressed")
        totals.ledger.inDoubt = try row.integer("in_doubt")
        totals.ledger.pending = try row.integer("pending")
        return totals
    }
}
