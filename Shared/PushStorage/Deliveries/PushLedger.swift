import PushCore
import Storage

/// The writes of the sending side: the only writer of `deliveries`, `delivery_chunks` and
/// `event_pushes` once something was sent, and of a push's counters. Every write carries the session:
/// rows that another session owns by now are left alone and not counted.
package struct PushLedger: Sendable {
    let database: Database
    let fewDevices: FewDevicesStore

    /// Writes entries: those of a kind in one transaction, rows first, then members, then pushes.
    ///
    /// - Parameters:
    ///   - entries: The entries, each once.
    ///   - session: The session that owns them.
    /// - Returns: A result for each, in their order.
    /// - Throws: `StorageError`: if its kind is `sessionLost`, a shard or a push is not the session's,
    ///   and nothing of its kind was written; `isOfTheValues` if Postgres will never accept one of
    ///   them.
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

/// A unit that has ended, to be written in one piece.
package enum LedgerEntry: Sendable {
    /// A row of the session that has ended, or is released.
    case row(DeliveryRecord)
    /// Members of a shard behind its cursor.
    case members(ClaimedShard, ShardCheckpoint)
    /// A push of the fast path.
    case push(SentPush)

    package enum Kind: Int, Sendable, CaseIterable { case members, rows, pushes }
}

/// The result of writing an entry.
package enum LedgerResult: Sendable, Equatable {
    case written
    /// Written, and the push was cancelled since its shard was claimed: nothing more of the shard is to
    /// be sent. What was sent is recorded by further checkpoints, until the shard is released; its next
    /// owner suppresses and reports the rest.
    case cancelled
    /// Another session owned it, or it was stored already: nothing was changed.
    case notOwned
    /// It names a subject that was erased in the meantime: nothing of it is stored.
    case erased
}

/// The form in which something is stored.
package enum LedgerForm: Sendable, Equatable {
    /// Push and deliveries are one row of `event_pushes`.
    case row
    /// The push has its row of `pushes`, and its deliveries are packed in it.
    case packed
    /// A row of `deliveries` each, and one of `pushes`.
    case rows
    /// A part of a row of `delivery_chunks`.
    case chunk
    /// It has a row already.
    case updateRow
}

extension PushLedger {
    /// Returns the form of a push of the fast path: one row if all of it has ended, its own if HTTP
    /// accepted it.
    static func form(of push: SentPush) -> LedgerForm {
        guard push.deliveries.allSatisfy({ $0.end?.outcome != nil }) else { return .rows }
        return push.hasRow ? .packed : .row
    }

    /// Returns the form of a delivery: a chunk's if it was delivered and has no other details. The
    /// members of a device-local push are rows, as one that moves from one time zone to another in the
    /// meantime is looked up among them. `shard` is `nil` if it is a row already.
    static func form(of record: DeliveryRecord, in shard: ClaimedShard?) -> LedgerForm {
        guard let shard else { return .updateRow }
        let isPlain = record.end?.decision == .settle(.delivered) && record.end?.reason == nil
        return isPlain && shard.zones == nil ? .chunk : .rows
    }
}
