import Observability
import PushCore
import PushProviders
import PushStorage

/// Members of a shard that have become rows at a checkpoint: ours as such until their answers come,
/// and recorded with the other rows.
///
/// Confined to the loop.
struct MemberRows {
    typealias Window = ShardWindow<ShardMember, DeliveryEnd>

    let inHand: WorkInHand
    let recorder: RowRecorder
    let meters: DeliveryMeters

    /// A checkpoint is durable.
    func recorded<Source: MemberSource>(
        _ records: [Window.Checkpoint.Record],
        _ written: Window.Written,
        of source: Source
    ) {
        meters.checkpoints.add()
        for record in records {
            if let end = record.end {
                meters.settled(end, at: record.member.delivery.device.provider)
            }
        }
        for member in written.rows { inHand.take(member.delivery.key) }
        for (member, end) in written.endedRows {
            inHand.take(member.delivery.key)
            finish(member, of: source, end)
        }
    }

    /// One has ended.
    func finish<Source: MemberSource>(_ member: ShardMember, of source: Source, _ end: DeliveryEnd)
    {
        let owned = OwnedDelivery(
            member,
            context: source.context,
            session: source.session,
            health: source.health(of: member.delivery.device.provider)
        )
        owned.slot = .shards
        owned.end = end
        recorder.add(owned)
    }
}
