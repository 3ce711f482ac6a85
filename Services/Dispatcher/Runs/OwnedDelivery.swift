import PushCore
import PushProviders
import PushStorage

/// An event whose deliveries are sent before any of it is a row.
protocol RowlessEvent: AnyObject, Sendable {
    /// One of its deliveries has come to its end here, or goes back.
    ///
    /// - Returns: Whether the event takes it; `false`: its row is there by now, or nobody's.
    func takes(_ finished: FinishedDelivery, at place: Int) -> Bool
    /// One of its deliveries came so far.
    func reached(_ stage: EventStages.Stage, at now: ContinuousClock.Instant)
}

/// One delivery that this process owns: as a row, or as a part of an event that has none yet.
struct OwnedDelivery {
    /// How its provider fares, with the rows that wait for it.
    typealias Health = ProviderHealth<OwnedDelivery>

    /// A reference: it is handed on a dozen times, and a copy of a delivery counts a dozen texts.
    private let member: ShardMember
    let context: PushContext
    let session: Int
    let health: Health
    var attempts: Int
    var unanswered: Int
    /// What its slot of the flight budget is used for, where it holds one.
    var slot: FlightBudget.Use?
    /// The event that it is a part of, and its place there; `nil`: it is a row.
    private(set) var event: (any RowlessEvent)?
    private(set) var place = 0

    /// A part of an event.
    init(
        _ delivery: Delivery,
        at place: Int,
        of event: any RowlessEvent,
        context: PushContext,
        session: Int,
        health: Health
    ) {
        self.init(delivery, context: context, session: session, health: health)
        self.event = event
        self.place = place
    }

    init(_ delivery: Delivery, context: PushContext, session: Int, health: Health) {
        member = ShardMember(delivery)
        self.context = context
        self.session = session
        self.health = health
        attempts = delivery.attempts
        unanswered = delivery.unanswered
    }

    var delivery: Delivery { member.delivery }

    var use: FlightBudget.Use { FlightBudget.Use(Lane(rawValue: delivery.lane) ?? .broadcast) }
}

/// A row that has ended here, until that is written down.
struct FinishedDelivery {
    let owned: OwnedDelivery
    let decision: RecordedDecision
    let answer: ProviderAnswer?
    let at: Instant

    var end: DeliveryEnd {
        DeliveryEnd(
            decision: decision,
            answer: answer,
            at: at,
            attempts: owned.attempts,
            unanswered: owned.unanswered
        )
    }
}
