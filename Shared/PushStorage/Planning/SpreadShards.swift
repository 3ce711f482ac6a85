import Postgres
import PushCore
import Storage

/// The shards of a push that is spread over a stated time. They wait until all members are counted,
/// as only then their pace is known.
///
/// Each shard holds one of its sender's few slots for the whole time. So a small audience becomes
/// rows instead, each due at its own time and without a slot.
extension CutShards {
    /// Whether an audience becomes rows, as all of it fits on one page of `size`.
    static func becomesRows(
        _ push: PlanningPush,
        _ selectors: PushRequest.Selectors,
        size: Int,
        _ transaction: PostgresTransaction
    ) async throws -> Bool {
        guard push.request.spreadMilliseconds != nil, !selectors.selectsNothing else {
            return false
        }
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

    /// More than the planning of an audience takes. If the planning of a push never ends, its
    /// shards are sent after this time.
    private static let longestWait = "interval '1 day'"

    /// Returns as SQL when a shard is due that has no zone's time.
    static func due(_ push: PlanningPush) -> String {
        push.request.spreadMilliseconds == nil ? "now()" : "now() + \(longestWait)"
    }

    /// Sets the due times of a push's shards once the whole audience is planned. The shards of a
    /// device-local push keep their times.
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
            ), ("SELECT pg_notify('\(NotifyChannel.shards.rawValue)', '')", []),
        ])
    }
}

extension ShardStore {
    /// Returns the number of members that are planned so far, by push.
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
