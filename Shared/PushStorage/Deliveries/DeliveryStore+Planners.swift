import Postgres
import PushCore

/// Pushes in planning that a session has claimed: to find those that it does not know of.
extension DeliveryStore {
    package func planning(session: Int) async throws -> Set<String> {
        let found = try await database.execute(
            "SELECT id FROM pushes WHERE planner = $1 AND status = \(PushStatus.planning.sql) LIMIT 1000",
            [.integer(session)]
        )
        return Set(try found.rows.map { try $0.uuid("id") })
    }

    /// Gives pushes back that nobody plans; whoever is free goes on where their cursor stands.
    ///
    /// - Returns: How many were this session's.
    package func giveBackPlanning(session: Int, _ pushIDs: Set<String>) async throws -> Int {
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
            if changed > 0 { try await Self.notify(.planning, transaction) }
            return changed
        }
    }
}
