import PushCore

/// Counts reports of devices in `push_figures`, in the statement that stores them in
/// `push_receipts`: a repeated report stores nothing and counts nothing.
package enum ReceiptFigures {
    /// The `provider` of these rows: a report says nothing about a provider.
    static let provider = ""
    /// The number of rows for each minute, so that few writers share a row. The writer's slot is
    /// the row's `replica`.
    private static let slots = 16

    /// Counts new reports at the time of the transaction, like the reports' own, for the app and for
    /// each push to many devices. Reports of an app that is gone are left out.
    ///
    /// - Parameter reports: The expression with the new rows of `push_receipts`: `app`, `target` and
    ///   `kind`.
    /// - Returns: Two common table expressions, `reported` and `figured`.
    package static func counting(_ reports: String) -> String {
        """
        reported AS (
            SELECT app, target,
                count(*) FILTER (WHERE kind = \(ReceiptKind.received.rawValue)) AS received,
                count(*) FILTER (WHERE kind = \(ReceiptKind.opened.rawValue)) AS opened
            FROM \(reports) GROUP BY app, target
        ), figured AS (
            INSERT INTO push_figures AS f (app, push_id, minutes, at, provider, replica,
                delivered, failed, expired, suppressed, in_doubt, latency, received, opened)
            SELECT r.app, s.push_id, s.minutes,
                to_timestamp(floor(extract(epoch FROM now()) / (60 * s.minutes)) * 60 * s.minutes),
                '\(provider)', pg_backend_pid() % \(slots), 0, 0, 0, 0, 0, '{}',
                sum(r.received), sum(r.opened)
            FROM reported r JOIN apps a ON a.id = r.app
                CROSS JOIN LATERAL (
                    SELECT '\(PushFigureStore.allPushes)'::uuid AS push_id, m.minutes
                    FROM (VALUES (1), (60)) AS m(minutes)
                    UNION ALL
                    SELECT p.id, 1 FROM pushes p
                    WHERE p.id = CASE WHEN r.target ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'
                        THEN r.target::uuid END AND \(isForMany)
                    UNION ALL
                    SELECT p.id, 1 FROM (
                        -- Without the fence, all pushes of the app may be read.
                        SELECT id, app, lane, targeted FROM pushes
                        WHERE event_id = CASE WHEN starts_with(r.target, 'event/')
                            THEN substr(r.target, 7) END COLLATE "default" OFFSET 0) p
                    WHERE \(isForMany)
                ) s
            GROUP BY 1, 2, 3 ORDER BY 1, 2, 3
            ON CONFLICT (app, push_id, minutes, at, provider, replica) DO UPDATE SET
                received = f.received + excluded.received, opened = f.opened + excluded.opened
        )
        """
    }

    /// Whether the push `p` may have figures of its own. Others have no rows, as there may be
    /// thousands a second.
    private static let isForMany = """
        p.app = r.app AND (p.lane = \(Lane.broadcast.rawValue) OR p.targeted > \(NewPush.fewDevices))
        """
}
