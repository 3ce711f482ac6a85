import PushCore

/// What the sending side writes: the only writer of `deliveries`, `delivery_chunks` and `event_pushes`
/// once something was sent, and of a push's counters. Whatever it writes carries the session: what is
/// another's by now is left alone and counted nowhere.
package struct PushLedger: Sendable {
    let database: Database
    let fewDevices: FewDevicesStore

    /// Writes entries: those of a kind in one transaction, rows first, then members, then pushes.
    ///
    /// - Parameters:
    ///   - entries: Each once.
    ///   - session: Whose they are.
    /// - Returns: A result for each, in their order.
    /// - Throws: `StorageError`: of kind `sessionLost` if a shard or a push is not the session's, and
    ///   nothing of its kind was written; `isOfTheValues` if Postgres will never take one of them.
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
            case .row(let record): keys.contains(record.delivery.key) ? .written : .anothers
            case .members: standings.popFirst() ?? .anothers
            case .push(let push):
                written.erased.contains(push.push.id)
                    ? .erased : written.ids.contains(push.push.id) ? .written : .anothers
            }
        }
    }
}

/// Something that has ended, to be written in one piece.
package enum LedgerEntry: Sendable {
    /// A row of the session that has ended, or goes back.
    case row(DeliveryRecord)
    /// Members of a shard behind its cursor.
    case members(ClaimedShard, ShardCheckpoint)
    /// A push of the fast path.
    case push(SentPush)

    package enum Kind: Int, Sendable, CaseIterable { case members, rows, pushes }
}

/// The end of an entry.
package enum LedgerResult: Sendable, Equatable {
    case written
    /// Written, and the push was cancelled since its shard was claimed: nothing more of the shard is to
    /// be sent. What was sent is recorded by further checkpoints, until the shard is released; its next
    /// owner tells of the rest.
    case cancelled
    /// It was another session's, or known by now: nothing was changed.
    case anothers
    /// It names a subject that was erased meanwhile: nothing of it is kept.
    case erased
}

/// The form in which something is kept.
package enum LedgerForm: Sendable, Equatable {
    /// Push and deliveries are one row of `event_pushes`.
    case row
    /// The push has its row of `pushes`, and its deliveries are packed in it.
    case packed
    /// A row of `deliveries` each, and one of `pushes`.
    case rows
    /// A part of a row of `delivery_chunks`.
    case chunk
    /// Its row is there.
    case updateRow
}

extension PushLedger {
    /// The form of a push of the fast path: one row if all of it has ended, its own where HTTP accepted it.
    static func form(of push: SentPush) -> LedgerForm {
        guard push.deliveries.allSatisfy({ $0.end?.outcome != nil }) else { return .rows }
        return push.hasRow ? .packed : .row
    }

    /// The form of a delivery: a chunk's if it went well and there is nothing else to say of it. The
    /// members of a device-local push are rows, as one that moves from one time zone to another
    /// meanwhile is looked for among them. `shard` is `nil` if it is a row already.
    static func form(of record: DeliveryRecord, in shard: ClaimedShard?) -> LedgerForm {
        guard let shard else { return .updateRow }
        let isPlain = record.end?.decision == .settle(.delivered) && record.end?.reason == nil
        return isPlain && shard.zones == nil ? .chunk : .rows
    }
}
