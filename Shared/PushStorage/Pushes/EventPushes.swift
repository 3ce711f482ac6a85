package import Postgres
import PushCore
import Storage

/// Pushes to few devices that are one row each, with their deliveries in it: events in
/// `event_pushes`, pushes accepted by HTTP in `pushes`. `FewDevicesStore` writes a row once all
/// deliveries of the push have ended. The row no longer changes, and is read through the views
/// `all_pushes` and `all_deliveries`.
package enum EventPushes {
    /// Converts these pushes to separate rows before one is changed: by an erasure, or by a client
    /// that hides the push. From then on they are stored as long as other pushes.
    ///
    /// - Parameters:
    ///   - ids: The ids of any pushes. Pushes that have separate rows stay as they are.
    ///   - transaction: The transaction that changes them next.
    /// - Throws: `PostgresError`.
    package static func unpack(_ ids: [String], _ transaction: PostgresTransaction) async throws {
        _ = try await transaction.execute(
            """
            WITH found AS (
                SELECT id, day FROM event_pushes WHERE id = ANY ($1::uuid[]) ORDER BY id FOR UPDATE
            ), taken AS (
                DELETE FROM event_pushes e USING found f WHERE e.id = f.id AND e.day = f.day
                RETURNING e.*
            ), pushed AS (
                INSERT INTO pushes (id, app, event_source, event_id, request, status, notes, targeted,
                    delivered, failed, expired, suppressed, in_doubt, invalid_tokens, failures,
                    environment, expires_at, created_at, updated_at, finished_at)
                SELECT id, app, event_source, event_id, request, \(PushStatus.done.sql),
                    coalesce(notes, '{}'), delivered + failed + expired + suppressed + in_doubt,
                    delivered, failed, expired, suppressed, in_doubt, invalid_tokens, failures,
                    CASE WHEN is_sandbox THEN 'sandbox' ELSE 'production' END, expires_at, created_at,
                    finished_at, finished_at
                FROM taken
            )
            \(rows)
            \(members("taken"))
            """,
            [.uuidArray(ids.sorted())]
        )
        _ = try await transaction.execute(
            """
            WITH found AS (
                SELECT id, deliveries FROM pushes
                WHERE id = ANY ($1::uuid[]) AND deliveries IS NOT NULL ORDER BY id FOR UPDATE
            ), emptied AS (
                UPDATE pushes p SET deliveries = NULL FROM found f WHERE p.id = f.id
                RETURNING p.id, p.app, p.expires_at, p.created_at, p.updated_at AS finished_at,
                    (p.created_at AT TIME ZONE 'UTC')::date AS day, f.deliveries
            )
            \(rows)
            \(members("emptied"))
            """,
            [.uuidArray(ids.sorted())]
        )
    }

    /// The SQL that inserts separate rows: one for `e`, which has the push's columns, and one for
    /// each of its `members`.
    private static let rows = """
        INSERT INTO deliveries (day, push_id, target, app, installation_id, provider, environment,
            token, lane, state, attempts, last_status, last_reason, provider_message_id,
            expires_at, created_at, updated_at)
        SELECT e.day, e.id, d.t, e.app, CASE WHEN d.n THEN NULL ELSE d.t END, d.p,
            coalesce(d.e, ''), '', 0, d.s, coalesce(d.a, 1), d.c, d.r, d.m, e.expires_at,
            e.created_at, e.finished_at
        """

    private static func members(_ pushes: String) -> String {
        """
        FROM \(pushes) e CROSS JOIN LATERAL jsonb_to_recordset(e.deliveries)
            AS d(t text, n boolean, p text, e text, s smallint, a integer, c integer, r text, m text)
        """
    }
}
