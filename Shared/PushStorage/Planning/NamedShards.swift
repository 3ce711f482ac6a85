import Postgres
import PushCore
import Storage

/// Pushes that name many devices one by one. The devices of one push become a shard of the direct
/// lane, which is sent and recorded like a shard of a broadcast. One statement chooses the devices,
/// once (`ChosenShards`). Whether a device can be sent to is checked at its turn. If it cannot, the
/// sender reports a suppressed delivery (`ShardStore.page`).
enum NamedShards {
    /// Writes the shards of the pushes that `audience` has in `chosen`, and their ledgers.
    ///
    /// - Parameters:
    ///   - audience: The audience. Its pushes are stored already.
    ///   - transaction: The transaction that inserted the pushes.
    /// - Returns: The number of members of all shards.
    /// - Throws: `PostgresError`.
    static func insert(
        _ audience: DirectAudience,
        _ transaction: PostgresTransaction
    ) async throws -> Int {
        guard !audience.chosen.isEmpty else { return 0 }
        var members: [String: Int] = [:]
        for (source, list) in [
            (installations, audience.chosenInstallations), (identities, audience.chosenIdentities),
        ] where !list.isEmpty {
            let inserted = try await transaction.execute(
                """
                INSERT INTO shards (push_id, shard, app, day, pushed_at, upper_id, expected, lane, members)
                SELECT c.id, 0, c.app, (c.created_at AT TIME ZONE 'UTC')::date, c.created_at,
                    max(c.object_id), count(*), c.lane, array_agg(c.object_id ORDER BY c.object_id)
                FROM (SELECT DISTINCT p.id, p.app, p.created_at, p.lane, i.object_id
                    FROM unnest($1::uuid[], $2::text[]) AS w(push_id, name)
                    JOIN pushes p ON p.id = w.push_id
                    CROSS JOIN LATERAL (\(source)) i) c
                GROUP BY c.id, c.app, c.created_at, c.lane RETURNING push_id, expected
                """,
                [.uuidArray(list.map(\.pushID)), .textArray(list.map(\.name))]
            )
            for row in inserted.rows {
                members[try row.uuid("push_id")] = try row.integer("expected")
            }
        }
        let pushIDs = audience.chosen.sorted()
        _ = try await transaction.execute(
            """
            UPDATE pushes p SET \(LedgerSQL.planned(members: "i.members", shards: "i.shards", isLast: "true"))
            FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS i(id, members, shards)
            WHERE p.id = i.id
            """,
            [
                .uuidArray(pushIDs),
                .integerArray(pushIDs.map { members[$0] ?? 0 }),
                .integerArray(pushIDs.map { members[$0] == nil ? 0 : 1 }),
            ]
        )
        if !members.isEmpty { try await NotifyChannel.shards.notify(transaction) }
        return members.values.reduce(0, +)
    }

    /// The installations of the push `p` with the name `w`.
    private static let installations = """
        SELECT m.object_id FROM installations m
        WHERE m.app = p.app AND m.object_id = w.name AND \(isThere)
        UNION ALL
        SELECT m.object_id FROM installations m
        WHERE m.app = p.app AND m.installation_id = w.name AND \(isThere)
        """

    private static let identities = """
        SELECT m.object_id FROM installations m
        WHERE m.app = p.app AND m.identity = w.name AND m.valid AND m.token IS NOT NULL
            AND \(isThere)
        """

    private static let isThere = "m.provider IS NOT NULL AND m.created_at <= p.planned_until"
}
