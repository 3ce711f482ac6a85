import Postgres
import PushCore
import Storage

/// The opens of an app on one day.
package struct AppOpens: Sendable, Equatable {
    /// The day in UTC, as `2026-11-27`.
    package let day: String
    /// The times that the app was opened.
    package let opens: Int
    /// The times that a push opened it.
    package let pushOpens: Int

    package init(day: String, opens: Int, pushOpens: Int) {
        self.day = day
        self.opens = opens
        self.pushOpens = pushOpens
    }
}

/// The opens that LeanCloud's old SDKs report, by app and day. They name no push.
package struct AppOpenStore: Sendable {
    let database: Database

    /// The number of rows for each app and day, so that few writers share a row.
    private static let slots = 16

    /// Counts opens on the day of Postgres' clock. If a push opened the app, this also counts as a
    /// report about the newest push that the installation received within a day. Each installation
    /// counts once for a push.
    ///
    /// - Parameters:
    ///   - app: The app. For an unknown app nothing is counted.
    ///   - opens: The times that the app was opened.
    ///   - pushOpens: The times that a push opened it.
    ///   - installation: The installation's object id, as the report names it.
    /// - Throws: `StorageError`.
    package func add(
        app: String,
        opens: Int,
        pushOpens: Int,
        installation: String?
    ) async throws {
        _ = try await database.execute(
            """
            WITH counted AS (
                INSERT INTO app_opens AS o (app, day, slot, opens, push_opens)
                SELECT id, (now() AT TIME ZONE 'UTC')::date, pg_backend_pid() % \(Self.slots),
                    $2::bigint, $3::bigint
                FROM apps WHERE id = $1
                ON CONFLICT (app, day, slot) DO UPDATE SET opens = o.opens + excluded.opens,
                    push_opens = o.push_opens + excluded.push_opens
            ), noted AS (
                INSERT INTO push_receipts (app, target, kind, who)
                SELECT r.app, r.target, \(ReceiptKind.opened.rawValue), r.who FROM push_receipts r
                WHERE r.app = $1 AND r.who = $4 AND r.kind = \(ReceiptKind.received.rawValue)
                    AND r.at > now() - interval '1 day' AND $3::bigint > 0
                ORDER BY r.at DESC, r.target LIMIT 1
                ON CONFLICT DO NOTHING RETURNING app, target, kind
            ), \(ReceiptFigures.counting("noted"))
            SELECT count(*) FROM noted
            """,
            [
                .text(app), .integer(opens), .integer(pushOpens),
                .optional(text: installation),
            ]
        )
    }

    /// Counts the opens of an app by day.
    ///
    /// - Parameters:
    ///   - app: The app.
    ///   - days: The number of days, with the present one.
    /// - Returns: The newest day first. Days without opens are missing.
    /// - Throws: `StorageError`.
    package func counts(of app: String, days: Int = 7) async throws -> [AppOpens] {
        try await database.execute(
            """
            SELECT day::text AS day, sum(opens)::bigint AS opens,
                sum(push_opens)::bigint AS push_opens
            FROM app_opens
            WHERE app = $1 AND day > (now() AT TIME ZONE 'UTC')::date - $2::integer
            GROUP BY 1 ORDER BY 1 DESC
            """,
            [.text(app), .integer(days)]
        ).rows.map { row in
            AppOpens(
                day: try row.text("day"),
                opens: try row.integer("opens"),
                pushOpens: try row.integer("push_opens")
            )
        }
    }
}
