import JSON
import Postgres
import PushCore
import Storage

/// The result of one round over inactive installations.
package struct SilenceReport: Sendable, Equatable {
    package var silenced = 0
    package var deleted = 0
    /// Whether there may be more to do at once.
    package var isUnfinished = false

    package init() {}
}

extension Maintenance {
    private static let installationsAtOnce = 500

    /// Runs one round over the installations of all apps: those inactive for their app's
    /// `valid-days` become invalid, those inactive for its `delete-days` are deleted. The time is
    /// `updated_at`, by the database's clock.
    ///
    /// Any replica may call it at any time. One batch runs at a time, at most `batches` of each
    /// kind in a round; each is a small transaction that finds its rows by index. Deliveries in
    /// flight carry the token and are not affected.
    package func ageInstallations(batches: Int = 20) async throws -> SilenceReport {
        var report = SilenceReport()
        var apps: [String] = []
        var settings: [AppSettings] = []
        for row in try await database.execute("SELECT id, settings FROM apps").rows {
            apps.append(try row.text("id"))
            settings.append(AppSettings(try row.json("settings").object ?? [:]))
        }
        let silent = try await repeated(
            Self.silenceSQL,
            [.textArray(apps), .integerArray(settings.map(\.validDays))],
            [.text(Installation.inactiveReason)],
            batches
        )
        let gone = try await repeated(
            Self.deleteSilentSQL,
            [.textArray(apps), .integerArray(settings.map(\.deleteDays))],
            [],
            batches
        )
        report.silenced = silent.count
        report.deleted = gone.count
        report.isUnfinished = silent.isUnfinished || gone.isUnfinished
        return report
    }

    private func repeated(
        _ sql: String,
        _ apps: [PostgresValue],
        _ further: [PostgresValue],
        _ batches: Int
    ) async throws -> (count: Int, isUnfinished: Bool) {
        var total = 0
        for _ in 0..<max(1, batches) {
            let parameters = apps + [.integer(Self.installationsAtOnce)] + further
            let (found, changed) = try await database.transaction {
                (transaction) async throws -> (Int, Int) in
                let lock = try await transaction.pipeline([
                    (IndexPlan.sql, []),
                    (
                        """
                        SELECT pg_try_advisory_xact_lock(
                            hashtextextended('carillon silence ' || current_schema(), 0)) AS mine
                        """, []
                    ),
                ])
                // Another replica runs the round.
                guard try lock[1].first?.boolean("mine") == true else { return (0, 0) }
                guard let row = try await transaction.execute(sql, parameters).first else {
                    return (0, 0)
                }
                return (try row.integer("found"), try row.integer("changed"))
            }
            total += changed
            // `found` includes rows that another transaction has locked. They are skipped, and a
            // later round processes them.
            if found < Self.installationsAtOnce { return (total, false) }
            if changed == 0 { return (total, true) }
        }
        return (total, true)
    }

    /// The due rows, locked in the common order for installations. An installation that is being
    /// saved is not inactive: its row is skipped.
    private static let silenceSQL = """
        WITH due AS MATERIALIZED (
            SELECT n.app, n.object_id, a.silent_since
            FROM (SELECT app, now() - make_interval(days => days) AS silent_since
                FROM unnest($1::text[], $2::integer[]) AS s(app, days)) AS a
            CROSS JOIN LATERAL (
                SELECT i.app, i.object_id FROM installations i
                WHERE (i.app || '') = a.app AND i.valid AND i.updated_at < a.silent_since
                    AND i.seen_on <= (a.silent_since AT TIME ZONE 'UTC')::date
                LIMIT $3) AS n
            LIMIT $3
        ), ordered AS MATERIALIZED (
            SELECT * FROM due ORDER BY app, object_id
        ), locked AS MATERIALIZED (
            SELECT o.app, o.object_id FROM ordered o
            CROSS JOIN LATERAL (
                SELECT FROM installations i
                WHERE i.app = o.app AND i.object_id = o.object_id AND i.valid
                    AND i.updated_at < o.silent_since
                FOR UPDATE SKIP LOCKED) AS held
        ), changed AS (
            UPDATE installations i SET valid = false, invalid_reason = $4, invalidated_at = now()
            FROM locked l WHERE i.app = l.app AND i.object_id = l.object_id
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM due) AS found, (SELECT count(*) FROM changed) AS changed
        """

    private static let deleteSilentSQL = """
        WITH due AS MATERIALIZED (
            SELECT n.app, n.object_id, a.silent_since
            FROM (SELECT app, now() - make_interval(days => days) AS silent_since
                FROM unnest($1::text[], $2::integer[]) AS s(app, days)) AS a
            CROSS JOIN unnest(ARRAY[false, true]) AS v(valid)
            CROSS JOIN LATERAL (
                SELECT i.app, i.object_id FROM installations i
                WHERE (i.app || '') = a.app AND i.valid = v.valid AND i.updated_at < a.silent_since
                    AND i.seen_on <= (a.silent_since AT TIME ZONE 'UTC')::date
                LIMIT $3) AS n
            LIMIT $3
        ), ordered AS MATERIALIZED (
            SELECT * FROM due ORDER BY app, object_id
        ), locked AS MATERIALIZED (
            SELECT o.app, o.object_id FROM ordered o
            CROSS JOIN LATERAL (
                SELECT FROM installations i
                WHERE i.app = o.app AND i.object_id = o.object_id
                    AND i.updated_at < o.silent_since
                FOR UPDATE SKIP LOCKED) AS held
        ), changed AS (
            DELETE FROM installations i USING locked l
            WHERE i.app = l.app AND i.object_id = l.object_id
            RETURNING 1
        )
        SELECT (SELECT count(*) FROM due) AS found, (SELECT count(*) FROM changed) AS changed
        """
}
