import Postgres
import PushCore
import Storage

/// Claims of pushes whose audience is to be planned.
extension PlanningStore {
    /// Claims the next push whose audience is to be planned, fairly between apps: the app whose turn
    /// was longest ago, and its oldest push.
    ///
    /// - Parameters:
    ///   - kind: The kind of the push; `nil` for any. A push that an older service stored counts as
    ///     having a condition even if it only mentions one.
    ///   - session: The session that claims it.
    ///   - turns: The number of each app's last turn, if it had one.
    ///   - backingOff: Pushes that are in backoff.
    /// - Returns: `nil` if there is none.
    /// - Throws: `StorageError` of kind `sessionLost`.
    package func claim(
        _ kind: AudienceKind? = nil,
        session: Int,
        turns: [String: Int] = [:],
        except backingOff: [String] = []
    ) async throws -> PlanningPush? {
        let turns = Array(turns)
        return try await database.transaction { transaction in
            try await SessionStore.holdByIndex(session, transaction)
            let claimed = try await transaction.execute(
                Self.claimSQL,
                [
                    .integer(session), kind.map { .boolean($0 == .conditional) } ?? .null,
                    .textArray(turns.map(\.key)), .integerArray(turns.map(\.value)),
                    .uuidArray(backingOff),
                ]
            )
            guard let row = claimed.first else { return nil }
            do {
                return try PlanningPush(row)
            } catch let error as StorageError where error.kind == .corrupt {
                // Otherwise this push would come before all others for ever.
                let id = try row.uuid("id")
                _ = try await LedgerSQL.fail(id, error: error.description, transaction)
                return nil
            }
        }
    }

    /// Releases the strays of a planner: the reply to a claim was lost, or a release failed.
    package func release(_ kind: AudienceKind, session: Int) async throws {
        _ = try await database.execute(
            """
            UPDATE pushes p SET planner = NULL, updated_at = now()
            WHERE planner = $1 AND \(Self.isConditional) = $2
            """,
            [.integer(session), .boolean(kind == .conditional)]
        )
    }

    // An older service does not record the kind of a push.
    private static let isConditional = """
        coalesce(p.is_conditional, p.request::text ~ '"(where|cql|tags)"')
        """

    // Apps are found one by one in the index, as for shards. Other sessions may claim the same
    // pushes at the same time. So there are several candidates for each app, which are checked
    // again once they are locked.
    private static let claimSQL = """
        WITH RECURSIVE \(apps), candidates AS (
            SELECT c.*, coalesce(t.turn, 0) AS turn
            FROM apps a
            LEFT JOIN unnest($3::text[], $4::bigint[]) AS t(app, turn) ON t.app = a.app
            CROSS JOIN LATERAL (
                SELECT p.id, p.lane, p.created_at FROM pushes p
                WHERE p.app = a.app AND p.is_planning AND p.planner IS NULL
                    AND ($2::boolean IS NULL OR $2 = \(isConditional))
                    AND p.id <> ALL ($5::uuid[])
                ORDER BY p.lane, p.created_at LIMIT 4) c
            WHERE a.app IS NOT NULL
        ), taken AS (
            SELECT p.id FROM candidates c JOIN pushes p ON p.id = c.id
            WHERE (p.status = \(PushStatus.planning.sql) AND p.planner IS NULL) IS TRUE
            ORDER BY c.turn, c.lane, c.created_at LIMIT 1
            FOR UPDATE OF p SKIP LOCKED
        )
        UPDATE pushes p SET planner = $1, updated_at = now()
        FROM taken t WHERE p.id = t.id
        RETURNING p.id, p.app, p.request
        """

    private static let apps = """
        apps AS (
            (SELECT app FROM pushes WHERE is_planning ORDER BY app LIMIT 1)
            UNION ALL
            SELECT (SELECT p.app FROM pushes p WHERE p.is_planning AND p.app > a.app
                ORDER BY p.app LIMIT 1)
            FROM apps a WHERE a.app IS NOT NULL
        )
        """

    /// More than a push waits while the planners keep up. An audience of a million is planned in
    /// less.
    package static let longestWait: Duration = .seconds(60)

    /// Returns how long the oldest push has waited for the rest of its audience to be planned, by
    /// Postgres' clock; `nil` if no push waits. Reads only the index, once for each app and lane.
    package func oldestAge() async throws -> Duration? {
        let sql = """
            WITH RECURSIVE \(Self.apps)
            SELECT extract(epoch FROM clock_timestamp() - min(c.created_at))::double precision AS age
            FROM apps a CROSS JOIN (VALUES (0), (1)) AS l(lane)
            CROSS JOIN LATERAL (
                SELECT p.created_at FROM pushes p
                WHERE p.app = a.app AND p.lane = l.lane AND p.is_planning
                ORDER BY p.created_at LIMIT 1) c
            WHERE a.app IS NOT NULL
            """
        let result = try await database.transaction(of: [(IndexPlan.sql, []), (sql, [])])[1]
        return try result.first?.doubleOrNil("age").map { .milliseconds(Int64(max(0, $0) * 1000)) }
    }

    /// Returns the pushes in planning that a session has claimed, for the search for strays.
    package func held(session: Int) async throws -> Set<String> {
        let found = try await database.execute(
            "SELECT id FROM pushes WHERE planner = $1 AND status = \(PushStatus.planning.sql) LIMIT 1000",
            [.integer(session)]
        )
        return Set(try found.rows.map { try $0.uuid("id") })
    }

    /// Releases pushes that no task plans; the next planner resumes at their cursor.
    ///
    /// - Returns: The number of released pushes.
    package func giveBack(session: Int, _ pushIDs: Set<String>) async throws -> Int {
        guard !pushIDs.isEmpty else { return 0 }
        return try await database.transaction { transaction in
            let changed = try await transaction.execute(
                """
                UPDATE pushes SET planner = NULL, updated_at = now() WHERE id IN (
                    SELECT id FROM pushes
                    WHERE id = ANY ($2::uuid[]) AND planner = $1
                        AND status = \(PushStatus.planning.sql)
                    ORDER BY id FOR UPDATE)
                """,
                [.integer(session), .uuidArray(pushIDs.sorted())]
            ).affectedRows
            if changed > 0 { try await NotifyChannel.planning.notify(transaction) }
            return changed
        }
    }
}
