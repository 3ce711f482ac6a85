import Postgres
package import PushCore

/// Where a push stands, and its books: every change of `pushes.status` and of a push's figures is one of
/// the fragments here, which the stores put into their statements.
///
///     accepted over HTTP           → queued
///     its record came (`arrival`)  → scheduled, planning; sending or done where it was planned at once
///     its time came (`released`)   scheduled → planning
///     a page planned (`planned`)   planning → planning; the last one: sending, or done
///     deliveries ended (`change`)  sending → done, with the last of them
///     a dry run (`counted`)        planning → done
///     `fail`                       all that is not over → failed
///     `cancelled`                  all that is not over → cancelled
///
/// The figures of one push: targeted = delivered + failed + expired + suppressed + in_doubt + pending, each
/// changed in the transaction that changes the rows, or the shards, that it counts.
enum PushBooks {
    /// A column of `pushes` that counts.
    enum Figure: String {
        case targeted, pending, delivered, failed, expired, suppressed
        case inDoubt = "in_doubt"
        case invalidTokens = "invalid_tokens"
        /// Shards that are not over.
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

    // MARK: From its record to its deliveries

    /// What `arrival` gives, of `pushes`.
    static let arrivalColumns = "status, targeted, pending, finished_at"

    /// The beginning of a push whose record came.
    ///
    /// - Parameters:
    ///   - expected: SQL: the deliveries that are planned at once; `NULL`: it is planned page by page.
    ///   - releaseAt: SQL: the time that it waits for; `NULL`: none.
    /// - Returns: The values of `arrivalColumns`.
    static func arrival(expected: String, releaseAt: String) -> String {
        """
        CASE WHEN \(releaseAt) IS NOT NULL THEN \(PushStatus.scheduled.sql)
            WHEN \(expected) IS NULL THEN \(PushStatus.planning.sql)
            WHEN \(expected) = 0 THEN \(PushStatus.done.sql) ELSE \(PushStatus.sending.sql) END,
        coalesce(\(expected), 0), coalesce(\(expected), 0), CASE WHEN \(expected) = 0 THEN now() END
        """
    }

    /// The same of one that was accepted over HTTP, and waits for its record: `SET` of an upsert.
    static let arrivalOfQueued = """
        status = excluded.status, targeted = excluded.targeted, pending = excluded.pending,
        finished_at = excluded.finished_at
        """

    /// `SET` of an upsert: one that HTTP accepted was sent before it was written down, and all its figures
    /// are new. One that was cancelled on its way stays so.
    static let sentAtOnce = """
        targeted = excluded.targeted, delivered = excluded.delivered, failed = excluded.failed,
        expired = excluded.expired, suppressed = excluded.suppressed, in_doubt = excluded.in_doubt,
        invalid_tokens = excluded.invalid_tokens, pending = excluded.pending,
        failures = excluded.failures,
        status = CASE WHEN pushes.status = \(PushStatus.cancelled.sql) THEN pushes.status
            ELSE excluded.status END,
        finished_at = coalesce(pushes.finished_at, excluded.finished_at)
        """

    /// `SET` of an `UPDATE pushes p`: its audience is fixed, and its day is today.
    static let released = """
        status = \(PushStatus.planning.sql), accepted_at = p.created_at,
        created_at = date_trunc('milliseconds', now()), planned_until = now(), updated_at = now()
        """

    /// `SET` of an `UPDATE pushes p`: so many deliveries were planned, SQL, which are all.
    static func plannedAtOnce(_ count: String) -> String {
        """
        targeted = \(count), pending = \(count),
        status = CASE WHEN \(count) = 0 THEN \(PushStatus.done.sql)
            ELSE \(PushStatus.sending.sql) END,
        finished_at = CASE WHEN \(count) = 0 THEN now() END, updated_at = now()
        """
    }

    /// `SET` of an `UPDATE pushes p`: a page was planned. All SQL.
    static func planned(members: String, shards: String, isLast: String) -> String {
        let isNobody = "p.pending + \(members) = 0 AND p.open_shards + \(shards) = 0"
        return """
            targeted = p.targeted + \(members), pending = p.pending + \(members),
            open_shards = p.open_shards + \(shards),
            status = CASE WHEN NOT \(isLast) THEN p.status
                WHEN \(isNobody) THEN \(PushStatus.done.sql) ELSE \(PushStatus.sending.sql) END,
            finished_at = CASE WHEN \(isLast) AND \(isNobody) THEN now() END, updated_at = now()
            """
    }

    /// `SET` of an `UPDATE pushes`: a dry run has its result.
    static let counted = """
        status = \(PushStatus.done.sql), planner = NULL, finished_at = now(), updated_at = now()
        """

    // MARK: Ends of deliveries

    /// `SET` of an `UPDATE pushes p`: the figures change, and the push is done where nothing is left.
    ///
    /// - Parameters:
    ///   - amounts: SQL of what is added to each figure.
    ///   - failures: SQL of `failures` as they are then; `nil`: as they are.
    /// - Returns: What follows `SET`.
    static func change(
        _ amounts: KeyValuePairs<Figure, String>,
        failures: String? = nil
    ) -> String {
        var (sets, isDone) = ([String](), "p.status = \(PushStatus.sending.sql)")
        for (figure, amount) in amounts {
            sets.append("\(figure.rawValue) = p.\(figure.rawValue) + (\(amount))")
        }
        for figure in [Figure.pending, .openShards] {
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

    /// `SET` of an `UPDATE pushes`. One that was cancelled before stays so.
    static let cancelled = """
        status = \(PushStatus.cancelled.sql), planner = NULL, updated_at = now(),
        finished_at = coalesce(finished_at, now())
        """

    /// Ends a push that cannot be sent. What is planned of it is left to the caller.
    ///
    /// - Parameters:
    ///   - id: Which push.
    ///   - error: Why; for its record.
    ///   - standing: Only where it stands so.
    ///   - planner: Only where it is this session that plans it.
    ///   - transaction: In which.
    /// - Returns: The day of its deliveries; `nil` where nothing was changed.
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

// MARK: Words of the statements

extension PushStatus {
    /// As it stands in a statement.
    var sql: String { "'\(rawValue)'" }

    /// Nobody else is sent to, whatever was planned.
    package var isCutShort: Bool {
        switch self {
        case .queued, .scheduled, .planning, .sending, .done: false
        case .cancelled, .failed: true
        }
    }

    static let unfinished = allCases.filter { !$0.isFinal }

    /// A list for `IN`.
    static func sql(where isIncluded: (PushStatus) -> Bool) -> String {
        "(" + allCases.filter(isIncluded).map(\.sql).joined(separator: ", ") + ")"
    }
}

extension DeliveryState {
    /// As it stands in a statement. Written out, never a parameter: partial indexes are over the state.
    var sql: String { String(rawValue) }

    /// Counts of rows by the outcomes, each under its name in the books.
    ///
    /// - Parameters:
    ///   - state: SQL of a row's state.
    ///   - prefix: Of the names.
    /// - Returns: Columns of a `SELECT`.
    static func counts(by state: String, as prefix: String = "") -> String {
        Outcome.allCases.map { outcome in
            """
            count(*) FILTER (WHERE \(state) = \(DeliveryState(outcome).sql)) \
            AS \(prefix)\(PushBooks.Figure(outcome).rawValue)
            """
        }.joined(separator: ", ")
    }
}
