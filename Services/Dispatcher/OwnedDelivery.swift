import PushCore
import PushProviders
import PushStorage

/// One delivery that this process owns as a row.
struct OwnedDelivery {
    /// How its provider fares, with the rows that wait for it.
    typealias Health = ProviderHealth<OwnedDelivery>

    let delivery: Delivery
    let context: PushContext
    let session: Int
    let health: Health
    var attempts: Int
    var unanswered: Int
    /// What its slot of the flight budget is used for, where it holds one.
    var slot: FlightBudget.Use?

    init(_ delivery: Delivery, context: PushContext, session: Int, health: Health) {
        self.delivery = delivery
        self.context = context
        self.session = session
        self.health = health
        attempts = delivery.attempts
        unanswered = delivery.unanswered
    }

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
