import Postgres
package import PushCore
import Storage

/// The state of a push, and its ledger. Every change of `pushes.status` and of a push's counters is
/// one of these fragments, which the stores put into their statements.
///
///     accepted over HTTP           → queued
///     its record came (`arrival`)  → scheduled, planning; sending or done where it was planned at once
///     its time came (`released`)   scheduled → planning
///     a page planned (`planned`)   planning → planning; the last one: sending, or done
///     deliveries ended (`change`)  sending → done, with the last of them
///     a dry run (`counted`)        planning → done
///     `fail`                       all that has not ended → failed
///     `cancelled`                  all that has not ended → cancelled
///
/// The ledger of a push: targeted = delivered + failed + expired + suppressed + in_doubt + pending.
/// Each counter changes in the same transaction as the rows or shards that it counts.
package enum LedgerSQL {
    /// A column of `pushes` that counts.
    package enum Counter: String {
        case targeted, pending, delivered, failed, expired, suppressed
        case inDoubt = "in_doubt"
        case invalidTokens = "invalid_tokens"
        /// Shards that have not ended.
        case openShards = "open_shards"

        init(_ outcome: Outcome) {
            switch outcome {
            case .delivered: self = .delivered
            case .failed: self = .failed
            case .expired: self = .expired
            case .suppressed: self = .suppressed
            case .inDoubt: self = .inDoubt
            }
        }
    }

    // MARK: Arrival and planning

    /// The columns of `pushes` that `arrival` sets.
    static let arrivalColumns = "status, targeted, pending, finished_at"

    /// Returns the initial values of a push whose record has arrived.
    ///
    /// - Parameters:
    ///   - expected: SQL: the number of deliveries that are planned at once; `NULL` if the push is
    ///     planned page by page.
    ///   - releaseAt: SQL: the time that it waits for; `NULL` if it does not wait.
    /// - Returns: The values of `arrivalColumns`.
    static func arrival(expected: String, releaseAt: String) -> String {
        """
        CASE WHEN \(releaseAt) IS NOT NULL THEN \(PushStatus.scheduled.sql)
            WHEN \(expected) IS NULL THEN \(PushStatus.planning.sql)
            WHEN \(expected) = 0 THEN \(PushStatus.done.sql) ELSE \(PushStatus.sending.sql) END,
        coalesce(\(expected), 0), coalesce(\(expected), 0), CASE WHEN \(expected) = 0 THEN now() END
        """
    }

    /// The `SET` of an upsert, for a push that HTTP accepted and that waits for its record.
    static let arrivalOfQueued = """
        status = excluded.status, targeted = excluded.targeted, pending = excluded.pending,
        finished_at = excluded.finished_at
        """

    /// The `SET` of an upsert, for a push that HTTP accepted and that was sent before it was
    /// written. All its counters are new. If it was cancelled meanwhile, it stays cancelled.
    static let sentAtOnce = """
        targeted = excluded.targeted, delivered = excluded.delivered, failed = excluded.failed,
        expired = excluded.expired, suppressed = excluded.suppressed, in_doubt = excluded.in_doubt,
        invalid_tokens = excluded.invalid_tokens, pending = excluded.pending,
        failures = excluded.failures,
        status = CASE WHEN pushes.status = \(PushStatus.cancelled.sql) THEN pushes.status
            ELSE excluded.status END,
        finished_at = coalesce(pushes.finished_at, excluded.finished_at)
        """

    /// The `SET` of an `UPDATE pushes p` for a release: the audience is fixed now, and the push's
    /// day is today.
    static let released = """
        status = \(PushStatus.planning.sql), accepted_at = p.created_at,
        created_at = date_trunc('milliseconds', now()), planned_until = now(), updated_at = now()
        """

    /// Returns the `SET` of an `UPDATE pushes p` for a push whose deliveries are all planned at
    /// once. `count` is SQL for their number.
    static func plannedAtOnce(_ count: String) -> String {
        """
        targeted = \(count), pending = \(count),
        status = CASE WHEN \(count) = 0 THEN \(PushStatus.done.sql)
            ELSE \(PushStatus.sending.sql) END,
        finished_at = CASE WHEN \(count) = 0 THEN now() END, updated_at = now()
        """
    }

    /// Returns the `SET` of an `UPDATE pushes p` after a page was planned. All parameters are SQL.
    static func planned(members: String, shards: String, isLast: String) -> String {
        let isEmptyPush = "p.pending + \(members) = 0 AND p.open_shards + \(shards) = 0"
        return """
            targeted = p.targeted + \(members), pending = p.pending + \(members),
            open_shards = p.open_shards + \(shards),
            status = CASE WHEN NOT \(isLast) THEN p.status
                WHEN \(isEmptyPush) THEN \(PushStatus.done.sql) ELSE \(PushStatus.sending.sql) END,
            finished_at = CASE WHEN \(isLast) AND \(isEmptyPush) THEN now() END, updated_at = now()
            """
    }

    /// The `SET` of an `UPDATE pushes` that ends a dry run with its result.
    static let counted = """
        status = \(PushStatus.done.sql), planner = NULL, finished_at = now(), updated_at = now()
        """

    // MARK: Ends of deliveries

    /// Returns the `SET` of an `UPDATE pushes p` that changes counters. The push is done once no
    /// delivery is left.
    ///
    /// - Parameters:
    ///   - amounts: SQL of the amount that is added to each counter.
    ///   - failures: SQL of the new `failures`; `nil` if they do not change.
    /// - Returns: The assignments after `SET`.
    package static func change(
        _ amounts: KeyValuePairs<Counter, String>,
        failures: String? = nil
    ) -> String {
        var (sets, isDone) = ([String](), "p.status = \(PushStatus.sending.sql)")
        for (figure, amount) in amounts {
            sets.append("\(figure.rawValue) = p.\(figure.rawValue) + (\(amount))")
        }
        for figure in [Counter.pending, .openShards] {
            let amount = amounts.first { $0.key == figure }.map { " + (\($0.value))" } ?? ""
            isDone += " AND p.\(figure.rawValue)\(amount) = 0"
        }
        if let failures { sets.append("failures = \(failures)") }
        return """
            \(sets.joined(separator: ", ")),
            status = CASE WHEN \(isDone) THEN \(PushStatus.done.sql) ELSE p.status END,
            finished_at = CASE WHEN \(isDone) THEN now() ELSE p.finished_at END, updated_at = now()
            """
    }

    // MARK: Ends of pushes

    /// The `SET` of an `UPDATE pushes` that cancels. An earlier `finished_at` stays.
    static let cancelled = """
        status = \(PushStatus.cancelled.sql), planner = NULL, updated_at = now(),
        finished_at = coalesce(finished_at, now())
        """

    /// Ends a push that cannot be sent. The caller ends its planned deliveries.
    ///
    /// - Parameters:
    ///   - id: The push.
    ///   - error: The reason, for its record.
    ///   - standing: The states from which it may fail.
    ///   - planner: The session that has to be its planner; `nil` for any.
    ///   - transaction: The transaction.
    /// - Returns: The day of its deliveries; `nil` if nothing was changed.
    /// - Throws: `PostgresError`.
    static func fail(
        _ id: String,
        error: String,
        from standing: [PushStatus] = [.queued, .scheduled, .planning],
        planner: Int? = nil,
        _ transaction: PostgresTransaction
    ) async throws -> String? {
        try await transaction.execute(
            """
            UPDATE pushes SET status = \(PushStatus.failed.sql), error = $2, planner = NULL,
                updated_at = now(), finished_at = now()
            WHERE id = $1 AND status = ANY ($3::text[]) AND ($4::bigint IS NULL OR planner = $4)
            RETURNING (created_at AT TIME ZONE 'UTC')::date::text AS day
            """,
            [
                .uuid(id), .text(error), .textArray(standing.map(\.rawValue)),
                .optional(integer: planner),
            ]
        ).first?.text("day")
    }
}

// MARK: SQL literals

extension PushStatus {
    /// The status as a literal in a statement.
    package var sql: String { "'\(rawValue)'" }

    /// Whether the push sends to no further device, although more were planned.
    package var isCutShort: Bool {
        switch self {
        case .queued, .scheduled, .planning, .sending, .done: false
        case .cancelled, .failed: true
        }
    }

    static let unfinished = allCases.filter { !$0.isFinal }

    /// Returns a list for `IN`.
    package static func sql(where isIncluded: (PushStatus) -> Bool) -> String {
        "(" + allCases.filter(isIncluded).map(\.sql).joined(separator: ", ") + ")"
    }
}

extension DeliveryState {
    /// The state as a literal in a statement. It is never a parameter, because the conditions of
    /// partial indexes contain the literal.
    package var sql: String { String(rawValue) }

    /// Counts rows by their outcomes, each under the name of its counter.
    ///
    /// - Parameters:
    ///   - state: SQL of a row's state.
    ///   - prefix: The prefix of the names.
    /// - Returns: Columns of a `SELECT`.
    static func counts(by state: String, as prefix: String = "") -> String {
        Outcome.allCases.map { outcome in
            """
            count(*) FILTER (WHERE \(state) = \(DeliveryState(outcome).sql)) \
            AS \(prefix)\(LedgerSQL.Counter(outcome).rawValue)
            """
        }.joined(separator: ", ")
    }
}
