import Kafka
import PushCore
import PushEvents
import PushStorage

/// An event whose deliveries are sent before any of it is a row.
protocol RowlessEvent: AnyObject, Sendable {
    /// One of its deliveries has come to its end here, or goes back.
    ///
    /// - Returns: Whether the event takes it; `false`: its row is there by now, or nobody's.
    func takes(_ finished: OwnedDelivery) -> Bool
    /// One of its deliveries came so far.
    func reached(_ stage: EventStages.Stage, at now: ContinuousClock.Instant)
}

/// One delivery that this process owns: as a row, or as a part of an event that has none yet. Confined
/// to the loop.
final class OwnedDelivery: @unchecked Sendable {
    /// How its provider fares, with the rows that wait for it.
    typealias Health = ProviderHealth<OwnedDelivery>

    let member: ShardMember
    let context: PushContext
    let session: Int
    let health: Health
    /// The event that it is a part of, and its place there; `nil`: it is a row.
    let event: (any RowlessEvent)?
    let place: Int
    /// What its slot of the flight budget is used for, if it holds one.
    var slot: FlightBudget.Use?
    /// Its end here, until that is written down.
    var end: DeliveryEnd?
    private var isReleased = false

    init(
        _ member: ShardMember,
        at place: Int = 0,
        of event: (any RowlessEvent)? = nil,
        context: PushContext,
        session: Int,
        health: Health
    ) {
        self.member = member
        self.place = place
        self.event = event
        self.context = context
        self.session = session
        self.health = health
    }

    var delivery: Delivery { member.delivery }

    var record: DeliveryRecord { DeliveryRecord(member, end) }

    var use: FlightBudget.Use { FlightBudget.Use(Lane(rawValue: delivery.lane) ?? .broadcast) }
}

/// A row.
extension OwnedDelivery: Recorded {
    var kind: LedgerEntry.Kind { .rows }
    var outcomes: Int { end?.outcome == nil ? 0 : 1 }
    func writeOutcomes(by writer: inout OutcomeWriter, to block: inout KafkaRecordBlock) {
        if let end { context.writeOutcome(of: delivery, end, by: &writer, to: &block) }
    }

    func acknowledged(at now: ContinuousClock.Instant) {}
    var entry: LedgerEntry { .row(record) }

    func willWrite(_ inHand: WorkInHand, remember: (PushContext) -> Void) {
        // Once it is written, another process may claim it, or this one again.
        if end?.decision.dueAt != nil { inHand.leave(delivery.key) }
    }

    func ended(_ end: RecordedEnd, at now: ContinuousClock.Instant) -> Released {
        defer { isReleased = true }
        return isReleased ? Released() : Released(deliveries: [self])
    }
}
