import Postgres
import PushCore

/// Shards of a push that is told over a stated time. How fast they go is known when all of its members
/// are counted: until then they wait.
///
/// Each holds a place of its sender's for as long, of which there are few. So a small audience becomes
/// rows instead, each due at its time, and waits for nobody's.
extension CutShards {
    /// Whether an audience becomes rows, all on one page of `size`.
    static func becomesRows(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        size: Int,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        guard push.request.spreadMilliseconds != nil, !selectors.selectsNobody else { return false }
        try await IndexPlan.require(transaction)
        if let channels = selectors.channels, try await isSparse(channels, size, transaction) {
            return true
        }
        let found = try await transaction.execute(
            """
            SELECT count(*) AS count FROM (
                SELECT FROM installations WHERE app = $1 LIMIT $2) few
            """,
            [.text(push.app), .integer(size + 1)]
        )
        return try found.first?.integer("count") ?? 0 <= size
    }

    /// Longer than it takes to plan an audience; whose planning never ends is sent all the same.
    private static let longestWait = "interval '1 day'"

    /// When a shard is due for which no zone says it, as SQL.
    static func due(_ push: PlanningPush) -> String {
        push.request.spreadMilliseconds == nil ? "now()" : "now() + \(longestWait)"
    }

    /// All of a push is planned. The shards of a device-local one keep their times.
    static func begin(
        _ push: PlanningPush,
        _ zones: ZoneTimes?,
        _ transaction: PostgresTransaction
    ) async throws {
        guard push.request.spreadMilliseconds != nil, zones == nil else { return }
        _ = try await transaction.pipeline([
            (
                "UPDATE shards SET due_at = now() WHERE push_id = $1 AND due_at > now()",
                [.uuid(push.id)]
            ), ("SELECT pg_notify('\(StorageChannel.shards.rawValue)', '')", []),
        ])
    }
}

extension ShardStore {
    /// The members of pushes, as far as they are planned.
    package func members(of pushIDs: Set<String>) async throws -> [String: Int] {
        let rows = try await database.execute(
            """
            SELECT push_id, sum(expected) AS members FROM shards
            WHERE push_id = ANY ($1::uuid[]) GROUP BY push_id
            """,
            [.uuidArray(pushIDs.sorted())]
        ).rows
        var members: [String: Int] = [:]
        for row in rows { members[try row.uuid("push_id")] = try row.integer("members") }
        return members
    }
}

extension PushRequest {
    /// Whether its shards are sent one at a time.
    var isPaced: Bool { pace != nil || spreadMilliseconds != nil }
}
