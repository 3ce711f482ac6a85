import Kafka
import PushCore
import PushEvents
import PushStorage

/// Rows of `deliveries` that this session owns, from a claim or just planned. Each is recorded as
/// soon as it has ended, and does not wait for the others.
@DispatchLoop
final class RowRun: Run {
    private struct Row {
        let member: ShardMember
        let context: PushContext
        let health: ClientHealth
        /// The use of the slot that it holds.
        var slot: SendBudget.Use?
        var end: DeliveryEnd?
    }

    let session: Int
    private let services: RunServices
    /// The rows; `nil` once a row is recorded.
    private var rows: [Row?] = []

    init(session: Int, _ services: RunServices) {
        self.session = session
        self.services = services
    }

    var count: Int { rows.count }

    func add(_ member: ShardMember, _ context: PushContext, _ health: ClientHealth) {
        rows.append(Row(member: member, context: context, health: health))
    }

    /// Records a member of another run that has become a row and has ended. `slot` is the use of
    /// its slot.
    static func record(
        _ member: ShardMember,
        _ end: DeliveryEnd,
        _ context: PushContext,
        _ health: ClientHealth,
        slot: SendBudget.Use?,
        session: Int,
        _ services: RunServices
    ) {
        let run = RowRun(session: session, services)
        run.rows = [Row(member: member, context: context, health: health, slot: slot, end: end)]
        services.recorder.add(run, 0)
    }

    // MARK: Sending

    var isDropped: Bool { false }

    func member(at position: Int) -> ShardMember? { rows[position]?.member }

    func context(at position: Int) -> PushContext { row(position).context }

    func health(at position: Int) -> ClientHealth { row(position).health }

    private func row(_ position: Int) -> Row {
        guard let row = rows[position] else { preconditionFailure("recorded already") }
        return row
    }

    func admitted(_ position: Int) {
        let use = rows[position]?.member.use
        rows[position]?.slot = use
    }

    func ended(_ position: Int, _ end: DeliveryEnd) {
        guard rows[position] != nil, rows[position]?.end == nil else { return }
        rows[position]?.end = end
        services.recorder.add(self, position)
    }

    func release(_ position: Int) {
        guard let row = rows[position] else { return }
        if let slot = row.slot { services.room.budget.release(slot, row.health.client) }
        rows[position] = nil
    }

    // MARK: Recording

    var kind: LedgerEntry.Kind { .rows }

    func outcomes(of place: Int) -> Int { rows[place]?.end?.outcome == nil ? 0 : 1 }

    func writeOutcomes(
        of place: Int,
        by writer: inout OutcomeWriter,
        to block: inout KafkaRecordBlock
    ) {
        guard let row = rows[place], let end = row.end else { return }
        row.context.writeOutcome(of: row.member.delivery, end, by: &writer, to: &block)
    }

    func entry(of place: Int) -> LedgerEntry {
        .row(DeliveryRecord(row(place).member, row(place).end))
    }

    func willWrite(_ place: Int, remember: (PushContext) -> Void) {
        guard let row = rows[place], row.end?.decision.dueAt != nil else { return }
        // Once the row is written, another process may claim it, or this process may claim it
        // again.
        services.inHand.leave(row.member.delivery.key)
    }

    func recorded(_ place: Int, _ end: RecordedEnd, at now: ContinuousClock.Instant) {
        guard let row = rows[place], let ended = row.end else { return }
        if case .recorded(let result) = end {
            services.meters.settled(ended, at: row.member.delivery.device.provider)
            // A row that another session owns is counted there.
            if result == .written {
                services.figures.count(ended, of: row.member.delivery, row.context)
            }
        }
        // A released row was removed from `inHand` before the write: this process may have claimed
        // it again by now.
        if services.session.isCurrent(session), ended.outcome != nil {
            services.inHand.leave(row.member.delivery.key)
        }
        release(place)
    }
}

extension ShardMember {
    /// The use of the member's slot if it is sent as a row.
    var use: SendBudget.Use { SendBudget.Use(Lane(rawValue: delivery.lane) ?? .broadcast) }
}
