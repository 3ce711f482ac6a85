import Postgres
import PushCore
import Storage

extension ShardStore {
    /// Raises the badges of a page's members before any of them is sent to. In the same transaction
    /// it marks the shard as prepared up to the last member. So the shard's next owner sends the
    /// stored badges, and raises no badge twice. The badge of a suppressed member stays as it is.
    ///
    /// - Parameters:
    ///   - session: The session that owns the shard.
    ///   - shard: The page's shard.
    ///   - page: The page as `page` read it. The pages of a shard are prepared in their order.
    /// - Returns: The page with the badges to send; the same page if the push raises no badges.
    /// - Throws: `StorageError` of kind `sessionLost` if the session does not own the shard; then
    ///   no badge was raised.
    package func prepare(
        session: Int,
        _ shard: ClaimedShard,
        _ page: ShardPage
    ) async throws -> ShardPage {
        guard shard.raisesBadges, let last = page.members.last?.target else { return page }
        return try await database.transaction { transaction in
            try await IndexPlan.require(transaction)
            try await SessionStore.hold(session, transaction)
            let held = try await transaction.execute(
                """
                SELECT prepared FROM shards
                WHERE push_id = $1 AND shard = $2 AND owner = $3 FOR UPDATE
                """,
                [.uuid(shard.pushID), .integer(shard.shard), .integer(session)]
            )
            guard let row = held.first else { throw StorageError.sessionLost }
            let prepared = try row.textOrNil("prepared") ?? ""
            let raises = page.members.filter { $0.suppression == nil }.compactMap { member in
                shard.badgeChanges[member.device.provider].map { change in
                    BadgeStore.Raise(
                        key: member.key,
                        app: member.app,
                        // The badges of prepared members are only read.
                        change: member.target > prepared ? change : BadgeChange(amount: 0)
                    )
                }
            }
            let values = try await BadgeStore.raise(raises, transaction)
            if last > prepared {
                _ = try await transaction.execute(
                    "UPDATE shards SET prepared = $3 WHERE push_id = $1 AND shard = $2",
                    [.uuid(shard.pushID), .integer(shard.shard), .text(last)]
                )
            }
            var result = page
            for index in result.members.indices {
                result.members[index].badge = values[result.members[index].key]
            }
            return result
        }
    }
}
