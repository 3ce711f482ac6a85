import PushCore
import Storage

/// Writes what was sent. It is the only writer of `deliveries`, `delivery_chunks` and
/// `event_pushes` after a send, and of a push's counters. Every write carries the session: rows
/// that another session owns by now are left alone and not counted.
package struct PushLedger: Sendable {
    let database: Database
    let fewDevices: FewDevicesStore

    /// Writes entries, each kind in one transaction: rows first, then members, then pushes.
    ///
    /// - Parameters:
    ///   - entries: The entries, each once.
    ///   - session: The session that owns them.
    /// - Returns: A result for each entry, in their order.
    /// - Throws: `StorageError`. If it is of kind `sessionLost`, the session does not own a shard
    ///   or a push, and no entry of the same kind was written. It is `isOfTheValues` if Postgres
    ///   will never accept one of the entries.
    package func write(
        _ entries: [LedgerEntry],
        session: Int
    ) async throws -> [LedgerResult] {
        var rows: [DeliveryRecord] = []
        var shards: [(ClaimedShard, ShardCheckpoint)] = []
        var pushes: [SentPush] = []
        for entry in entries {
            switch entry {
            case .row(let record): rows.append(record)
            case .members(let shard, let checkpoint): shards.append((shard, checkpoint))
            case .push(let push): pushes.append(push)
            }
        }
        let keys = try await write(rows, session: session)
        var standings = try await write(shards, session: session)[...]
        let written = try await fewDevices.write(session: session, pushes)
        return entries.map { entry in
            switch entry {
            case .row(let record): keys.contains(record.delivery.key) ? .written : .notOwned
            case .members: standings.popFirst() ?? .notOwned
            case .push(let push):
                written.erased.contains(push.push.id)
                    ? .erased : written.ids.contains(push.push.id) ? .written : .notOwned
            }
        }
    }
}

/// A unit that has ended and is written as a whole.
package enum LedgerEntry: Sendable {
    /// A row that this session owns, and that has ended or is released.
    case row(DeliveryRecord)
    /// Members of a shard after its cursor.
    case members(ClaimedShard, ShardCheckpoint)
    /// A push of the fast path.
    case push(SentPush)

    package enum Kind: Int, Sendable, CaseIterable { case members, rows, pushes }
}

/// The result of writing an entry.
package enum LedgerResult: Sendable, Equatable {
    case written
    /// Written, and the push was cancelled after its shard was claimed: no more members may be
    /// sent. Further checkpoints record the members that were sent, until the shard is released.
    /// Its next owner suppresses and reports the others.
    case cancelled
    /// Nothing was changed: another session owned it, or it was stored already.
    case notOwned
    /// Nothing of it is stored: it names a subject that was erased meanwhile.
    case erased
}

/// The form in which a push or a delivery is stored.
package enum LedgerForm: Sendable, Equatable {
    /// The push and its deliveries are one row of `event_pushes`.
    case row
    /// The push has its row of `pushes`, and that row contains its deliveries.
    case packed
    /// The push is a row of `pushes`, and each delivery a row of `deliveries`.
    case rows
    /// The delivery is a part of a row of `delivery_chunks`.
    case chunk
    /// The delivery has a row already, which is updated.
    case updateRow
}

extension PushLedger {
    /// Returns the form of a push of the fast path. If all its deliveries have ended it is one row,
    /// and if HTTP accepted it that is its row of `pushes`.
    static func form(of push: SentPush) -> LedgerForm {
        guard push.deliveries.allSatisfy({ $0.end?.outcome != nil }) else { return .rows }
        return push.hasRow ? .packed : .row
    }

    /// Returns the form of a delivery. A chunk takes it if it was delivered and has no other
    /// details. Members of a device-local push are rows: if one moves to another time zone
    /// meanwhile, it is looked up among the rows. `shard` is `nil` if the delivery is a row
    /// already.
    static func form(of record: DeliveryRecord, in shard: ClaimedShard?) -> LedgerForm {
        guard let shard else { return .updateRow }
        let isPlain = record.end?.decision == .settle(.delivered) && record.end?.reason == nil
        return isPlain && shard.zones == nil ? .chunk : .rows
    }
}
