import Postgres
import PushCore

/// Whose audience is written down next, and by whom.
extension PlanningStore {
    /// Takes the next push whose audience is to be written down, fairly between apps: that of the app
    /// whose turn was longest ago, and of its pushes the oldest.
    ///
    /// - Parameters:
    ///   - kind: Pushes of one kind, or of any. One of an older service that only speaks of a
    ///     condition may count as one that has it.
    ///   - session: Whose it becomes.
    ///   - turns: The number of each app's last turn, where it had one.
    ///   - resting: Pushes that are left alone for now.
    /// - Returns: `nil` where there is none.
    /// - Throws: `StorageError` of kind `sessionLost`.
    package func claim(
        _ kind: AudienceKind? = nil,
        session: Int,
        turns: [String: Int] = [:],
        but resting: [String] = []
    ) async throws -> PlanningPush? {
        let turns = Array(turns)
        return try await database.transaction { transaction in
            try await SessionStore.holdByIndex(session, transaction)
            let claimed = try await transaction.execute(
                Self.claimSQL,
                [
                    .integer(session), kind.map { .boolean($0 == .conditional) } ?? .null,
                    .textArray(turns.map(\.key)), .integerArray(turns.map(\.value)),
                    .uuidArray(resting),
                ]
            )
            guard let row = claimed.first else { return nil }
            do {
                return try PlanningPush(row)
            } catch let error as StorageError where error.kind == .corrupt {
                // Left alone it would stand before all others for ever.
                let id = try row.uuid("id")
                _ = try await PushBooks.fail(id, error: error.description, transaction)
                return nil
            }
        }
    }

    /// Gives back what a planner holds and does not know of: the answer to a claim was lost, or a push
    /// could not be given back.
    package func release(_ kind: AudienceKind, session: Int) async throws {
        _ = try await database.execute(
            """
            UPDATE pushes p SET planner = NULL, updated_at = now()
            WHERE planner = $1 AND \(Self.isConditional) = $2
            """,
            [.integer(session), .boolean(kind == .conditional)]
        )
    }

    // An older service does not say of which kind a push is.
    private static let isConditional = """
        coalesce(p.is_conditional, p.request::text ~ '"(where|cql|tags)"')
        """

    // Apps are found one by one in the index, as with shards. Others may be taking the same ones:
    // hence several of each, which are looked at again once they are locked.
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

    /// Longer than a push waits where planners keep up; an audience of a million is planned in less.
    package static let longestWait: Duration = .seconds(60)

    /// For how long the oldest push has waited for its audience to be planned, or for the rest of it, by
    /// Postgres' clock; `nil`: none waits. Asks the index alone, once for each app and lane.
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

    /// Pushes in planning that a session has claimed: to find those that it does not know of.
    package func held(session: Int) async throws -> Set<String> {
        let found = try await database.execute(
            "SELECT id FROM pushes WHERE planner = $1 AND status = \(PushStatus.planning.sql) LIMIT 1000",
            [.integer(session)]
        )
        return Set(try found.rows.map { try $0.uuid("id") })
    }

    /// Gives pushes back that nobody plans; whoever is free goes on where their cursor stands.
    ///
    /// - Returns: How many were this session's.
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
            if changed > 0 { try await StorageChannel.planning.notify(transaction) }
            return changed
        }
    }
}
