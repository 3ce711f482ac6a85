import InstallationStorage
import Postgres
import PushCore
import Storage

/// Pages of an audience whose members become rows without an owner.
enum RowPages {
    /// Writes a page of a list of tokens; the cursor is the number of tokens that are done.
    static func page(
        _ push: PlanningPush,
        _ tokens: [PushRequest.DirectToken],
        _ start: PageStart,
        _ zones: ZoneTimes?,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        let done = start.cursor.flatMap { Int($0) } ?? 0
        let page = tokens.dropFirst(done).prefix(start.limit)
        guard !page.isEmpty else { return AudiencePage() }
        let (sql, parameters) = DirectRows.insertion(
            of: page.map { DirectAudience.Token(pushID: push.id, token: $0) },
            owner: nil,
            zones: zones,
            spread: push.request.spreadMilliseconds
        )
        let inserted = try await transaction.execute(sql, parameters)
        let end = done + page.count
        return AudiencePage(
            inserted: inserted.count,
            cursor: end < tokens.count ? String(end) : nil
        )
    }

    /// Writes a page of installations in the order of their ids; the cursor is the last id that was
    /// read.
    static func page(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        _ start: PageStart,
        _ zones: ZoneTimes?,
        _ transaction: PostgresTransaction
    ) async throws -> AudiencePage {
        if selectors.selectsNothing { return AudiencePage() }
        // The app and the time are parameters, not a join. So the page is read from the primary
        // key, starting at the cursor, without sorting all remaining rows.
        var parameters: [PostgresValue] = [
            .uuid(push.id), .text(push.app), .text(start.cursor ?? ""),
            .timestamp(start.plannedUntil), .integer(start.limit),
        ]
        var source = "installations n"
        if selectors.isDirect, selectors.condition != nil {
            // The names are looked up first, even if the planner expects the condition to be cheap.
            let named = selectors.names(&parameters, of: "m")
            source = "(SELECT * FROM installations m WHERE m.app = $2\(named) OFFSET 0) n"
        } else if !selectors.isDirect, let channels = selectors.channels {
            // A broadcast becomes rows only if few installations are in its channels.
            parameters.append(.textArray(channels))
            source = """
                (SELECT * FROM installations m
                    WHERE m.channels && $\(parameters.count)::text[] OFFSET 0) n
                """
        }
        let conditions = try selectors.conditions(&parameters, app: push.app)
        var times = RowTimes(zones, zone: "i.time_zone", &parameters)
        var members = "page"
        if let spread = push.request.spreadMilliseconds {
            times.spreadDueTimes(over: spread, at: "i.place", &parameters)
            // Each page is spread over the full time of the push.
            members = """
                (SELECT page.*, (row_number() OVER (ORDER BY object_id) - 1)::float8
                    / count(*) OVER () AS place FROM page)
                """
        }
        var values = "NULL::json"
        if !push.request.templateFields.isEmpty {
            parameters.append(.textArray(push.request.templateFields))
            values = TemplateValues.sql("$\(parameters.count)::text[]", of: "i")
        }
        let result = try await transaction.execute(
            """
            WITH page AS (
                SELECT n.* FROM \(source)
                WHERE n.app = $2 AND n.object_id > $3 AND n.valid AND n.token IS NOT NULL
                    AND n.created_at <= $4\(conditions)
                ORDER BY n.object_id LIMIT $5
            ), inserted AS (
                INSERT INTO deliveries (\(DirectRows.columns))
                SELECT \(DirectRows.row(times)), \(values), NULL::bigint
                FROM \(members) i JOIN pushes p ON p.id = $1
                ON CONFLICT DO NOTHING RETURNING 1)
            SELECT (SELECT count(*) FROM inserted) AS inserted, count(*) AS seen,
                max(object_id) AS last FROM page
            """,
            parameters,
            isPrepared: selectors.condition == nil
        )
        guard let row = result.first else { return AudiencePage() }
        let isLast = try row.integer("seen") < start.limit
        if let last = try row.textOrNil("last") {
            try await BadgeStore.raise(of: push, after: start.cursor ?? "", upTo: last, transaction)
        }
        return AudiencePage(
            inserted: try row.integer("inserted"),
            cursor: isLast ? nil : try row.textOrNil("last")
        )
    }
}
