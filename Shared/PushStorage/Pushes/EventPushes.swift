import Postgres
import PushCore

/// Events for few devices that are one row each, push and deliveries in one (`event_pushes`): they were
/// written when all was over, and nothing of them changes any more. Written by `FewDevicesStore`, read
/// through the views `all_pushes` and `all_deliveries`.
enum EventPushes {
    /// Makes rows of the ledger of them, as any push has, for whoever is about to change one: an erasure,
    /// or a client that hides it. They stay as long as pushes do from then on.
    ///
    /// - Parameters:
    ///   - ids: Of any pushes; those that are rows already stay as they are.
    ///   - transaction: In which they are then changed.
    /// - Throws: `PostgresError`.
    static func unpack(_ ids: [String], _ transaction: PostgresTransaction) async throws {
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
            INSERT INTO deliveries (day, push_id, target, app, installation_id, provider, environment,
                token, lane, state, attempts, last_status, last_reason, provider_message_id,
                expires_at, created_at, updated_at)
            SELECT e.day, e.id, d.t, e.app, CASE WHEN d.n THEN NULL ELSE d.t END, d.p,
                coalesce(d.e, ''), '', 0, d.s, coalesce(d.a, 1), d.c, d.r, d.m, e.expires_at,
                e.created_at, e.finished_at
            FROM taken e CROSS JOIN LATERAL jsonb_to_recordset(e.deliveries)
                AS d(t text, n boolean, p text, e text, s smallint, a integer, c integer, r text, m text)
            """,
            [.uuidArray(ids.sorted())]
        )
    }
}
